// The order of a window's rows, rows and their bags in that order, and keys of a batch as small numbers.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>
#include <vector>

#include "hash.h"
#include "versions.h"

namespace sparrow {
namespace {

SPARROW_VERSIONS void hash_counters(int64_t begin, int64_t count, uint64_t key, uint64_t* hashes) {
  for (int64_t i = 0; i < count; ++i) hashes[i] = mix64(static_cast<uint64_t>(begin + i) ^ key);
}

SPARROW_VERSIONS void counters_of(const uint64_t* hashes, int64_t count, uint64_t key, int64_t* counters) {
  for (int64_t i = 0; i < count; ++i) counters[i] = static_cast<int64_t>(unmix64(hashes[i]) ^ key);
}

}  // namespace
}  // namespace sparrow

// The order of hashed counters: a permutation of [0, count) that `key` alone decides. 0: out of memory, or too many.
// Hashes are even: they go to buckets by their leading bits, which hold one each on average, and then to their places.
// No two are the same, and each tells its counter: nothing but hashes is moved.
SPARROW_API int64_t sparrow_feed_shuffled(int64_t count, uint64_t key, int64_t* order) {
  using namespace sparrow;
  constexpr int64_t PART = 512;  // hashes that are made at a time
  if (count >= int64_t{1} << 32) return 0;
  try {
    int bits = 1;
    while ((int64_t{1} << bits) < count) ++bits;
    const int shift = 64 - bits;
    // Kept by the thread for its next window.
    thread_local std::vector<uint32_t> next;
    thread_local std::vector<uint64_t> sorted;
    next.assign((size_t{1} << bits) + 1, 0);
    sorted.resize(count);
    uint64_t part[PART];
    for (int64_t begin = 0; begin < count; begin += PART) {
      const int64_t own = std::min(PART, count - begin);
      hash_counters(begin, own, key, part);
      for (int64_t i = 0; i < own; ++i) ++next[(part[i] >> shift) + 1];
    }
    for (size_t bucket = 1; bucket < next.size(); ++bucket) next[bucket] += next[bucket - 1];
    for (int64_t begin = 0; begin < count; begin += PART) {
      const int64_t own = std::min(PART, count - begin);
      hash_counters(begin, own, key, part);
      for (int64_t i = 0; i < own; ++i) sorted[next[part[i] >> shift]++] = part[i];
    }
    for (int64_t i = 1; i < count; ++i) {  // insertion: only hashes of one bucket pass each other
      const uint64_t hash = sorted[i];
      int64_t to = i;
      for (; to > 0 && sorted[to - 1] > hash; --to) sorted[to] = sorted[to - 1];
      sorted[to] = hash;
    }
    counters_of(sorted.data(), count, key, order);
    return 1;
  } catch (const std::bad_alloc&) {
    return 0;
  }
}

// The tails of `rows`, one after the other; `out` has space for them: starts[rows[i] + 1] - starts[rows[i]] words each.
SPARROW_API void sparrow_feed_take_tails(const int32_t* tail, const int64_t* starts, const int64_t* rows, int64_t count,
                                         int32_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    if (i + 4 < count) __builtin_prefetch(tail + starts[rows[i + 4]]);
    const int64_t length = starts[rows[i] + 1] - starts[rows[i]];
    std::memcpy(out, tail + starts[rows[i]], length * sizeof(int32_t));
    out += length;
  }
}

// The bags of one column out of rows and tails. `columns`: for each column of bags up to this one, the word of its length,
// the words of an id with its weight, and whether it has weights. `ids` and `weights` (or null) have space for all of them.
SPARROW_API void sparrow_feed_bags(const int32_t* words, int64_t width, const int32_t* tail, const int64_t* starts,
                                   int64_t rows, const int64_t* columns, int64_t before, int32_t* ids,
                                   int32_t* weights) {
  for (int64_t row = 0; row < rows; ++row) {
    const int32_t* own = words + row * width;
    const int32_t* from = tail + starts[row];
    for (int64_t i = 0; i < before; ++i) from += own[columns[3 * i]] * columns[3 * i + 1];
    const int64_t length = own[columns[3 * before]];
    const int64_t count = length * (columns[3 * before + 1] - columns[3 * before + 2]);  // words of ids
    std::memcpy(ids, from, count * sizeof(int32_t));
    ids += count;
    if (weights == nullptr) continue;
    std::memcpy(weights, from + count, length * sizeof(int32_t));
    weights += length;
  }
}

// The place of each key among the distinct keys in ascending order. 0: out of memory.
// Sorts by one byte after the other, and skips the bytes that all keys share.
SPARROW_API int64_t sparrow_feed_numbered(const int64_t* keys, int64_t count, int32_t* out) {
  struct Entry {
    uint64_t key;
    int64_t place;
  };
  constexpr uint64_t SIGN = uint64_t{1} << 63;  // flipped, so that negative keys come first
  try {
    thread_local std::vector<Entry> entries, sorted;  // kept by the thread for its next batch
    entries.resize(count);
    sorted.resize(count);
    uint64_t varies = 0;
    for (int64_t i = 0; i < count; ++i) {
      entries[i] = {static_cast<uint64_t>(keys[i]) ^ SIGN, i};
      varies |= entries[i].key ^ entries[0].key;
    }
    for (int shift = 0; shift < 64; shift += 8) {
      if ((varies >> shift & 255) == 0) continue;
      int64_t starts[257] = {};
      for (const Entry& entry : entries) ++starts[(entry.key >> shift & 255) + 1];
      for (int byte = 0; byte < 256; ++byte) starts[byte + 1] += starts[byte];
      for (const Entry& entry : entries) sorted[starts[entry.key >> shift & 255]++] = entry;
      entries.swap(sorted);
    }
    int32_t number = 0;
    for (int64_t i = 0; i < count; ++i) {
      number += i > 0 && entries[i].key != entries[i - 1].key;
      out[entries[i].place] = number;
    }
    return 1;
  } catch (const std::bad_alloc&) {
    return 0;
  }
}
