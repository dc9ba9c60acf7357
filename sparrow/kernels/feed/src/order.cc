// The order of a window's rows, and rows and their bags in that order.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>
#include <vector>

#include "hash.h"

extern "C" {

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
    // Kept by the thread for its next window.
    thread_local std::vector<int64_t> starts, next;
    thread_local std::vector<uint64_t> hashes;
    thread_local std::vector<Counter> sorted;
    starts.assign((size_t{1} << bits) + 1, 0);
    hashes.resize(count);
    sorted.resize(count);
    for (int64_t i = 0; i < count; ++i) {
      hashes[i] = sparrow::mix64(static_cast<uint64_t>(i) ^ key);
      ++starts[(hashes[i] >> (64 - bits)) + 1];
    }
    for (size_t bucket = 1; bucket < starts.size(); ++bucket) starts[bucket] += starts[bucket - 1];
    next.assign(starts.begin(), starts.end() - 1);
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

// The tails of `rows`, one after the other; `out` has room for them: starts[rows[i] + 1] - starts[rows[i]] words each.
__attribute__((visibility("default"))) void sparrow_feed_take_tails(const int32_t* tail, const int64_t* starts,
                                                                    const int64_t* rows, int64_t count, int32_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    if (i + 4 < count) __builtin_prefetch(tail + starts[rows[i + 4]]);
    const int64_t length = starts[rows[i] + 1] - starts[rows[i]];
    std::memcpy(out, tail + starts[rows[i]], length * sizeof(int32_t));
    out += length;
  }
}

// The bags of one column out of rows and tails. `columns`: for each column of bags up to this one, the word of its length
// and whether it has weights. `ids` and `weights` (or null) have room for all of them.
__attribute__((visibility("default"))) void sparrow_feed_bags(const int32_t* words, int64_t width, const int32_t* tail,
                                                              const int64_t* starts, int64_t rows,
                                                              const int64_t* columns, int64_t before, int32_t* ids,
                                                              int32_t* weights) {
  for (int64_t row = 0; row < rows; ++row) {
    const int32_t* own = words + row * width;
    const int32_t* from = tail + starts[row];
    for (int64_t i = 0; i < before; ++i) from += static_cast<int64_t>(own[columns[2 * i]]) << columns[2 * i + 1];
    const int64_t length = own[columns[2 * before]];
    std::memcpy(ids, from, length * sizeof(int32_t));
    ids += length;
    if (weights == nullptr) continue;
    std::memcpy(weights, from + length, length * sizeof(int32_t));
    weights += length;
  }
}

}  // extern "C"
