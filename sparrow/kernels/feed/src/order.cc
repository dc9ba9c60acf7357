// The order of a window's rows, and rows of ragged bags in that order.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>
#include <vector>

#include "hash.h"

#if defined(__GLIBC__)
#include <malloc.h>
#endif

extern "C" {

// Keeps memory that is freed in the process: batches are made and freed again and again, and to get their pages from the
// system each time costs more than to fill them.
__attribute__((visibility("default"))) void sparrow_feed_keep_memory() {
#if defined(__GLIBC__)
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
}

// The order of hashed counters: a permutation of [0, count) that `key` alone decides. 0: out of memory.
// Hashes are even: buckets of the leading bits hold a few each, which are then sorted one by one.
__attribute__((visibility("default"))) int64_t sparrow_feed_shuffled(int64_t count, uint64_t key, int64_t* order) {
  struct Counter {
    uint64_t hash;
    int64_t place;
  };
  try {
    int bits = 1;
    while ((int64_t{4} << bits) < count && bits < 30) ++bits;
    std::vector<int64_t> starts((size_t{1} << bits) + 1);
    std::vector<uint64_t> hashes(count);
    for (int64_t i = 0; i < count; ++i) {
      hashes[i] = sparrow::mix64(static_cast<uint64_t>(i) ^ key);
      ++starts[(hashes[i] >> (64 - bits)) + 1];
    }
    for (size_t bucket = 1; bucket < starts.size(); ++bucket) starts[bucket] += starts[bucket - 1];
    std::vector<int64_t> next(starts.begin(), starts.end() - 1);
    std::vector<Counter> sorted(count);
    for (int64_t i = 0; i < count; ++i) sorted[next[hashes[i] >> (64 - bits)]++] = {hashes[i], i};
    for (size_t bucket = 0; bucket + 1 < starts.size(); ++bucket) {
      for (int64_t i = starts[bucket] + 1; i < starts[bucket + 1]; ++i) {  // insertion: a bucket holds a few
        const Counter counter = sorted[i];
        int64_t to = i;
        for (; to > starts[bucket] && sorted[to - 1].hash > counter.hash; --to) sorted[to] = sorted[to - 1];
        sorted[to] = counter;
      }
    }
    for (int64_t i = 0; i < count; ++i) order[i] = sorted[i].place;
    return 1;
  } catch (const std::bad_alloc&) {
    return 0;
  }
}

// Rows of `width` words in another order.
__attribute__((visibility("default"))) void sparrow_feed_take_rows(const int32_t* words, int64_t width,
                                                                   const int64_t* rows, int64_t count, int32_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    if (i + 8 < count) __builtin_prefetch(words + rows[i + 8] * width);
    std::memcpy(out + i * width, words + rows[i] * width, width * sizeof(int32_t));
  }
}

// Where the bags of `rows` start, once they stand one after the other; (count + 1,).
__attribute__((visibility("default"))) void sparrow_feed_take_offsets(const int64_t* offsets, const int64_t* rows,
                                                                      int64_t count, int64_t* out) {
  out[0] = 0;
  for (int64_t i = 0; i < count; ++i) out[i + 1] = out[i] + offsets[rows[i] + 1] - offsets[rows[i]];
}

// The bags of `rows`; `weights` and `out_weights` may be null.
__attribute__((visibility("default"))) void sparrow_feed_take_bags(const int32_t* values, const float* weights,
                                                                   const int64_t* offsets, const int64_t* rows,
                                                                   int64_t count, int32_t* out, float* out_weights) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t start = offsets[rows[i]], length = offsets[rows[i] + 1] - start;
    for (int64_t k = 0; k < length; ++k) out[k] = values[start + k];
    out += length;
    if (weights == nullptr) continue;
    for (int64_t k = 0; k < length; ++k) out_weights[k] = weights[start + k];
    out_weights += length;
  }
}

}  // extern "C"
