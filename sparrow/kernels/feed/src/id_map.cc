// The id map of a table with a dynamic vocabulary: the row of each 64-bit id, the ids that wait for one, and evictions.
//
// Open addressing with linear probing, 16-byte entries, at most 60 % full. Deletion shifts entries back, so that there
// are no tombstones. Nothing depends on the place of an entry in the hash table: rows are given out and taken back in
// row order, and waiting ids are forgotten in the order in which they came. plain.py holds the same rules in Python.
//
// Batches are mapped ahead of the steps that take them. Each one keeps a journal of all values that it overwrote, in
// order: walking journals swaps the values, so that the map goes back to any step in them, and forward again.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "hash.h"
#include "memory.h"

namespace sparrow {

constexpr int kAhead = 24;  // ids whose entries are fetched early
constexpr int kNumbers = 14;
enum Policy { kNone, kLru, kLfu };

struct Entry {
  uint64_t id;
  int32_t value;  // 0: no entry; above 0: the row + 1; below 0: a waiting id, seen -value times
  int32_t last;   // the step in which it was last seen; of a waiting id, its place in the queue
};

struct Numbers {
  int64_t hand, next, since, began, waiting, evicted, refused, admitted, forgotten, expired, head, tail, quiet, step;
};
static_assert(sizeof(Numbers) == kNumbers * sizeof(int64_t), "one number each");

struct Journal {
  int64_t step;
  Numbers numbers;
  std::vector<std::pair<uint64_t, Entry>> entries;
  std::vector<std::pair<int32_t, uint64_t>> ids;     // by row
  std::vector<std::pair<int32_t, uint8_t>> counts;   // by row
  std::vector<std::pair<int64_t, uint64_t>> queue;   // by place
};

uint64_t table_size(int64_t ids) {
  uint64_t size = 16;
  while (size * 6 / 10 < uint64_t(ids)) size <<= 1;
  return size;
}

class IdMap {
 public:
  IdMap(int64_t capacity, int64_t room, int64_t admit, uint64_t chance, int64_t policy, int64_t expire, uint64_t seed)
      : capacity_(capacity), room_(room), admit_(admit), chance_(chance), policy_(policy), expire_(expire), seed_(seed),
        mask_(table_size(capacity + room) - 1), table_(mask_ + 1), id_of_(capacity),
        count_of_(policy == kLfu ? capacity : 1), queue_(room) {
    numbers_ = {};
    numbers_.step = -1;
  }

  void find(const uint64_t* ids, int64_t count, int64_t step, int32_t* rows) const {
    each(ids, count, [&](int64_t i, uint64_t at) {
      const Entry& entry = table_[probe(at, ids[i])];
      rows[i] = entry.value > 0 && !is_expired(entry, step) ? entry.value - 1 : -1;
    });
  }

  // Rows of the ids of one batch, -1 where there is none; the rows that start fresh, with their ids. Returns the number
  // of these, or -1 where the step needs more rows than there are: then nothing has changed.
  int64_t train(const uint64_t* ids, int64_t count, int64_t step, int32_t* rows, int32_t* new_rows, uint64_t* new_ids) {
    past_.push_back({step, numbers_, {}, {}, {}, {}});
    now_ = &past_.back();
    again_ = numbers_.step == step;
    numbers_.step = step;
    unknown_.clear();
    int64_t made = 0;
    // All known ids are marked before any row is given out: no new id takes the row of an id of the same batch.
    each(ids, count, [&](int64_t i, uint64_t at) {
      at = probe(at, ids[i]);
      Entry& entry = table_[at];
      if (entry.value <= 0) {
        unknown_.push_back(i);
        return;
      }
      const int32_t row = entry.value - 1;
      if (is_expired(entry, step)) {  // the id comes back too late: its row starts fresh
        ++numbers_.expired;
        new_rows[made] = row, new_ids[made++] = ids[i];
        if (policy_ == kLfu) put_count(row, 0);
      }
      if (entry.last != step || again_) {
        now_->entries.emplace_back(at, entry);
        if (policy_ == kLfu) now_->counts.emplace_back(row, count_of_[row]);
        entry.last = int32_t(step);
      }
      if (policy_ == kLfu && count_of_[row] < 255) ++count_of_[row];
      rows[i] = row;
    });
    if (admit_ > 1) count_unknown(ids);
    for (size_t u = 0; u < unknown_.size(); ++u) {
      if (u + kAhead < unknown_.size()) __builtin_prefetch(&table_[home(ids[unknown_[u + kAhead]])], 1);
      const int64_t i = unknown_[u];
      const uint64_t at = probe(home(ids[i]), ids[i]);
      const int32_t value = table_[at].value;
      rows[i] = -1;
      if (value > 0) {  // given out a moment ago
        rows[i] = value - 1;
        if (policy_ == kLfu && count_of_[value - 1] < 255) put_count(value - 1, count_of_[value - 1] + 1);
        continue;
      }
      if (!is_admitted(ids[i], value, step)) continue;
      const int32_t row = take_row(step);
      if (row == kFull) {
        undo_last();
        return -1;
      }
      if (row < 0) {
        ++numbers_.refused;
        continue;
      }
      const uint64_t place = probe(home(ids[i]), ids[i]);  // again: an eviction moves entries
      if (table_[place].value < 0) --numbers_.waiting;
      put(place, {ids[i], row + 1, int32_t(step)});
      now_->ids.emplace_back(row, id_of_[row]);
      id_of_[row] = ids[i];
      if (policy_ == kLfu) put_count(row, 1);
      ++numbers_.admitted;
      new_rows[made] = row, new_ids[made++] = ids[i];
      rows[i] = row;
    }
    return made;
  }

  void undo_last() {
    undo(past_.back());
    past_.pop_back();
  }

  void back(int64_t step) {
    while (current_ < past_.size() && past_[past_.size() - 1 - current_].step >= step) {
      undo(past_[past_.size() - 1 - current_]);
      ++current_;
    }
  }

  void forward() {
    for (; current_ > 0; --current_) redo(past_[past_.size() - current_]);
  }

  void forget(int64_t step) {
    while (past_.size() > current_ && past_.front().step < step) past_.pop_front();
  }

  void drop_undone() {
    for (; current_ > 0; --current_) past_.pop_back();
  }

  const Numbers& numbers() const { return numbers_; }

  void dump(uint64_t* ids, int32_t* last, uint8_t* counts, uint64_t* waiting, int32_t* seen, int64_t* places) const {
    for (int64_t row = 0; row < numbers_.next; ++row) {
      if (row + kAhead < numbers_.next) __builtin_prefetch(&table_[home(id_of_[row + kAhead])]);
      ids[row] = id_of_[row];
      last[row] = table_[probe(home(id_of_[row]), id_of_[row])].last;
      counts[row] = policy_ == kLfu ? count_of_[row] : 0;
    }
    int64_t n = 0;
    for (int64_t place = numbers_.head; place < numbers_.tail; ++place) {
      const uint64_t id = queue_[place % room_];
      const Entry& entry = table_[probe(home(id), id)];
      if (waits_at(entry, place)) waiting[n] = id, seen[n] = -entry.value, places[n++] = place;
    }
  }

  void load(const uint64_t* ids, const int32_t* last, const uint8_t* counts, const uint64_t* waiting,
            const int32_t* seen, const int64_t* places, const Numbers& numbers) {
    for (int64_t row = 0; row < numbers.next; ++row) {
      if (row + kAhead < numbers.next) __builtin_prefetch(&table_[home(ids[row + kAhead])], 1);
      table_[probe(home(ids[row]), ids[row])] = {ids[row], int32_t(row) + 1, last[row]};
      id_of_[row] = ids[row];
      if (policy_ == kLfu) count_of_[row] = counts[row];
    }
    for (int64_t n = 0; n < numbers.waiting; ++n) {
      table_[probe(home(waiting[n]), waiting[n])] = {waiting[n], -seen[n], place_of(places[n])};
      queue_[places[n] % room_] = waiting[n];
    }
    numbers_ = numbers;
  }

 private:
  static constexpr int32_t kFull = -2;

  uint64_t home(uint64_t id) const { return mix64(id) & mask_; }

  uint64_t probe(uint64_t at, uint64_t id) const {
    while (table_[at].value != 0 && table_[at].id != id) at = (at + 1) & mask_;
    return at;
  }

  // Calls `visit` with each id's number and the place where its search begins, whose memory was fetched early.
  template <class Visit>
  void each(const uint64_t* ids, int64_t count, Visit visit) const {
    uint64_t homes[kAhead];
    for (int64_t i = 0; i < std::min<int64_t>(kAhead, count); ++i) {
      homes[i] = home(ids[i]);
      __builtin_prefetch(&table_[homes[i]], 1);
    }
    for (int64_t i = 0, k = 0; i < count; ++i) {
      const uint64_t at = homes[k];
      if (i + kAhead < count) {
        homes[k] = home(ids[i + kAhead]);
        __builtin_prefetch(&table_[homes[k]], 1);
      }
      if (++k == kAhead) k = 0;
      visit(i, at);
    }
  }

  bool is_expired(const Entry& entry, int64_t step) const { return expire_ && step - entry.last > expire_; }

  static int32_t place_of(int64_t place) { return int32_t(place & 0x7fffffff); }

  static bool waits_at(const Entry& entry, int64_t place) { return entry.value < 0 && entry.last == place_of(place); }

  bool is_admitted(uint64_t id, int32_t value, int64_t step) const {
    if (admit_ > 1) return -value >= admit_;
    return !chance_ || mix64(id ^ mix64(uint64_t(step) ^ seed_)) < chance_;
  }

  void put(uint64_t at, const Entry& entry) {
    now_->entries.emplace_back(at, table_[at]);
    table_[at] = entry;
  }

  void put_count(int32_t row, int count) {
    now_->counts.emplace_back(row, count_of_[row]);
    count_of_[row] = uint8_t(count);
  }

  void count_unknown(const uint64_t* ids) {
    for (size_t u = 0; u < unknown_.size(); ++u) {
      if (u + kAhead < unknown_.size()) __builtin_prefetch(&table_[home(ids[unknown_[u + kAhead]])], 1);
      const uint64_t id = ids[unknown_[u]];
      uint64_t at = probe(home(id), id);
      if (table_[at].value < 0) {
        put(at, {id, std::max(table_[at].value - 1, -(1 << 30)), table_[at].last});
        continue;
      }
      if (numbers_.tail - numbers_.head == room_) {  // the queue is full: its first id is forgotten
        const uint64_t first = queue_[numbers_.head % room_];
        const uint64_t place = probe(home(first), first);
        if (waits_at(table_[place], numbers_.head)) {
          erase(place);
          --numbers_.waiting, ++numbers_.forgotten;
          at = probe(home(id), id);
        }
        ++numbers_.head;
      }
      now_->queue.emplace_back(numbers_.tail % room_, queue_[numbers_.tail % room_]);
      queue_[numbers_.tail % room_] = id;
      put(at, {id, -1, place_of(numbers_.tail)});
      ++numbers_.tail, ++numbers_.waiting;
    }
  }

  void erase(uint64_t hole) {
    for (uint64_t at = hole;;) {
      at = (at + 1) & mask_;
      if (table_[at].value == 0) break;
      if (((at - home(table_[at].id)) & mask_) >= ((at - hole) & mask_)) {
        put(hole, table_[at]);
        hole = at;
      }
    }
    put(hole, {0, 0, 0});
  }

  // A row for a new id, none that this step uses. -1: there is none, and none may be evicted; kFull: all are in use.
  int32_t take_row(int64_t step) {
    Numbers& n = numbers_;
    if (n.next < capacity_) return int32_t(n.next++);
    if (policy_ == kNone && (!expire_ || step < n.quiet)) return -1;
    int64_t oldest = step;
    const int64_t most = policy_ == kLfu ? 10 * capacity_ : policy_ == kLru ? 34 * capacity_ : capacity_;
    for (int64_t looked = 0; looked < most; ++looked) {
      // A round in vain: all ids were used since. Half of these steps count as long ago, then half of the rest.
      if (looked && looked % capacity_ == 0) n.since = (n.since + step + 1) / 2;
      const int32_t row = int32_t(n.hand);
      if (row + 8 < capacity_) __builtin_prefetch(&table_[home(id_of_[row + 8])]);
      if (++n.hand == capacity_) n.hand = 0, n.since = std::max(n.since, n.began), n.began = step;
      const uint64_t at = probe(home(id_of_[row]), id_of_[row]);
      const int64_t last = table_[at].last;
      if (last == step) continue;
      oldest = std::min(oldest, last);
      if (!is_expired(table_[at], step)) {
        if (policy_ == kNone) continue;
        if (policy_ == kLru && last >= n.since) continue;  // used since the hand came by
        if (policy_ == kLfu && count_of_[row] > 0) {
          put_count(row, count_of_[row] >> 1);  // halved whenever the hand comes by
          continue;
        }
      }
      erase(at);
      ++n.evicted;
      return row;
    }
    if (policy_ != kNone) return kFull;
    n.quiet = oldest + expire_ + 1;  // nothing expires before
    return -1;
  }

  template <class Old, class Held>
  static void swap_back(std::vector<Old>& old, Held& held) {
    for (auto it = old.rbegin(); it != old.rend(); ++it) std::swap(held[it->first], it->second);
  }
  template <class Old, class Held>
  static void swap_forward(std::vector<Old>& old, Held& held) {
    for (auto& [at, value] : old) std::swap(held[at], value);
  }
  void undo(Journal& journal) {
    swap_back(journal.entries, table_), swap_back(journal.ids, id_of_), swap_back(journal.counts, count_of_);
    swap_back(journal.queue, queue_), std::swap(numbers_, journal.numbers);
  }
  void redo(Journal& journal) {
    swap_forward(journal.entries, table_), swap_forward(journal.ids, id_of_), swap_forward(journal.counts, count_of_);
    swap_forward(journal.queue, queue_), std::swap(numbers_, journal.numbers);
  }

  const int64_t capacity_, room_, admit_;
  const uint64_t chance_;  // 0: every id is admitted
  const int64_t policy_, expire_;
  const uint64_t seed_;
  const uint64_t mask_;
  Memory<Entry> table_;
  Memory<uint64_t> id_of_;   // by row
  Memory<uint8_t> count_of_;  // by row, for LFU
  Memory<uint64_t> queue_;   // waiting ids by place, modulo the room
  Numbers numbers_;
  std::deque<Journal> past_;  // the oldest first
  size_t current_ = 0;        // journals at the end of `past_` that are undone
  Journal* now_ = nullptr;
  bool again_ = false;  // whether this step has mapped a batch before
  std::vector<int64_t> unknown_;
};

}  // namespace sparrow

using sparrow::IdMap;
using sparrow::Numbers;

#pragma GCC visibility push(default)
extern "C" {

void* sparrow_id_map_new(int64_t capacity, int64_t room, int64_t admit, uint64_t chance, int64_t policy, int64_t expire,
                         uint64_t seed) {
  try {
    return new IdMap(capacity, room, admit, chance, policy, expire, seed);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void sparrow_id_map_free(IdMap* map) { delete map; }
void sparrow_id_map_find(const IdMap* map, const uint64_t* ids, int64_t count, int64_t step, int32_t* rows) {
  map->find(ids, count, step, rows);
}
int64_t sparrow_id_map_train(IdMap* map, const uint64_t* ids, int64_t count, int64_t step, int32_t* rows,
                             int32_t* new_rows, uint64_t* new_ids) {
  return map->train(ids, count, step, rows, new_rows, new_ids);
}
void sparrow_id_map_undo_last(IdMap* map) { map->undo_last(); }
void sparrow_id_map_back(IdMap* map, int64_t step) { map->back(step); }
void sparrow_id_map_forward(IdMap* map) { map->forward(); }
void sparrow_id_map_forget(IdMap* map, int64_t step) { map->forget(step); }
void sparrow_id_map_drop(IdMap* map) { map->drop_undone(); }
void sparrow_id_map_numbers(const IdMap* map, int64_t* out) { *reinterpret_cast<Numbers*>(out) = map->numbers(); }
void sparrow_id_map_dump(const IdMap* map, uint64_t* ids, int32_t* last, uint8_t* counts, uint64_t* waiting,
                         int32_t* seen, int64_t* places) {
  map->dump(ids, last, counts, waiting, seen, places);
}
void sparrow_id_map_load(IdMap* map, const uint64_t* ids, const int32_t* last, const uint8_t* counts,
                         const uint64_t* waiting, const int32_t* seen, const int64_t* places, const int64_t* numbers) {
  map->load(ids, last, counts, waiting, seen, places, *reinterpret_cast<const Numbers*>(numbers));
}

}  // extern "C"
#pragma GCC visibility pop
