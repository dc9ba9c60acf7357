// From the ids of each feature to the lookups of one stack: bag b * features + i is feature i of example b.
#include <cstdint>

#include "gains.h"

namespace sparrow {

extern "C" {

// The ids of one feature. Mirrored by sparrow/kernels/feed/packing.py: every field has 8 bytes.
struct Given {
  const void* ids;
  int64_t is_wide;         // 64 bits, else 32
  int64_t stride;          // from one id to the next, in ids
  const int64_t* offsets;  // the offsets of bags; null: one id each
  const float* weights;    // or null
  int64_t start;           // the first row of its table in the stack
  int64_t limit;           // rows of its table
  int64_t ignores;         // whether ids outside it are ignored; if not, they are an error
  int64_t combiner;
};

}  // extern "C"

namespace {

inline int64_t id_at(const Given& given, int64_t i) {
  return given.is_wide ? static_cast<const int64_t*>(given.ids)[i * given.stride]
                       : static_cast<const int32_t*>(given.ids)[i * given.stride];
}

// The row in the stack; `spare` for an id that is ignored. `is_out` is set for any id outside the table.
inline int32_t row_of(const Given& given, int64_t id, int64_t spare, bool& is_out) {
  const bool is_in = static_cast<uint64_t>(id) < static_cast<uint64_t>(given.limit);
  is_out |= !is_in;
  return static_cast<int32_t>(is_in ? id + given.start : spare);
}

}  // namespace
}  // namespace sparrow

extern "C" {

// One id per bag. False: an id is outside its table, and that is an error.
__attribute__((visibility("default"))) int64_t sparrow_feed_pack_single(const sparrow::Given* given, int64_t features,
                                                                        int64_t examples, int64_t spare,
                                                                        int32_t* ids) {
  constexpr int64_t BLOCK = 64;  // examples that stay in the cache while one feature after the other is written
  for (int64_t begin = 0; begin < examples; begin += BLOCK) {
    const int64_t end = begin + BLOCK < examples ? begin + BLOCK : examples;
    for (int64_t f = 0; f < features; ++f) {
      const sparrow::Given& own = given[f];
      int32_t* out = ids + f;
      bool is_out = false;
      if (own.is_wide) {
        const int64_t* from = static_cast<const int64_t*>(own.ids);
        for (int64_t b = begin; b < end; ++b) {
          out[b * features] = sparrow::row_of(own, from[b * own.stride], spare, is_out);
        }
      } else {
        const int32_t* from = static_cast<const int32_t*>(own.ids);
        for (int64_t b = begin; b < end; ++b) {
          out[b * features] = sparrow::row_of(own, from[b * own.stride], spare, is_out);
        }
      }
      if (is_out && !own.ignores) return 0;
    }
  }
  return 1;
}

// Bags of any length. Entries are written from `entry` on, bags from `bag` on, offsets[bag] is theirs. `gains` may be
// null. Negative: something is wrong that the reference must look at; else the entries written in all.
__attribute__((visibility("default"))) int64_t sparrow_feed_pack_bags(const sparrow::Given* given, int64_t features,
                                                                      int64_t examples, int64_t spare, int64_t entry,
                                                                      int64_t bag, int64_t capacity, int32_t* ids,
                                                                      int32_t* bags, int32_t* offsets, float* gains) {
  bool is_wrong = false;
  offsets[bag] = static_cast<int32_t>(entry);
  for (int64_t b = 0; b < examples; ++b) {
    for (int64_t f = 0; f < features; ++f) {
      const sparrow::Given& own = given[f];
      const int64_t begin = own.offsets == nullptr ? b : own.offsets[b];
      const int64_t length = own.offsets == nullptr ? 1 : own.offsets[b + 1] - begin;
      if (length < 0 || entry + length > capacity) return -1;
      bool is_out = false;
      for (int64_t k = 0; k < length; ++k) {
        ids[entry + k] = sparrow::row_of(own, sparrow::id_at(own, begin + k), spare, is_out);
        bags[entry + k] = static_cast<int32_t>(bag);
      }
      is_wrong |= is_out && !own.ignores;
      if (gains != nullptr) {
        // A bag of one id has no combiner: its gain is its weight.
        const int64_t combiner = own.offsets == nullptr ? sparrow::SUM : own.combiner;
        const float* weights = own.weights == nullptr ? nullptr : own.weights + begin;
        is_wrong |= !sparrow::put_gains(combiner, own.limit, length, weights, gains + entry,
                                        [&](int64_t k) { return sparrow::id_at(own, begin + k); });
      }
      entry += length;
      offsets[++bag] = static_cast<int32_t>(entry);
    }
  }
  return is_wrong ? -1 : entry;
}

}  // extern "C"
