// The plan of a cache: which rows of a stack's tables are on the device, and which leave when others come.
//
// Batches are seen ahead of the steps that take them. `see` marks the rows of a step as it enters the window; `admit`,
// some steps later, gives slots to the rows of the oldest step. It frees slots by a clock over counts of use, among
// rows that no step of the window needs. Where the window does not fit, rows that are needed last leave early. Slots of
// a table are never given to another one. plain.py holds the same rules in NumPy.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <deque>
#include <new>
#include <thread>
#include <vector>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "memory.h"

namespace sparrow {

constexpr int kFetched = 24;          // entries that are fetched early
constexpr int64_t kChosen = 1 << 16;  // entries that are looked through at a time
constexpr uint8_t kMostCounted = 7;
constexpr int64_t kRounds = 5;  // after four rounds of the hand all counts are 0

// Calls work(begin, end) for parts of [0, count) of at least `least`, in as many threads.
template <class Work>
void in_parallel(int64_t threads, int64_t count, int64_t least, const Work& work) {
  const int64_t parts = std::max<int64_t>(1, std::min(threads, count / std::max<int64_t>(least, 1)));
  std::vector<std::thread> others;
  for (int64_t part = 1; part < parts; ++part) {
    others.emplace_back([&work, count, part, parts] { work(count * part / parts, count * (part + 1) / parts); });
  }
  work(0, count / parts);
  for (std::thread& other : others) other.join();
}

struct Where {
  int32_t place;  // above 0: the slot + 1; 0: never on the device; below 0: left before step -place - 1
  int32_t last;   // 1 + the last step seen so far that needs it; 0: none
};

struct Moves {
  std::vector<int32_t> in_rows, in_slots, out_rows, out_slots;
};

struct Seen {
  int32_t step;
  std::vector<std::vector<int32_t>> rows;  // by table: each row once, in the order met
};

class CachePlan {
 public:
  CachePlan(int64_t tables, const int64_t* rows, const int64_t* slots)
      : first_row_(rows, rows + tables + 1), first_slot_(slots, slots + tables + 1), map_(rows[tables]),
        row_of_(slots[tables]), count_(slots[tables]), next_(slots, slots + tables), hand_(slots, slots + tables),
        moves_(tables) {}

  void begin(int32_t step) { window_.push_back({step, std::vector<std::vector<int32_t>>(moves_.size())}); }

  // Marks the rows of the newest step that belong to tables [begin, end).
  void see(const int32_t* ids, int64_t count, int64_t begin, int64_t end) {
    const uint32_t low = first_row_[begin], rows = first_row_[end] - low;
    if (rows == uint32_t(first_row_.back())) return mark(ids, count, begin, end);
    // Own rows first, side by side: rows are fetched early only if the next ones are near.
    std::vector<int32_t> own(std::min(count, kChosen) + 1);
    for (int64_t from = 0; from < count;) {
      int64_t kept = 0;
      for (const int64_t to = std::min(from + kChosen, count); from < to; ++from) {
        own[kept] = ids[from];
        kept += uint32_t(ids[from]) - low < rows;
      }
      mark(own.data(), kept, begin, end);
    }
  }

  int64_t needed(int64_t table) const { return window_.back().rows[table].size(); }

  // Gives slots to the rows of the oldest step. numbers: rows that come, that leave, that leave early, and the last
  // step at which one of the coming rows left, or -1. A step that does not fit: -1 instead of rows that come.
  void admit(int64_t table, int64_t* numbers) {
    const std::vector<int32_t>& rows = window_.front().rows[table];
    const int32_t step = window_.front().step;
    const int64_t count = rows.size(), begin = first_slot_[table], end = first_slot_[table + 1];
    Moves& made = moves_[table];
    made = {};
    numbers[0] = -1;
    if (count > end - begin) return;
    int64_t after = -1;
    for (int64_t i = 0; i < count; ++i) {
      if (i + kFetched < count) __builtin_prefetch(&map_[rows[i + kFetched]], 1);
      const int32_t place = map_[rows[i]].place;
      if (place > 0) {
        if (count_[place - 1] < kMostCounted) ++count_[place - 1];
        continue;
      }
      made.in_rows.push_back(rows[i]);
      if (place < 0) after = std::max<int64_t>(after, -int64_t(place) - 1);
    }
    const size_t wanted = made.in_rows.size();
    made.in_slots.reserve(wanted);
    while (made.in_slots.size() < wanted && next_[table] < end) give(made, int32_t(next_[table]++));
    int64_t& hand = hand_[table];
    const int64_t most = kRounds * (end - begin);
    for (int64_t looked = 0; made.in_slots.size() < wanted && looked < most; ++looked) {
      const int64_t slot = hand;
      if (++hand == end) hand = begin;
      if (slot + kFetched < end && count_[slot + kFetched] == 0) __builtin_prefetch(&map_[row_of_[slot + kFetched]]);
      if (count_[slot] > 0) {
        count_[slot] >>= 1;
      } else if (map_[row_of_[slot]].last <= step) {
        free(made, int32_t(slot), step);
      }
    }
    const size_t in_time = made.out_rows.size();
    if (made.in_slots.size() < wanted) free_early(made, table, begin, end, step);
    numbers[0] = wanted, numbers[1] = made.out_rows.size(), numbers[2] = made.out_rows.size() - in_time;
    numbers[3] = after;
  }

  const Moves& moves(int64_t table) const { return moves_[table]; }
  void end() { window_.pop_front(); }

  void slots(int32_t* ids, int64_t count) const {
    const uint32_t rows = first_row_.back();
    const int32_t none = first_slot_.back();
    for (int64_t i = 0; i < count; ++i) {
      if (i + kFetched < count && uint32_t(ids[i + kFetched]) < rows) __builtin_prefetch(&map_[ids[i + kFetched]]);
      ids[i] = uint32_t(ids[i]) < rows ? map_[ids[i]].place - 1 : none;
    }
  }

 private:
  void mark(const int32_t* ids, int64_t count, int64_t begin, int64_t end) {
    Seen& seen = window_.back();
    const int32_t mark = seen.step + 1;
    const uint32_t low = first_row_[begin], rows = first_row_[end] - low;
    const int64_t* starts = first_row_.data();
    for (int64_t i = 0; i < count; ++i) {
      if (i + kFetched < count) {
        const uint32_t ahead = uint32_t(ids[i + kFetched]);
        if (ahead - low < rows) __builtin_prefetch(&map_[ahead], 1);
      }
      const uint32_t row = uint32_t(ids[i]);
      if (row - low >= rows || map_[row].last == mark) continue;
      map_[row].last = mark;
      const int64_t table = end - begin == 1 ? begin : std::upper_bound(starts + begin, starts + end, row) - starts - 1;
      seen.rows[table].push_back(int32_t(row));
    }
  }

  // The next row that comes gets this slot.
  void give(Moves& made, int32_t slot) {
    const int32_t row = made.in_rows[made.in_slots.size()];
    made.in_slots.push_back(slot);
    map_[row].place = slot + 1;
    row_of_[slot] = row;
    count_[slot] = 0;
  }

  void free(Moves& made, int32_t slot, int32_t step) {
    const int32_t row = row_of_[slot];
    made.out_rows.push_back(row);
    made.out_slots.push_back(slot);
    map_[row].place = -1 - step;
    give(made, slot);
  }

  // Rows that the step itself does not need, the ones first that are needed last.
  void free_early(Moves& made, int64_t table, int64_t begin, int64_t end, int32_t step) {
    std::vector<int32_t> needed(end - begin, INT32_MAX);  // by slot: the next step of the window that needs its row
    for (size_t i = window_.size(); i-- > 0;) {
      for (int32_t row : window_[i].rows[table]) {
        if (map_[row].place > 0) needed[map_[row].place - 1 - begin] = window_[i].step;
      }
    }
    std::vector<int32_t> others;
    for (int64_t slot = begin; slot < end; ++slot) {
      if (needed[slot - begin] != step) others.push_back(int32_t(slot));
    }
    std::stable_sort(others.begin(), others.end(), [&](int32_t a, int32_t b) {
      return needed[a - begin] > needed[b - begin];
    });
    for (size_t i = 0; made.in_slots.size() < made.in_rows.size(); ++i) free(made, others[i], step);
  }

  std::vector<int64_t> first_row_, first_slot_;
  Memory<Where> map_;       // by row
  Memory<int32_t> row_of_;  // by slot
  Memory<uint8_t> count_;   // by slot: uses, halved whenever the hand comes by
  std::vector<int64_t> next_, hand_;
  std::deque<Seen> window_;
  std::vector<Moves> moves_;
};

constexpr int64_t kLine = 64;            // bytes of a cache line
constexpr int64_t kPastCaches = 4 << 20;  // bytes of an array's rows from which on they are written past the caches

// Whether rows are written past the caches: lines that are written whole need not be read first.
inline bool goes_past_caches(const char* to, int64_t row_bytes, int64_t count) {
#ifdef __SSE2__
  return row_bytes % kLine == 0 && reinterpret_cast<uintptr_t>(to) % kLine == 0 && row_bytes * count >= kPastCaches;
#else
  return false;
#endif
}

inline void copy_row(char* to, const char* from, int64_t size, [[maybe_unused]] bool past_caches) {
#ifdef __SSE2__
  if (past_caches) {
    for (int64_t b = 0; b < size; b += 16) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + b), _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + b)));
    }
    return;
  }
#endif
  std::memcpy(to, from, size);
}

// Rows that went past the caches are seen by others after this.
inline void finish_copies() {
#ifdef __SSE2__
  _mm_sfence();
#endif
}

}  // namespace sparrow

using sparrow::CachePlan;

constexpr int64_t kRowsAhead = 8;        // rows that are fetched early
constexpr int64_t kRowsOfPart = 1 << 12;  // rows that are worth a thread

#pragma GCC visibility push(default)
extern "C" {

int64_t sparrow_cache_plan_new(int64_t tables, const int64_t* rows, const int64_t* slots) {
  try {
    return reinterpret_cast<int64_t>(new CachePlan(tables, rows, slots));
  } catch (const std::bad_alloc&) {
    return 0;
  }
}

void sparrow_cache_plan_free(CachePlan* plan) { delete plan; }

void sparrow_cache_plan_begin(CachePlan* plan, int64_t step) { plan->begin(int32_t(step)); }

void sparrow_cache_plan_see(CachePlan* plan, const int32_t* ids, int64_t count, int64_t begin, int64_t end,
                            int64_t threads) {
  if (count < 1 << 14) threads = 1;
  sparrow::in_parallel(threads, end - begin, 1, [&](int64_t first, int64_t last) {
    plan->see(ids, count, begin + first, begin + last);
  });
}

int64_t sparrow_cache_plan_needed(CachePlan* plan, int64_t table) { return plan->needed(table); }

// Tables [begin, end), four numbers each.
void sparrow_cache_plan_admit(CachePlan* plan, int64_t begin, int64_t end, int64_t* numbers, int64_t threads) {
  std::atomic<int64_t> next{begin};
  sparrow::in_parallel(threads, end - begin, 1, [&](int64_t, int64_t) {
    for (int64_t table = next++; table < end; table = next++) plan->admit(table, numbers + 4 * (table - begin));
  });
}

void sparrow_cache_plan_moves(CachePlan* plan, int64_t table, int32_t* in_rows, int32_t* in_slots, int32_t* out_rows,
                              int32_t* out_slots) {
  const sparrow::Moves& made = plan->moves(table);
  std::copy(made.in_rows.begin(), made.in_rows.end(), in_rows);
  std::copy(made.in_slots.begin(), made.in_slots.end(), in_slots);
  std::copy(made.out_rows.begin(), made.out_rows.end(), out_rows);
  std::copy(made.out_slots.begin(), made.out_slots.end(), out_slots);
}

void sparrow_cache_plan_end(CachePlan* plan) { plan->end(); }

void sparrow_cache_plan_slots(CachePlan* plan, int32_t* ids, int64_t count, int64_t threads) {
  sparrow::in_parallel(threads, count, 1 << 14, [&](int64_t begin, int64_t end) {
    plan->slots(ids + begin, end - begin);
  });
}

// Rows of several arrays: from[a][rows[i]] to to[a][i].
void sparrow_feed_gather_rows(int64_t arrays, const char* const* from, const int64_t* row_bytes, const int32_t* rows,
                              int64_t count, char* const* to, int64_t threads) {
  sparrow::in_parallel(threads, count, kRowsOfPart, [&](int64_t begin, int64_t end) {
    for (int64_t a = 0; a < arrays; ++a) {
      const int64_t size = row_bytes[a];
      const bool past = sparrow::goes_past_caches(to[a], size, count);
      for (int64_t i = begin; i < end; ++i) {
        if (i + kRowsAhead < end) {
          const char* next = from[a] + int64_t(rows[i + kRowsAhead]) * size;
          for (int64_t b = 0; b < size; b += 64) __builtin_prefetch(next + b);
        }
        sparrow::copy_row(to[a] + i * size, from[a] + int64_t(rows[i]) * size, size, past);
      }
    }
    sparrow::finish_copies();
  });
}

// The other way round.
void sparrow_feed_scatter_rows(int64_t arrays, char* const* to, const int64_t* row_bytes, const int32_t* rows,
                               int64_t count, const char* const* from, int64_t threads) {
  sparrow::in_parallel(threads, count, kRowsOfPart, [&](int64_t begin, int64_t end) {
    for (int64_t a = 0; a < arrays; ++a) {
      const int64_t size = row_bytes[a];
      const bool past = sparrow::goes_past_caches(to[a], size, count);
      for (int64_t i = begin; i < end; ++i) {
        if (!past && i + kRowsAhead < end) {
          char* next = to[a] + int64_t(rows[i + kRowsAhead]) * size;
          for (int64_t b = 0; b < size; b += 64) __builtin_prefetch(next + b, 1);
        }
        sparrow::copy_row(to[a] + int64_t(rows[i]) * size, from[a] + i * size, size, past);
      }
    }
    sparrow::finish_copies();
  });
}

}  // extern "C"
#pragma GCC visibility pop
