// Asking for memory before it is needed.
#pragma once

#include <cstdint>

namespace sparrow {

constexpr int64_t kCacheLine = 64;
constexpr int64_t kPrefetchBytes = 1024;  // the hardware fetches the rest of a longer row

template <bool kWrite>
inline void prefetch(const void* address, int64_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  const uintptr_t end = begin + static_cast<uintptr_t>(bytes < kPrefetchBytes ? bytes : kPrefetchBytes);
  for (uintptr_t line = begin & ~uintptr_t(kCacheLine - 1); line < end; line += kCacheLine) {
    __builtin_prefetch(reinterpret_cast<const void*>(line), kWrite ? 1 : 0, 3);
  }
  // GCC takes a function that only prefetches for one without effect, and drops its calls. This line it cannot drop.
  asm volatile("");
}

}  // namespace sparrow
