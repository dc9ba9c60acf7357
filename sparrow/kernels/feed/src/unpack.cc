// The loops over bit-packed integers.
#include "unpack.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "versions.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define SPARROW_AVX2 1
#endif

namespace sparrow {
namespace {

using Unpack = void (*)(const uint8_t*, int64_t, int32_t*);
constexpr int WIDTHS = 33;

template <int Width>
void unpack_plainly(const uint8_t* in, int64_t groups, int32_t* out) {
  constexpr uint64_t MASK = (uint64_t{1} << Width) - 1;
  for (int64_t group = 0; group < groups; ++group, in += Width, out += 8) {
    for (int i = 0; i < 8; ++i) {
      uint64_t word;
      std::memcpy(&word, in + i * Width / 8, 8);
      out[i] = static_cast<int32_t>(word >> (i * Width % 8) & MASK);
    }
  }
}

#if SPARROW_AVX2
constexpr int WIDEST = 25;  // bits of an integer that four bytes hold, wherever in the first of them it begins

// Four integers come from each half of a register: which bytes, and by how many bits they are shifted.
template <int Width>
struct Places {
  static constexpr int SECOND = 4 * Width / 8;  // the first byte of the second half

  constexpr Places() : bytes(), shifts() {
    for (int i = 0; i < 8; ++i) {
      const int bit = i < 4 ? i * Width : i * Width - SECOND * 8;
      for (int k = 0; k < 4; ++k) bytes[i * 4 + k] = static_cast<int8_t>(bit / 8 + k);
      shifts[i] = bit % 8;
    }
  }

  alignas(32) int8_t bytes[32];
  alignas(32) int32_t shifts[8];
};

template <int Width>
__attribute__((target("avx2"))) void unpack_by_avx2(const uint8_t* in, int64_t groups, int32_t* out) {
  static constexpr Places<Width> PLACES;
  const __m256i bytes = _mm256_load_si256(reinterpret_cast<const __m256i*>(PLACES.bytes));
  const __m256i shifts = _mm256_load_si256(reinterpret_cast<const __m256i*>(PLACES.shifts));
  const __m256i mask = _mm256_set1_epi32((1 << Width) - 1);
  for (int64_t group = 0; group < groups; ++group, in += Width, out += 8) {
    const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in));
    const __m128i second = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + Places<Width>::SECOND));
    const __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1);
    const __m256i shifted = _mm256_srlv_epi32(_mm256_shuffle_epi8(both, bytes), shifts);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_and_si256(shifted, mask));
  }
}

template <int Width>
constexpr Unpack by_avx2() {
  if constexpr (Width > 0 && Width <= WIDEST) {
    return unpack_by_avx2<Width>;
  } else {
    return unpack_plainly<Width>;
  }
}
#endif

template <int... Widths>
std::array<Unpack, WIDTHS> chosen(std::integer_sequence<int, Widths...>) {
#if SPARROW_AVX2
  if (__builtin_cpu_supports("avx2")) return {by_avx2<Widths>()...};
#endif
  return {unpack_plainly<Widths>...};
}

}  // namespace

void unpack(int width, const uint8_t* in, int64_t groups, int32_t* out) {
  static const std::array<Unpack, WIDTHS> UNPACK = chosen(std::make_integer_sequence<int, WIDTHS>());
  UNPACK[width](in, groups, out);
}

SPARROW_VERSIONS uint32_t largest(const int32_t* values, int64_t count) {
  uint32_t found = 0;
  for (int64_t i = 0; i < count; ++i) found = std::max(found, static_cast<uint32_t>(values[i]));
  return found;
}

}  // namespace sparrow
