// Small dense products and elementwise functions, written so that the compiler makes vectors of them.
#pragma once

#include <cstdint>
#include <cstring>

namespace sparrow {

#ifdef __AVX512F__
constexpr int kVector = 16, kRows = 8;  // 16 sums of 16 numbers stay in registers
#else
constexpr int kVector = 8, kRows = 4;
#endif
constexpr int64_t kPanel = 2 * kVector;  // columns that are summed at once
typedef float Vector __attribute__((vector_size(kVector * sizeof(float)), aligned(4), may_alias));

inline int64_t round_up(int64_t count, int64_t to) { return (count + to - 1) / to * to; }

// c (m, n) = or += a (m, k) b (k, n). Element (i, l) of a is at a[i * row + l * column]; b and c have rows of ldb and ldc
// elements. m is a multiple of kRows, n of kPanel.
template <bool kAdd>
inline void product(float* c, int64_t ldc, const float* a, int64_t row, int64_t column, const float* b, int64_t ldb, int64_t m,
                    int64_t n, int64_t k) {
  for (int64_t j = 0; j < n; j += kPanel) {
    for (int64_t i = 0; i < m; i += kRows) {
      Vector sum[kRows][2];
      for (int r = 0; r < kRows; ++r) {
        for (int h = 0; h < 2; ++h) {
          sum[r][h] = kAdd ? *reinterpret_cast<const Vector*>(c + (i + r) * ldc + j + h * kVector) : Vector{};
        }
      }
      const float* left = a + i * row;
      for (int64_t l = 0; l < k; ++l) {
        const Vector b0 = *reinterpret_cast<const Vector*>(b + l * ldb + j);
        const Vector b1 = *reinterpret_cast<const Vector*>(b + l * ldb + j + kVector);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          const float x = left[r * row + l * column];
          sum[r][0] += x * b0;
          sum[r][1] += x * b1;
        }
      }
      for (int r = 0; r < kRows; ++r) {
        for (int h = 0; h < 2; ++h) *reinterpret_cast<Vector*>(c + (i + r) * ldc + j + h * kVector) = sum[r][h];
      }
    }
  }
}

// e^x within 2 units of the last place from -87 to 88; flat beyond.
inline float fast_exp(float x) {
  x = x < -87.3f ? -87.3f : x > 88.3f ? 88.3f : x;
  const float whole = (x * 1.44269504f + 12582912.f) - 12582912.f;  // rounded to an integer
  const float r = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const float fraction = p * r * r + r + 1.f;
  const int32_t power = (static_cast<int32_t>(whole) + 127) << 23;
  float two;
  std::memcpy(&two, &power, sizeof two);
  return fraction * two;
}

inline float sigmoid(float x) { return 1.f / (1.f + fast_exp(-x)); }

}  // namespace sparrow
