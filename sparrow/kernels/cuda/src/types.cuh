// Names for types, and 16-bit floats. Compiled by NVRTC, which has no standard headers; by g++ in the tests' emulation.
#ifdef SPARROW_EMULATED
#include "emulated.h"
#else
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#define __builtin_inff() __int_as_float(0x7f800000)
#define __builtin_nanf(x) __int_as_float(0x7fc00000)
#define __builtin_inf() __longlong_as_double(0x7ff0000000000000ll)
#define __builtin_nan(x) __longlong_as_double(0x7ff8000000000000ll)
#endif
typedef uint32_t u32;
typedef uint64_t u64;
#define DEVICE static __device__ __forceinline__
#define MEMBER __device__ __forceinline__

constexpr u32 FULL = 0xffffffffu;
constexpr u32 NONE = 0xffffffffu;  // no row

DEVICE u32 lanes_below(u32 lane) { return (1u << lane) - 1; }

// The sum of x over this lane and those before it in the warp.
DEVICE u32 sum_through(u32 x) {
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const u32 before = __shfl_up_sync(FULL, x, d);
    if (threadIdx.x % 32 >= d) x += before;
  }
  return x;
}

template <class To, class From>
DEVICE To bit_cast(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "bit_cast keeps the size");
  union {
    From from;
    To to;
  } both;
  both.from = from;
  return both.to;
}

DEVICE float from_bfloat16(uint16_t bits) { return bit_cast<float>(u32(bits) << 16); }
#ifdef SPARROW_EMULATED
DEVICE float exp2_fast(float x) { return exp2f(x); }
DEVICE float reciprocal_fast(float x) { return 1.f / x; }
DEVICE u32 pack(float low, float high) { return to_bfloat16(low) | u32(to_bfloat16(high)) << 16; }
#else
// Right to some 2^-22.
DEVICE float exp2_fast(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
DEVICE float reciprocal_fast(float x) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
// Two numbers in bfloat16.
DEVICE u32 pack(float low, float high) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
// To the nearest, ties to even.
DEVICE uint16_t to_bfloat16(float x) {
  uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}
DEVICE float from_float16(uint16_t bits) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
}
DEVICE uint16_t to_float16(float x) {
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}
#endif

// How an array keeps its numbers: 0 float32, 1 bfloat16, 2 float16.
template <int TYPE>
struct Kept;
template <>
struct Kept<0> {
  typedef float T;
  static MEMBER float get(float x) { return x; }
  static MEMBER float put(float x) { return x; }
};
template <>
struct Kept<1> {
  typedef uint16_t T;
  static MEMBER float get(uint16_t x) { return from_bfloat16(x); }
  static MEMBER uint16_t put(float x) { return to_bfloat16(x); }
};
template <>
struct Kept<2> {
  typedef uint16_t T;
  static MEMBER float get(uint16_t x) { return from_float16(x); }
  static MEMBER uint16_t put(float x) { return to_float16(x); }
};
