// Finding ids, building the index of a map, and giving rows to ids, in the order of the definition: mark, ask, choose who
// leaves, decide, carry out.
#include <algorithm>
#include <memory>
#include <vector>

#include "ids.h"
#include "ids_evict.h"

namespace sparrow {
namespace {

constexpr int64_t kAhead = 12;  // ids between asking for a line of memory and using it
constexpr uint32_t kMostCounted = 0x7fffffffu;

uint32_t saturated(uint32_t a, uint32_t b) { return std::min(kMostCounted, a + b); }

// An id without a row that is in use: one for all its occurrences.
struct Pending {
  uint64_t id;
  int32_t segment;
  int32_t place;  // an expired row, a waiting place, or -1
  uint32_t times, seen;
  int32_t pool;  // that it asks, or -1
  int32_t rank;  // among those that ask the same
  int32_t row;   // the result, or -1
  int32_t first;  // its first entry
};

class Assignment {
 public:
  Assignment(const IdMap& map, const IdBatch& batch, const IdUndo& undo, const Parallel& parallel)
      : map_(map), batch_(batch), undo_(undo), parallel_(parallel), places_(new int32_t[batch.count]) {
    const size_t pools = 2 * map.num_segments;
    for (size_t i = 0; i < pools; ++i) pools_.emplace_back(map, static_cast<int32_t>(i));
    need_.resize(pools);
    given_.resize(pools);
    evictions_.resize(pools);
    returned_.resize(map.num_segments);
  }

  void run(int32_t* rows, const IdChanges& fresh, const IdChanges& gone) {
    search_all(map_, batch_, parallel_, [&](int64_t i, int32_t place) { places_[i] = place; });
    const bool frozen = std::any_of(map_.missing, map_.missing + map_.num_segments, [](int32_t missing) { return missing > 0; });
    for (const IdUndo::Entry row : {IdUndo::kPlace, IdUndo::kTaken}) {
      std::fill_n(undo_.entries + row * undo_.count, undo_.count, -1);
    }
    bool ok = false;
    if (!frozen) {
      mark_and_collect();
      ask();
      choose();
      ok = decide();
    }
    if (ok) {
      count_known();
      let_go(gone);
      let_in(fresh);
      write_rows(rows);
    } else {
      find_ids(map_, batch_, rows, parallel_);
    }
    finish(fresh, ok ? fresh_count_ : 0, ok);
    finish(gone, ok ? gone_count_ : 0, ok);
    std::fill(undo_.left + left_count_, undo_.left + undo_.capacity, -1);
  }

 private:
  const IdSegment& segment(int64_t i) const { return map_.segments[batch_.segments[i]]; }
  bool is_row(int32_t place) const { return place >= 0 && place < map_.num_rows; }

  // Entry i uses a place, whose count has not changed yet; the place of a known id may have been used by others.
  void mark(int64_t i, int32_t place, bool known) {
    undo_.entry(IdUndo::kPlace, i) = place;
    undo_.entry(IdUndo::kLast, i) = known && map_.last[place] == batch_.step ? IdUndo::kUnchanged : map_.last[place];
    undo_.entry(IdUndo::kCount, i) = is_row(place) && segment(i).policy < kLfu ? 0 : map_.counts[place];
    map_.last[place] = batch_.step;
  }

  // Known ids are used; of the others, `places_` becomes -2 - the number in `pending_`.
  void mark_and_collect() {
    std::vector<int32_t> others;
    for (int64_t i = 0; i < batch_.count; ++i) {
      if (i + kAhead < batch_.count && places_[i + kAhead] >= 0) prefetch<true>(map_.last + places_[i + kAhead], 4);
      if (batch_.segments[i] < 0) continue;
      const int32_t place = places_[i];
      if (is_row(place) && !expired(segment(i), map_.last[place], batch_.step)) {
        mark(i, place, true);
      } else {
        others.push_back(static_cast<int32_t>(i));
      }
    }
    size_t size = 16;
    while (size < 2 * others.size()) size *= 2;
    std::vector<int32_t> table(size, -1);
    for (const int32_t i : others) {
      const uint64_t id = batch_.ids[i];
      const int32_t number = batch_.segments[i];
      size_t at = mix64(id + static_cast<uint64_t>(number)) & (size - 1);
      while (table[at] >= 0 && (pending_[table[at]].id != id || pending_[table[at]].segment != number)) at = (at + 1) & (size - 1);
      if (table[at] < 0) {
        table[at] = static_cast<int32_t>(pending_.size());
        pending_.push_back({id, number, places_[i], 0, 0, -1, 0, -1, i});
      }
      ++pending_[table[at]].times;
      places_[i] = -2 - table[at];
    }
  }

  void ask() {
    for (Pending& one : pending_) {
      const IdSegment& segment = map_.segments[one.segment];
      one.seen = one.times;
      if (one.place >= 0) mark(one.first, one.place, false);
      if (is_row(one.place)) {
        one.rank = returned_[one.segment]++;
        continue;
      }
      if (one.place >= 0) one.seen = saturated(one.times, static_cast<uint32_t>(map_.counts[one.place]));
      const bool lucky = segment.chance == 0 ||
                         mix64(one.id ^ mix64(static_cast<uint64_t>(batch_.step) ^ segment.seed)) < segment.chance;
      if (one.seen >= static_cast<uint32_t>(segment.admit) && lucky) {
        one.pool = one.segment;
      } else if (segment.admit > 1 && one.place < 0) {
        one.pool = map_.num_segments + one.segment;
      }
      if (one.pool >= 0) one.rank = need_[one.pool]++;
    }
  }

  void choose() {
    for_each(parallel_, static_cast<int64_t>(pools_.size()), [&](int64_t pool) {
      const int32_t missing = need_[pool] - map_.pools[2 * pool];
      evictions_[pool].quiet = map_.pools[2 * pool + 1];
      if (missing > 0) evictions_[pool].choose(map_, pools_[pool], missing, batch_.step);
    });
  }

  int32_t lot(size_t pool) const { return static_cast<int32_t>(evictions_[pool].places.size()); }

  bool decide() {
    bool ok = true;
    for (size_t pool = 0; pool < pools_.size(); ++pool) {
      given_[pool] = std::min(need_[pool], map_.pools[2 * pool] + lot(pool));
      if (pools_[pool].hard) {
        map_.missing[pool] = need_[pool] - given_[pool];
        ok = ok && map_.missing[pool] == 0;
      }
    }
    if (!ok) {
      for (int64_t i = 0; i < batch_.count; ++i) {
        const int32_t place = undo_.entry(IdUndo::kPlace, i), last = undo_.entry(IdUndo::kLast, i);
        if (place >= 0 && last != IdUndo::kUnchanged) map_.last[place] = last;
        undo_.entry(IdUndo::kPlace, i) = -1;
      }
    }
    return ok;
  }

  void count_known() {
    for (int64_t i = 0; i < batch_.count; ++i) {
      if (batch_.segments[i] < 0 || places_[i] < 0 || segment(i).policy < kLfu) continue;
      int32_t& count = map_.counts[places_[i]];
      count = static_cast<int32_t>(saturated(static_cast<uint32_t>(count), 1));
    }
  }

  void clear(int32_t place) {
    map_.ids[place] = 0;
    map_.last[place] = -1;
    map_.counts[place] = 0;
  }

  void let_go(const IdChanges& gone) {
    for (size_t pool = 0; pool < pools_.size(); ++pool) {
      const std::vector<int32_t>& places = evictions_[pool].places;
      const auto number = static_cast<int32_t>(pool % map_.num_segments);
      const bool rows = static_cast<int32_t>(pool) < map_.num_segments;
      const int64_t lost = lot(pool);
      int32_t* top = map_.free + pools_[pool].begin + map_.pools[2 * pool] + lost;
      for (int64_t i = 0; i < lost; ++i) {
        if (i + 2 * kAhead < lost) prefetch<true>(map_.ids + places[i + 2 * kAhead], 8);
        if (i + kAhead < lost) fetch_bucket<true>(map_, IdKey(map_, map_.ids[places[i + kAhead]], number));
        const uint64_t id = map_.ids[places[i]];
        remove(map_, IdKey(map_, id, number), places[i]);
        undo_.of_left(IdUndo::kLeftPlace, left_count_) = places[i];
        undo_.of_left(IdUndo::kLeftLast, left_count_) = map_.last[places[i]];
        undo_.of_left(IdUndo::kLeftCount, left_count_) = map_.counts[places[i]];
        undo_.of_left(IdUndo::kLow, left_count_) = static_cast<int32_t>(id);
        undo_.of_left(IdUndo::kHigh, left_count_++) = static_cast<int32_t>(id >> 32);
        clear(places[i]);
        *--top = places[i];
        if (rows) {
          gone.rows[gone_count_] = places[i];
          gone.ids[gone_count_++] = id;
        }
      }
      if (rows) gone.ends[pool] = static_cast<int32_t>(gone_count_);
      map_.totals[number * kTotals + (rows ? kEvicted : kForgotten)] += lost;
      map_.pools[2 * pool + 1] = evictions_[pool].quiet;
    }
  }

  void let_in(const IdChanges& fresh) {
    std::vector<int32_t> begins(map_.num_segments), left;
    for (int32_t number = 0; number < map_.num_segments; ++number) {
      begins[number] = static_cast<int32_t>(fresh_count_);
      fresh_count_ += given_[number] + returned_[number];
      fresh.ends[number] = static_cast<int32_t>(fresh_count_);
      uint64_t* totals = map_.totals + number * kTotals;
      totals[kAdmitted] += given_[number];
      totals[kExpired] += returned_[number];
      totals[kRefused] += need_[number] - given_[number];
      totals[kForgotten] += need_[map_.num_segments + number] - given_[map_.num_segments + number];
    }
    const auto add_fresh = [&](int32_t at, const Pending& one) {
      fresh.rows[at] = one.row;
      fresh.ids[at] = one.id;
    };
    const auto count = static_cast<int64_t>(pending_.size());
    for (int64_t i = 0; i < count; ++i) {
      if (i + kAhead < count) fetch_bucket<true>(map_, IdKey(map_, pending_[i + kAhead].id, pending_[i + kAhead].segment));
      Pending& one = pending_[i];
      const bool lfu = map_.segments[one.segment].policy >= kLfu, waits = one.place >= map_.num_rows;
      if (is_row(one.place)) {
        one.row = one.place;
        map_.counts[one.place] = lfu ? static_cast<int32_t>(saturated(one.times, 0)) : 0;
        add_fresh(begins[one.segment] + given_[one.segment] + one.rank, one);
        continue;
      }
      const bool comes = one.pool >= 0 && one.rank < given_[one.pool], admitted = comes && one.pool < map_.num_segments;
      if (waits && !admitted) map_.counts[one.place] = static_cast<int32_t>(one.seen);
      if (!comes) continue;
      const IdKey key(map_, one.id, one.segment);
      if (waits) {
        remove(map_, key, one.place);
        clear(one.place);
        left.push_back(static_cast<int32_t>(i));
      }
      const int32_t top = pools_[one.pool].begin + map_.pools[2 * one.pool] + lot(one.pool);
      const int32_t place = map_.free[top - 1 - one.rank];
      if (one.rank >= lot(one.pool)) {
        undo_.entry(IdUndo::kTaken, one.first) = place;
        undo_.entry(IdUndo::kPosition, one.first) = top - 1 - one.rank;
      }
      insert(map_, key, place);
      map_.ids[place] = one.id;
      map_.last[place] = batch_.step;
      map_.counts[place] = lfu || !admitted ? static_cast<int32_t>(one.seen) : 0;
      if (admitted) {
        one.row = place;
        add_fresh(begins[one.segment] + one.rank, one);
      }
    }
    for (size_t pool = 0; pool < pools_.size(); ++pool) map_.pools[2 * pool] += lot(pool) - given_[pool];
    for (const int32_t i : left) {
      const int32_t pool = map_.num_segments + pending_[i].segment;
      map_.free[pools_[pool].begin + map_.pools[2 * pool]++] = pending_[i].place;
    }
  }

  void write_rows(int32_t* rows) const {
    for (int64_t i = 0; i < batch_.count; ++i) {
      if (batch_.segments[i] < 0) {
        rows[i] = map_.num_rows;
        continue;
      }
      const int32_t row = places_[i] >= 0 ? places_[i] : pending_[-2 - places_[i]].row;
      rows[i] = row >= 0 ? row : segment(i).unknown;
    }
  }

  // The rest of the list, and all of it where nothing has changed.
  void finish(const IdChanges& changes, int64_t count, bool ok) const {
    if (!ok) std::fill_n(changes.ends, map_.num_segments, 0);
    std::fill(changes.rows + count, changes.rows + changes.capacity, map_.num_rows);
    std::fill(changes.ids + count, changes.ids + changes.capacity, 0);
  }

  const IdMap& map_;
  const IdBatch& batch_;
  const IdUndo& undo_;
  const Parallel& parallel_;
  std::unique_ptr<int32_t[]> places_;
  std::vector<Pending> pending_;  // in the order of first occurrence
  std::vector<IdPool> pools_;
  std::vector<int32_t> need_, given_, returned_;
  std::vector<Eviction> evictions_;
  int64_t fresh_count_ = 0, gone_count_ = 0, left_count_ = 0;
};

}  // namespace

void assign_ids(const IdMap& map, const IdBatch& batch, int32_t* rows, const IdChanges& fresh, const IdChanges& gone,
                const IdUndo& undo, const Parallel& parallel) {
  Assignment(map, batch, undo, parallel).run(rows, fresh, gone);
}

void find_ids(const IdMap& map, const IdBatch& batch, int32_t* rows, const Parallel& parallel) {
  search_all(map, batch, parallel, [&](int64_t i, int32_t place) {
    const int32_t number = batch.segments[i];
    if (number < 0) {
      rows[i] = map.num_rows;
      return;
    }
    const IdSegment& segment = map.segments[number];
    const bool known = place >= 0 && place < map.num_rows && !expired(segment, map.last[place], batch.step);
    rows[i] = known ? place : segment.unknown;
  });
}

void index_ids(const IdMap& map) {
  for (int64_t i = 0; i < map.num_buckets; ++i) {
    std::memset(map.buckets + i, 0xff, sizeof(IdBucket));
    map.buckets[i].passed = map.buckets[i].unused = 0;
  }
  constexpr int32_t kAhead = 16;
  for (int32_t pool = 0; pool < 2 * map.num_segments; ++pool) {
    const int32_t number = pool % map.num_segments;
    const IdPool range(map, pool);
    const int32_t end = range.begin + range.size;
    for (int32_t place = range.begin; place < end; ++place) {
      if (end - place > kAhead) fetch_bucket<true>(map, IdKey(map, map.ids[place + kAhead], number));
      if (map.last[place] >= 0) insert(map, IdKey(map, map.ids[place], number), place);
    }
  }
}

}  // namespace sparrow
