// Loads and stores of several numbers at once, with hints for the caches that C++ has no words for.

// How long the second-level cache keeps a line that is read past the first level. (Without a policy, "no_allocate" and
// ".cs" make the second level forget early too.)
enum Hint { CACHED, FIRST_OUT };

// N numbers of type T as they lie in memory.
template <class T, int N>
struct Pack {
  static constexpr int BYTES = N * sizeof(T);
  static constexpr int WORDS = BYTES < 4 ? 1 : BYTES / 4;
  u32 word[WORDS];
};
template <int N>
DEVICE float number(const Pack<float, N>& pack, int i) {
  return bit_cast<float>(pack.word[i]);
}
template <int N>
DEVICE uint16_t number(const Pack<uint16_t, N>& pack, int i) {
  return uint16_t(pack.word[i / 2] >> (i % 2 * 16));
}
template <int N>
DEVICE Pack<float, N> make_pack(const float* x) {
  Pack<float, N> pack;
#pragma unroll
  for (int i = 0; i < N; ++i) pack.word[i] = bit_cast<u32>(x[i]);
  return pack;
}
template <int N>
DEVICE Pack<uint16_t, N> make_pack(const uint16_t* x) {
  Pack<uint16_t, N> pack;
#pragma unroll
  for (int i = 0; i < N; i += 2) pack.word[i / 2] = x[i] | (N > 1 ? u32(x[N > 1 ? i + 1 : 0]) << 16 : 0);
  return pack;
}

#ifdef SPARROW_EMULATED
template <int HINT>
DEVICE u64 make_policy() {
  return 0;
}
template <int BYTES>
DEVICE void read_plain(u32* word, const void* from) {
  word[0] = 0;
  memcpy(word, from, BYTES);
}
template <int HINT, int BYTES>
DEVICE void read(u32* word, const void* from, u64) {
  read_plain<BYTES>(word, from);
}
template <int BYTES>
DEVICE void read_constant(u32* word, const void* from) {
  read_plain<BYTES>(word, from);
}
template <int BYTES>
DEVICE void read_fresh(u32* word, const void* from) {
  read_plain<BYTES>(word, from);
}
template <int HINT, int BYTES>
DEVICE void write(void* to, const u32* word, u64) {
  memcpy(to, word, BYTES);
}
template <int BYTES>
DEVICE void write_streaming(void* to, const u32* word) {
  memcpy(to, word, BYTES);
}
DEVICE u32 load_relaxed(const u32* p) { return *p; }
DEVICE void store_relaxed(u32* p, u32 x) { *p = x; }
#else
template <int HINT>
DEVICE u64 make_policy() {
  u64 policy = 0;
  if (HINT == FIRST_OUT) asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
// BYTES are 2, 4, 8, 16, or a multiple of 16; PTX reads 16 at a time at most.
#define SPARROW_READ(HOW, CLOBBER)                                                                                                \
  if (BYTES >= 16) {                                                                                                              \
    _Pragma("unroll") for (int i = 0; i < BYTES / 16; ++i)                                                                        \
        asm volatile("ld.global" HOW ".v4.b32 {%0, %1, %2, %3}, [%4];"                                                            \
                     : "=r"(word[4 * i % W]), "=r"(word[(4 * i + 1) % W]), "=r"(word[(4 * i + 2) % W]), "=r"(word[(4 * i + 3) % W]) \
                     : "l"(static_cast<const char*>(from) + 16 * i) CLOBBER);                                                     \
  } else if (BYTES == 8) {                                                                                                        \
    asm volatile("ld.global" HOW ".v2.b32 {%0, %1}, [%2];" : "=r"(word[0]), "=r"(word[1 % W]) : "l"(from) CLOBBER);               \
  } else if (BYTES == 4) {                                                                                                        \
    asm volatile("ld.global" HOW ".b32 %0, [%1];" : "=r"(word[0]) : "l"(from) CLOBBER);                                           \
  } else {                                                                                                                        \
    uint16_t half;                                                                                                                \
    asm volatile("ld.global" HOW ".b16 %0, [%1];" : "=h"(half) : "l"(from) CLOBBER);                                              \
    word[0] = half;                                                                                                               \
  }
template <int HINT, int BYTES>
DEVICE void read(u32* word, const void* from, u64 policy) {
  constexpr int W = BYTES < 4 ? 1 : BYTES / 4;
  if (HINT == CACHED) {
    SPARROW_READ("", )
  } else if (BYTES >= 16) {
#pragma unroll
    for (int i = 0; i < BYTES / 16; ++i)
      asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.b32 {%0, %1, %2, %3}, [%4], %5;"
                   : "=r"(word[4 * i % W]), "=r"(word[(4 * i + 1) % W]), "=r"(word[(4 * i + 2) % W]), "=r"(word[(4 * i + 3) % W])
                   : "l"(static_cast<const char*>(from) + 16 * i), "l"(policy));
  } else if (BYTES == 8) {
    asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v2.b32 {%0, %1}, [%2], %3;" : "=r"(word[0]), "=r"(word[1 % W]) : "l"(from), "l"(policy));
  } else {
    SPARROW_READ("", )
  }
}
// For memory that the kernel does not write: kept in the first-level cache too.
template <int BYTES>
DEVICE void read_constant(u32* word, const void* from) {
  constexpr int W = BYTES < 4 ? 1 : BYTES / 4;
  SPARROW_READ(".nc", )
}
// Another multiprocessor has just written it.
template <int BYTES>
DEVICE void read_fresh(u32* word, const void* from) {
  constexpr int W = BYTES < 4 ? 1 : BYTES / 4;
  SPARROW_READ(".cg", : "memory")
}
#define SPARROW_WRITE(HOW, POLICY, ...)                                                                                            \
  if (BYTES >= 16) {                                                                                                               \
    _Pragma("unroll") for (int i = 0; i < BYTES / 16; ++i)                                                                         \
        asm volatile("st.global" HOW ".v4.b32 [%0], {%1, %2, %3, %4}" POLICY ";" ::"l"(static_cast<char*>(to) + 16 * i),           \
                     "r"(word[4 * i % W]), "r"(word[(4 * i + 1) % W]), "r"(word[(4 * i + 2) % W]), "r"(word[(4 * i + 3) % W])      \
                     __VA_ARGS__ : "memory");                                                                                      \
  }
template <int HINT, int BYTES>
DEVICE void write(void* to, const u32* word, u64 policy) {
  constexpr int W = BYTES < 4 ? 1 : BYTES / 4;
  if (HINT != CACHED) {
    SPARROW_WRITE(".L2::cache_hint", ", %5", , "l"(policy))
  } else {
    SPARROW_WRITE("", "")
  }
  if (BYTES == 8) asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(word[0]), "r"(word[1 % W]) : "memory");
  if (BYTES == 4) *static_cast<u32*>(to) = word[0];
  if (BYTES == 2) *static_cast<uint16_t*>(to) = uint16_t(word[0]);
}
// For memory that is not read soon.
template <int BYTES>
DEVICE void write_streaming(void* to, const u32* word) {
  constexpr int W = BYTES < 4 ? 1 : BYTES / 4;
  SPARROW_WRITE(".cs", "")
  if (BYTES == 8) asm volatile("st.global.cs.v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(word[0]), "r"(word[1 % W]) : "memory");
  if (BYTES == 4) asm volatile("st.global.cs.b32 [%0], %1;" ::"l"(to), "r"(word[0]) : "memory");
  if (BYTES == 2) *static_cast<uint16_t*>(to) = uint16_t(word[0]);
}
DEVICE u32 load_relaxed(const u32* p) {
  u32 x;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
  return x;
}
DEVICE void store_relaxed(u32* p, u32 x) { asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(x) : "memory"); }
#endif

template <int HINT, int N, class T>
DEVICE Pack<T, N> load(const T* from, u64 policy) {
  Pack<T, N> pack;
  read<HINT, Pack<T, N>::BYTES>(pack.word, from, policy);
  return pack;
}
template <int N, class T>
DEVICE Pack<T, N> load_constant(const T* from) {
  Pack<T, N> pack;
  read_constant<Pack<T, N>::BYTES>(pack.word, from);
  return pack;
}
template <int N, class T>
DEVICE Pack<T, N> load_fresh(const T* from) {
  Pack<T, N> pack;
  read_fresh<Pack<T, N>::BYTES>(pack.word, from);
  return pack;
}
template <int HINT, int N, class T>
DEVICE void store(T* to, const Pack<T, N>& pack, u64 policy) {
  write<HINT, Pack<T, N>::BYTES>(to, pack.word, policy);
}
template <int N, class T>
DEVICE void store_streaming(T* to, const Pack<T, N>& pack) {
  write_streaming<Pack<T, N>::BYTES>(to, pack.word);
}
