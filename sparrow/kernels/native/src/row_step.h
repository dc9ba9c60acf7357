// Functions for generated row steps, and the call of a row step by the update kernel. The generated code is in no file of this
// repository: translate.py writes it from the rule's equation.
#pragma once

#include <cmath>
#include <cstdint>

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

#define DEVICE inline
#define MEMBER
#include "operations.h"

}  // namespace sparrow
