// The part of CUDA that the kernels use, for g++: a thread is a fiber of driver.cc, collectives wait for all lanes of their
// mask, blocks run one after the other. Finds errors of logic, no races.
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

#define __global__
#define __device__
#define __forceinline__ inline
#define __restrict__
#define __shared__ static
#define __launch_bounds__(...)

struct float4 {
  float x, y, z, w;
};
struct int4 {
  int x, y, z, w;
};
struct uint4 {
  unsigned x, y, z, w;
};
static inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }

extern "C" {
struct EmulatedDim {
  unsigned x, y, z;
};
extern EmulatedDim emulated_grid, emulated_block_index;
unsigned emulated_thread();
// All lanes of `mask` leave a value; the values of all lanes.
const uint64_t* emulated_exchange(unsigned mask, uint64_t x);
int emulated_barrier_or(int x);
}
#define gridDim emulated_grid
#define blockIdx emulated_block_index
struct EmulatedThreadIndex {
  struct {
    operator unsigned() const { return emulated_thread(); }
  } x;
};
static EmulatedThreadIndex threadIdx;

static inline unsigned emulated_lane() { return emulated_thread() % 32; }
template <class T>
static inline uint64_t emulated_bits(T x) {
  uint64_t bits = 0;
  memcpy(&bits, &x, sizeof x);
  return bits;
}
template <class T>
static inline T emulated_value(uint64_t bits) {
  T x;
  memcpy(&x, &bits, sizeof x);
  return x;
}
static inline void __syncthreads() { emulated_barrier_or(0); }
static inline void __syncwarp(unsigned mask = 0xffffffffu) { emulated_exchange(mask, 0); }
static inline unsigned __ballot_sync(unsigned mask, bool p) {
  const uint64_t* values = emulated_exchange(mask, p);
  unsigned result = 0;
  for (int i = 0; i < 32; ++i) result |= (mask >> i & 1 && values[i]) ? 1u << i : 0;
  return result;
}
static inline bool __all_sync(unsigned mask, bool p) { return __ballot_sync(mask, p) == mask; }
template <class T>
static inline T __shfl_sync(unsigned mask, T x, int from, int width = 32) {
  return emulated_value<T>(emulated_exchange(mask, emulated_bits(x))[emulated_lane() / width * width + from % width]);
}
template <class T>
static inline T __shfl_up_sync(unsigned mask, T x, unsigned d) {
  const uint64_t* values = emulated_exchange(mask, emulated_bits(x));
  return emulated_lane() >= d ? emulated_value<T>(values[emulated_lane() - d]) : x;
}
template <class T>
static inline T __shfl_xor_sync(unsigned mask, T x, int d) {
  return emulated_value<T>(emulated_exchange(mask, emulated_bits(x))[emulated_lane() ^ d]);
}
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline float __fdiv_rn(float x, float y) { return x / y; }
static inline unsigned __float_as_uint(float x) {
  unsigned bits;
  memcpy(&bits, &x, sizeof(bits));
  return bits;
}
static inline int __clz(unsigned x) { return x ? __builtin_clz(x) : 32; }
static inline int __ffs(unsigned x) { return __builtin_ffs(x); }
static inline int __ffsll(uint64_t x) { return __builtin_ffsll(x); }
template <class T>
static inline unsigned __match_any_sync(unsigned mask, T x) {
  const uint64_t own = emulated_bits(x), *values = emulated_exchange(mask, own);
  unsigned result = 0;
  for (int i = 0; i < 32; ++i) result |= (mask >> i & 1 && values[i] == own) ? 1u << i : 0;
  return result;
}
static inline int __syncthreads_or(int x) { return emulated_barrier_or(x); }
template <class T>
static inline T atomicExch(T* p, T x) {
  const T old = *p;
  *p = x;
  return old;
}
template <class T>
static inline T atomicCAS(T* p, T expected, T x) {
  return *p == expected ? atomicExch(p, x) : *p;
}
template <class T>
static inline T atomicMax(T* p, T x) {
  return *p < x ? atomicExch(p, x) : *p;
}
template <class T>
static inline T atomicMin(T* p, T x) {
  return *p > x ? atomicExch(p, x) : *p;
}
static inline unsigned atomicAdd(unsigned* p, unsigned x) {
  const unsigned old = *p;
  *p += x;
  return old;
}
static inline int atomicAdd(int* p, int x) {
  const int old = *p;
  *p += x;
  return old;
}
static inline unsigned atomicOr(unsigned* p, unsigned x) {
  const unsigned old = *p;
  *p |= x;
  return old;
}
static inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
static inline int max(int a, int b) { return a > b ? a : b; }
static inline int min(int a, int b) { return a < b ? a : b; }
static inline long long __float2ll_rn(float x) { return llrintf(x); }
static inline void __threadfence() {}

template <class To, class From>
static inline To emulated_cast(From from) {
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}
static inline float from_float16(uint16_t bits) { return float(emulated_cast<_Float16>(bits)); }
static inline uint16_t to_float16(float x) { return emulated_cast<uint16_t>(_Float16(x)); }
static inline uint16_t to_bfloat16(float x) {
  const uint32_t bits = emulated_cast<uint32_t>(x), rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  return uint16_t((bits & 0x7fffffffu) > 0x7f800000u ? bits >> 16 | 0x40u : rounded);
}

// Kernels as functions of an array of pointers to their arguments, for driver.cc.
template <class... A>
struct EmulatedCall {
  template <int... I>
  struct Places {};
  template <int N, int... I>
  struct Make : Make<N - 1, N - 1, I...> {};
  template <int... I>
  struct Make<0, I...> {
    typedef Places<I...> T;
  };
  template <int... I>
  static void run(void (*kernel)(A...), void** arguments, Places<I...>) {
    kernel(*static_cast<A*>(arguments[I])...);
  }
  static void all(void (*kernel)(A...), void** arguments) { run(kernel, arguments, typename Make<sizeof...(A)>::T()); }
};
template <class... A>
static void emulated_call(void (*kernel)(A...), void** arguments) {
  EmulatedCall<A...>::all(kernel, arguments);
}
#define EMULATED_KERNEL(NAME) \
  extern "C" void emulated_##NAME(void** arguments) { emulated_call(NAME, arguments); }
