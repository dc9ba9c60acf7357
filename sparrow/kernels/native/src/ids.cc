// Finding ids, and building the index of a map.
#include "ids.h"

#include <algorithm>

#include "ids_index.h"
#include "ids_search.h"

namespace sparrow {

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
    const IdSegment& segment = map.segments[number];
    const int32_t begin = pool < map.num_segments ? segment.begin : segment.waiting_begin;
    const int32_t end = pool < map.num_segments ? segment.end : segment.waiting_end;
    for (int32_t place = begin; place < end; ++place) {
      if (end - place > kAhead) fetch_bucket<true>(map, IdKey(map, map.ids[place + kAhead], number));
      if (map.last[place] >= 0) insert(map, IdKey(map, map.ids[place], number), place);
    }
  }
}

}  // namespace sparrow
