// 16-bit floats by integer arithmetic alone: the same bits on every machine, and loops that compilers vectorize.
// Right also where denormal numbers are flushed to zero.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace sparrow {

template <class To, class From>
inline To bit_cast(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "bit_cast keeps the size");
  To to;
  std::memcpy(&to, &from, sizeof(To));
  return to;
}

inline float from_bfloat16(uint16_t bits) { return bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// To the nearest, ties to even.
inline uint16_t to_bfloat16(float x) {
  const uint32_t bits = bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t quiet_nan = (bits >> 16) | 0x40u;
  return static_cast<uint16_t>((bits & 0x7FFFFFFFu) > 0x7F800000u ? quiet_nan : rounded);
}

inline float from_float16(uint16_t bits) {
  const uint32_t magnitude = bits & 0x7FFFu;
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t normal = (magnitude << 13) + (112u << 23);
  const uint32_t infinite = (magnitude << 13) | 0x7F800000u;
  const float subnormal = static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f;
  const uint32_t finite = magnitude < 0x400u ? bit_cast<uint32_t>(subnormal) : normal;
  return bit_cast<float>(sign | (magnitude >= 0x7C00u ? infinite : finite));
}

// To the nearest, ties to even; too large becomes infinite.
inline uint16_t to_float16(float x) {
  const uint32_t bits = bit_cast<uint32_t>(x);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  const uint32_t normal = (magnitude - (112u << 23) + 0xFFFu + ((magnitude >> 13) & 1u)) >> 13;
  // Adding 1/2 leaves the multiple of 2**-24 in the lowest bits, rounded by the addition itself.
  const uint32_t subnormal = bit_cast<uint32_t>(bit_cast<float>(magnitude) + 0.5f) - (126u << 23);
  const uint32_t special = magnitude > 0x7F800000u ? 0x7E00u | ((magnitude >> 13) & 0x3FFu) : 0x7C00u;
  const uint32_t finite = magnitude < (113u << 23) ? subnormal : normal;
  return static_cast<uint16_t>(sign | (magnitude >= (143u << 23) ? special : finite));
}

// How a table keeps its numbers.
struct Float32 {
  using Storage = float;
  static float load(float x) { return x; }
};
struct Bfloat16 {
  using Storage = uint16_t;
  static float load(uint16_t bits) { return from_bfloat16(bits); }
};
struct Float16 {
  using Storage = uint16_t;
  static float load(uint16_t bits) { return from_float16(bits); }
};

}  // namespace sparrow
