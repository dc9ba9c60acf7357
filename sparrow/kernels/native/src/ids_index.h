// The index of a map: sparrow/kernels/ids/index.py describes it.
#pragma once

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "ids.h"
#include "prefetch.h"

namespace sparrow {

inline uint64_t mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

struct IdKey {
  uint64_t id;
  int64_t home;
  uint32_t tag;

  IdKey() = default;
  IdKey(const IdMap& map, uint64_t id, int32_t segment) : id(id) {
    const uint64_t hash = mix64(id ^ map.segments[segment].salt);
    home = static_cast<int64_t>((hash >> 32) * static_cast<uint64_t>(map.num_buckets) >> 32);
    tag = static_cast<uint32_t>(hash);
  }
};

inline int64_t next_bucket(const IdMap& map, int64_t bucket) { return bucket + 1 == map.num_buckets ? 0 : bucket + 1; }

template <bool kWrite>
void fetch_bucket(const IdMap& map, const IdKey& key) {
  prefetch<kWrite>(map.buckets + key.home, sizeof(IdBucket));
}

// Which pairs of a bucket have the tag, one bit each.
inline uint32_t matches(const IdBucket& bucket, uint32_t tag) {
  uint32_t bits = 0;
#if defined(__x86_64__)
  const auto* words = reinterpret_cast<const float*>(&bucket);
  for (int way = 0; way < kWays; way += 4) {  // four pairs at a time: the last one of all is no pair
    const __m128 tags = _mm_shuffle_ps(_mm_loadu_ps(words + 2 * way), _mm_loadu_ps(words + 2 * way + 4), 0xdd);
    const __m128i same = _mm_cmpeq_epi32(_mm_castps_si128(tags), _mm_set1_epi32(static_cast<int32_t>(tag)));
    bits |= static_cast<uint32_t>(_mm_movemask_ps(_mm_castsi128_ps(same))) << way;
  }
  return bits & ((1u << kWays) - 1);
#else
  for (int way = 0; way < kWays; ++way) bits |= static_cast<uint32_t>(bucket.pairs[way].tag == tag) << way;
  return bits;
#endif
}

inline bool belongs(const IdSegment& segment, int32_t place) {
  return (place >= segment.begin && place < segment.end) || (place >= segment.waiting_begin && place < segment.waiting_end);
}

// The place of an id, or -1; `bits`: what of its first bucket has the tag.
inline int32_t search(const IdMap& map, const IdKey& key, const IdSegment& segment, uint32_t bits) {
  int64_t at = key.home;
  for (int64_t probes = 0; probes < map.num_buckets; ++probes) {
    const IdBucket& bucket = map.buckets[at];
    for (; bits != 0; bits &= bits - 1) {
      const uint32_t place = bucket.pairs[__builtin_ctz(bits)].place;
      if (place != kEmpty && map.ids[place] == key.id && belongs(segment, static_cast<int32_t>(place))) {
        return static_cast<int32_t>(place);
      }
    }
    if (bucket.passed == 0) return -1;
    at = next_bucket(map, at);
    bits = matches(map.buckets[at], key.tag);
  }
  return -1;
}

inline void insert(const IdMap& map, const IdKey& key, int32_t place) {
  for (int64_t at = key.home;; at = next_bucket(map, at)) {
    for (IdBucket::Pair& pair : map.buckets[at].pairs) {
      if (pair.place == kEmpty) {
        pair = {static_cast<uint32_t>(place), key.tag};
        return;
      }
    }
    ++map.buckets[at].passed;
  }
}

// Takes out a place that is there.
inline void remove(const IdMap& map, const IdKey& key, int32_t place) {
  int64_t at = key.home;
  for (int64_t probes = 0; probes < map.num_buckets; ++probes, at = next_bucket(map, at)) {
    for (IdBucket::Pair& pair : map.buckets[at].pairs) {
      if (pair.place == static_cast<uint32_t>(place)) {
        pair = {kEmpty, kEmpty};
        return;
      }
    }
    --map.buckets[at].passed;
  }
}

inline bool expired(const IdSegment& segment, int32_t last, int32_t step) {
  return segment.expire > 0 && last >= 0 && step - last > segment.expire;
}

// The search for many ids: what one needs from memory is on its way while the others are looked at.
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
      uint32_t found[kSearched];
      for (int64_t i = begin; i < end; ++i) {
        if (batch.segments[i] < 0) continue;
        keys[i - begin] = IdKey(map, batch.ids[i], batch.segments[i]);
        fetch_bucket<false>(map, keys[i - begin]);
      }
      for (int64_t i = begin; i < end; ++i) {
        if (batch.segments[i] < 0) continue;
        const IdBucket& bucket = map.buckets[keys[i - begin].home];
        const uint32_t bits = found[i - begin] = matches(bucket, keys[i - begin].tag);
        if (bits == 0) continue;
        const uint32_t place = bucket.pairs[__builtin_ctz(bits)].place;
        if (place == kEmpty) continue;
        prefetch<false>(map.ids + place, sizeof(uint64_t));
        prefetch<true>(map.last + place, sizeof(int32_t));
      }
      for (int64_t i = begin; i < end; ++i) {
        const int32_t segment = batch.segments[i];
        done(i, segment < 0 ? -1 : search(map, keys[i - begin], map.segments[segment], found[i - begin]));
      }
    }
  });
}

}  // namespace sparrow
