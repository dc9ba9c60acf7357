// From the ids of each feature to the lookups of one stack: bag b * features + i is feature i of example b.
#include <cmath>
#include <cstdint>

namespace sparrow {
namespace {

enum Combiner : int64_t { SUM, MEAN, SQRTN };

}  // namespace

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

// False: the weights are not finite.
bool put_gains(const Given& given, int64_t begin, int64_t length, float* gains) {
  const float* weights = given.weights == nullptr ? nullptr : given.weights + begin;
  double total = 0;
  for (int64_t k = 0; k < length; ++k) {
    const int64_t id = id_at(given, begin + k);
    const bool is_in = static_cast<uint64_t>(id) < static_cast<uint64_t>(given.limit);
    float weight = weights == nullptr ? 1.0f : weights[k];
    if (!std::isfinite(weight)) return false;
    if (given.combiner != SUM) weight *= is_in ? 1.0f : 0.0f;
    const double exact = weight;
    const volatile double summand = given.combiner == SQRTN ? exact * exact : exact;  // rounded, as the reference does
    total += summand;
    gains[k] = weight;
  }
  if (given.combiner == SUM) return true;
  const double divisor = given.combiner == MEAN ? total : std::sqrt(total);
  const double factor = divisor != 0 ? 1.0 / divisor : 0.0;
  for (int64_t k = 0; k < length; ++k) gains[k] = static_cast<float>(static_cast<double>(gains[k]) * factor);
  return true;
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

// The same from rows of words: `ids` of a feature is the distance of its first id from `base`, in bytes.
__attribute__((visibility("default"))) int64_t sparrow_feed_pack_rows(const sparrow::Given* given, int64_t features,
                                                                      int64_t examples, int64_t spare,
                                                                      const char* base, int32_t* ids) {
  constexpr int64_t BLOCK = 64;
  for (int64_t begin = 0; begin < examples; begin += BLOCK) {
    const int64_t end = begin + BLOCK < examples ? begin + BLOCK : examples;
    for (int64_t f = 0; f < features; ++f) {
      const sparrow::Given own = given[f];
      const int32_t* from = reinterpret_cast<const int32_t*>(base + reinterpret_cast<int64_t>(own.ids));
      int32_t* out = ids + f;
      bool is_out = false;
      for (int64_t b = begin; b < end; ++b) {
        out[b * features] = sparrow::row_of(own, from[b * own.stride], spare, is_out);
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
        sparrow::Given plain = own;
        if (own.offsets == nullptr) plain.combiner = sparrow::SUM;
        is_wrong |= !sparrow::put_gains(plain, begin, length, gains + entry);
      }
      entry += length;
      offsets[++bag] = static_cast<int32_t>(entry);
    }
  }
  return is_wrong ? -1 : entry;
}

}  // extern "C"
