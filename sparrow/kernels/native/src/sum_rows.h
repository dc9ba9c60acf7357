// The sum of many rows: of a bag's rows in a lookup, and of a row's gradients in an update.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "half.h"

namespace sparrow {

// Eight numbers at once, in the registers that the processor has.
constexpr int32_t kLanes = 8;
typedef float Lanes __attribute__((vector_size(kLanes * sizeof(float))));

template <class Type>
inline __attribute__((always_inline)) void load_lanes(const typename Type::Storage* from, Lanes* to) {
  if constexpr (sizeof(typename Type::Storage) == sizeof(float)) {
    std::memcpy(to, from, sizeof(Lanes));
  } else {
    float numbers[kLanes];
    for (int32_t lane = 0; lane < kLanes; ++lane) numbers[lane] = Type::load(from[lane]);
    std::memcpy(to, numbers, sizeof(Lanes));
  }
}

// The store of a sum. `kPastCache`: straight to memory, so that the processor need not read the overwritten lines; `to` is
// then on a 16-byte boundary, and `finish_stores` must come before another thread may read.
enum class Store { kUsual, kPastCache };

template <Store kStore>
inline __attribute__((always_inline)) void store_lanes(const Lanes& from, float* to) {
#if defined(__x86_64__)
  if constexpr (kStore == Store::kPastCache) {
    __m128 halves[2];
    std::memcpy(halves, &from, sizeof(Lanes));
    _mm_stream_ps(to, halves[0]);
    _mm_stream_ps(to + kLanes / 2, halves[1]);
    return;
  }
#endif
  std::memcpy(to, &from, sizeof(Lanes));
}

template <Store kStore>
inline void finish_stores() {
#if defined(__x86_64__)
  if constexpr (kStore == Store::kPastCache) _mm_sfence();
#endif
}

template <class Source>
inline __attribute__((always_inline)) const auto* fetch_row(const Source& source, int64_t i, int32_t column) {
  if (column == 0) source.fetch_ahead(i);
  return source.row(i);
}

// kCount * 8 columns from `column` on, kept in registers while the rows go by. The first row is taken as it is, not
// added to zero: a lookup of one row gives its bits.
template <int kCount, class Type, Store kStore, class Source>
inline void sum_columns(const Source& source, int64_t begin, int64_t end, int32_t column, float* out) {
  Lanes sums[kCount];
#pragma GCC unroll 8
  for (int k = 0; k < kCount; ++k) sums[k] = Lanes{};
  int64_t i = begin;
  for (bool found = false; i < end && !found; ++i) {
    const typename Type::Storage* row = fetch_row(source, i, column);
    if (row == nullptr) continue;
    found = true;
    const float gain = Source::kGains ? source.gain(i) : 1.0f;
#pragma GCC unroll 8
    for (int k = 0; k < kCount; ++k) {
      load_lanes<Type>(row + column + k * kLanes, &sums[k]);
      if constexpr (Source::kGains) sums[k] = gain * sums[k];
    }
  }
  for (; i < end; ++i) {
    const typename Type::Storage* row = fetch_row(source, i, column);
    if (row == nullptr) continue;
    const float gain = Source::kGains ? source.gain(i) : 1.0f;
#pragma GCC unroll 8
    for (int k = 0; k < kCount; ++k) {
      Lanes numbers;
      load_lanes<Type>(row + column + k * kLanes, &numbers);
      if constexpr (Source::kGains) numbers = gain * numbers;
      sums[k] += numbers;
    }
  }
#pragma GCC unroll 8
  for (int k = 0; k < kCount; ++k) store_lanes<kStore>(sums[k], out + column + k * kLanes);
}

// One column, where there are fewer than eight.
template <class Type, class Source>
inline void sum_column(const Source& source, int64_t begin, int64_t end, int32_t column, float* out) {
  float sum = 0.0f;
  bool first = true;
  for (int64_t i = begin; i < end; ++i) {
    const typename Type::Storage* row = fetch_row(source, i, column);
    if (row == nullptr) continue;
    const float number = Source::kGains ? source.gain(i) * Type::load(row[column]) : Type::load(row[column]);
    sum = first ? number : sum + number;
    first = false;
  }
  out[column] = sum;
}

// out = the sum of rows [begin, end) of `source`, times their gains, added in that order in every column.
//
// A source has `kGains`, `row(i)` (null: no such row), `gain(i)`, and `fetch_ahead(i)`, called once for each i.
template <class Type, Store kStore = Store::kUsual, class Source>
inline void sum_rows(const Source& source, int64_t begin, int64_t end, int32_t dim, float* out) {
  int32_t column = 0;
  for (; dim - column >= 64; column += 64) sum_columns<8, Type, kStore>(source, begin, end, column, out);
  if (dim - column >= 32) sum_columns<4, Type, kStore>(source, begin, end, column, out), column += 32;
  if (dim - column >= 16) sum_columns<2, Type, kStore>(source, begin, end, column, out), column += 16;
  if (dim - column >= 8) sum_columns<1, Type, kStore>(source, begin, end, column, out), column += 8;
  if (column == dim) return;
  if (dim >= 8) {
    sum_columns<1, Type, kStore>(source, begin, end, dim - 8, out);  // some columns once more: the same numbers again
  } else {
    for (; column < dim; ++column) sum_column<Type>(source, begin, end, column, out);
  }
}

}  // namespace sparrow
