// The map from 64-bit ids to rows; sparrow/kernels/ids/types.py has the definition, and the meaning of every array.
#pragma once

#include <cstdint>

#include "parallel.h"

namespace sparrow {

// A row of the table of settings.
struct IdSegment {
  int32_t begin, end, waiting_begin, waiting_end, unknown, admit, policy, expire;
  uint64_t chance, seed, salt, unused;
};
static_assert(sizeof(IdSegment) == 64);
enum IdPolicy : int32_t { kNone = 0, kLru = 1, kLfu = 2, kDistanceLfu = 3 };
enum IdTotal { kAdmitted, kEvicted, kExpired, kRefused, kForgotten, kTotals };

constexpr uint32_t kEmpty = 0xffffffffu;
constexpr int kWays = 15;

struct IdBucket {
  struct Pair {
    uint32_t place, tag;
  } pairs[kWays];
  uint32_t passed, unused;
};
static_assert(sizeof(IdBucket) == 128);

struct IdMap {
  const IdSegment* segments;
  int32_t num_segments;
  int32_t num_rows;
  int64_t num_places, num_buckets;
  uint64_t* ids;
  int32_t* last;
  int32_t* counts;
  int32_t* free;
  int32_t* pools;    // (2 * num_segments, 2)
  uint64_t* totals;  // (num_segments, kTotals)
  int32_t* missing;  // (num_segments,)
  IdBucket* buckets;
};

struct IdBatch {
  const uint64_t* ids;
  const int32_t* segments;  // below 0: absent
  int64_t count;
  int32_t step;
};

// Rows that got or lost an id.
struct IdChanges {
  int32_t* rows;
  uint64_t* ids;
  int32_t* ends;  // (num_segments,)
  int64_t capacity;
};

// The state before a call, as far as it has changed; -1 instead of a place: none; kUnchanged instead of `last`.
struct IdUndo {
  enum Entry { kPlace, kLast, kCount, kTaken, kPosition, kEntryRows };
  static constexpr int32_t kUnchanged = -2;
  enum Left { kLeftPlace, kLeftLast, kLeftCount, kLow, kHigh, kLeftRows };
  int32_t* entries;  // (kEntryRows, count)
  int32_t* left;     // (kLeftRows, capacity)
  int64_t count, capacity;

  int32_t& entry(Entry row, int64_t i) const { return entries[row * count + i]; }
  int32_t& of_left(Left row, int64_t i) const { return left[row * capacity + i]; }
};

void find_ids(const IdMap& map, const IdBatch& batch, int32_t* rows, const Parallel& parallel);
void assign_ids(const IdMap& map, const IdBatch& batch, int32_t* rows, const IdChanges& fresh, const IdChanges& gone,
                const IdUndo& undo, const Parallel& parallel);
void index_ids(const IdMap& map);

}  // namespace sparrow
