// Tables on 2 MB pages: random rows of a large array miss the processor's list of small pages nearly every time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace sparrow {

#if defined(__linux__)

// Asks for large pages under [data, data + bytes). An array seen once may be on its way out; one that is seen again is
// trained or read in place, so that moving it to large pages (once, at about the speed of a copy) pays. A kernel that
// refuses is no error: the pages stay small.
inline void prefer_huge_pages(const void* data, int64_t bytes) {
  constexpr uintptr_t kHugePage = uintptr_t(2) << 20;
  constexpr int64_t kWorthwhile = int64_t(32) << 20;
  constexpr int kCollapse = 25;  // MADV_COLLAPSE, since Linux 6.1; older headers do not name it
  if (bytes < kWorthwhile) return;
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(data) + kHugePage - 1) & ~(kHugePage - 1);
  const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + bytes) & ~(kHugePage - 1);

  struct Seen {
    uintptr_t begin = 0, end = 0;
    int times = 0;
  };
  static std::mutex* mutex = new std::mutex;
  static auto* recent = new std::array<Seen, 256>;
  static size_t oldest = 0;
  int advice;
  {
    std::lock_guard<std::mutex> lock(*mutex);
    Seen* found = nullptr;
    for (Seen& seen : *recent) {
      if (seen.begin == begin && seen.end == end) found = &seen;
    }
    if (found == nullptr) {
      found = &(*recent)[oldest++ % recent->size()];
      *found = {begin, end, 0};
    }
    if (++found->times > 2) return;
    advice = found->times == 1 ? MADV_HUGEPAGE : kCollapse;
  }
  madvise(reinterpret_cast<void*>(begin), end - begin, advice);
}

#else

inline void prefer_huge_pages(const void*, int64_t) {}

#endif

}  // namespace sparrow
