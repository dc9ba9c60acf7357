// The search for many ids: what one needs from memory is on its way while the others are looked at.
#pragma once

#include "ids_index.h"

namespace sparrow {

constexpr int64_t kSearched = 32;          // ids that are looked for at once
constexpr int64_t kSearchedPiece = 4096;  // ids of a task

// Calls done(i, place) for each entry of the batch; place is -1 where there is none.
template <class Done>
void search_all(const IdMap& map, const IdBatch& batch, const Parallel& parallel, Done&& done) {
  const int64_t pieces = (batch.count + kSearchedPiece - 1) / kSearchedPiece;
  for_each(parallel, pieces, [&](int64_t piece) {
    const int64_t last = std::min(batch.count, (piece + 1) * kSearchedPiece);
    for (int64_t begin = piece * kSearchedPiece; begin < last; begin += kSearched) {
      const int64_t end = std::min(last, begin + kSearched);
      IdKey keys[kSearched];
      for (int64_t i = begin; i < end; ++i) {
        if (batch.segments[i] < 0) continue;
        keys[i - begin] = IdKey(map, batch.ids[i], batch.segments[i]);
        fetch_bucket<false>(map, keys[i - begin]);
      }
      for (int64_t i = begin; i < end; ++i) {
        if (batch.segments[i] < 0) continue;
        const IdBucket& bucket = map.buckets[keys[i - begin].home];
        const uint32_t bits = matches(bucket, keys[i - begin].tag);
        if (bits == 0) continue;
        const uint32_t place = bucket.pairs[__builtin_ctz(bits)].place;
        if (place == kEmpty) continue;
        prefetch<false>(map.ids + place, sizeof(uint64_t));
        prefetch<true>(map.last + place, sizeof(int32_t));
      }
      for (int64_t i = begin; i < end; ++i) {
        const int32_t segment = batch.segments[i];
        done(i, segment < 0 ? -1 : search(map, keys[i - begin], map.segments[segment]));
      }
    }
  });
}

}  // namespace sparrow
