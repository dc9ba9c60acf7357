// Keys of a batch as small numbers.
#include <cstdint>
#include <new>
#include <vector>

extern "C" {

// The place of each key among the distinct keys in ascending order. 0: out of memory.
// Sorts by one byte after the other, and skips the bytes that all keys share.
__attribute__((visibility("default"))) int64_t sparrow_feed_numbered(const int64_t* keys, int64_t count, int32_t* out) {
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

}  // extern "C"
