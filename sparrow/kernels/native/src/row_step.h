// Functions for generated row steps, and the call of a row step by the update kernel. The generated code is in no file of this
// repository: translate.py writes it from the rule's equation.
#pragma once

#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "half.h"

namespace sparrow {

namespace math = std;  // generated code calls math::sqrt and its like

// One touched row. All of it is updated in place.
struct RowArguments {
  void* row;             // (dim,) of the table's dtype
  const float* grad;     // (dim,) the row's summed gradient
  float* const* slots;   // each slot's part of this row: (dim,) numbers or one
  const float* scalars;  // the hyper-parameters of the row's table
  uint32_t seed;         // for stochastic rounding
  int32_t index;         // the row's number within its table
  int32_t dim;
  float* scratch;  // (buffers, stride) numbers that one pass over the row leaves for the next
};

using RowStep = void (*)(const RowArguments&);

// Buffers begin on cache lines.
inline int64_t scratch_stride(int32_t dim) { return (static_cast<int64_t>(dim) + 15) / 16 * 16; }

// The number of partial sums or products over a row.
constexpr int64_t kParts = 16;

template <class T>
inline T sum_parts(const T (&parts)[kParts]) {
  T sums[kParts / 2];
  for (int64_t k = 0; k < kParts / 2; ++k) sums[k] = parts[k] + parts[k + kParts / 2];
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

template <class T>
inline T product_parts(const T (&parts)[kParts]) {
  T product = parts[0];
  for (int64_t k = 1; k < kParts; ++k) product *= parts[k];
  return product;
}

// XLA's meaning of operations that C++ leaves open, or defines otherwise.

// NaN in, NaN out.
template <class T>
inline T maximum(T a, T b) {
  return a > b || a != a ? a : b;
}
template <class T>
inline T minimum(T a, T b) {
  return a < b || a != a ? a : b;
}

// Zeros and NaN stay as they are.
template <class T>
inline T sign(T x) {
  return x > T(0) ? T(1) : x < T(0) ? T(-1) : x;
}

inline bool is_finite(float x) { return std::fabs(x) <= FLT_MAX; }
inline bool is_finite(double x) { return std::fabs(x) <= DBL_MAX; }

// Shifts by the width or more give zeros, or the sign.
template <class T>
inline T shift_left(T x, T by) {
  using U = std::make_unsigned_t<T>;
  return static_cast<U>(by) < sizeof(T) * 8 ? static_cast<T>(static_cast<U>(x) << by) : T(0);
}
template <class T>
inline T shift_right_logical(T x, T by) {
  using U = std::make_unsigned_t<T>;
  return static_cast<U>(by) < sizeof(T) * 8 ? static_cast<T>(static_cast<U>(x) >> by) : T(0);
}
template <class T>
inline T shift_right_arithmetic(T x, T by) {
  using U = std::make_unsigned_t<T>;
  using S = std::make_signed_t<T>;
  const T last = sizeof(T) * 8 - 1;
  return static_cast<T>(static_cast<S>(x) >> (static_cast<U>(by) < static_cast<U>(last) ? by : last));
}

// Floating point to integer: NaN gives 0, numbers out of range the nearest end.
template <class To, class From>
inline To to_integer(From x) {
  constexpr To low = std::is_signed_v<To> ? static_cast<To>(To(1) << (sizeof(To) * 8 - 1)) : To(0);
  constexpr To high = static_cast<To>(~low);
  if (x != x) return To(0);
  if (x <= static_cast<From>(low)) return low;
  if (x >= static_cast<From>(high)) return high;
  return static_cast<To>(x);
}

}  // namespace sparrow
