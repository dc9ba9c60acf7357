// Tables on 2 MB pages: random rows of a large array miss the processor's list of small pages nearly every time.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace sparrow {

#if defined(__linux__)

constexpr uintptr_t kHugePage = uintptr_t(2) << 20;

// The large pages that fit into [data, data + bytes).
struct HugePages {
  uintptr_t begin, end;
  HugePages(const void* data, int64_t bytes)
      : begin((reinterpret_cast<uintptr_t>(data) + kHugePage - 1) & ~(kHugePage - 1)),
        end((reinterpret_cast<uintptr_t>(data) + bytes) & ~(kHugePage - 1)) {}
};

// Moves memory to large pages now. False: the kernel cannot, or no large page is free, and it stays where it is.
inline bool collapse(uintptr_t begin, uintptr_t end) {
  constexpr int kCollapse = 25;  // MADV_COLLAPSE, since Linux 6.1; older headers do not name it
  return begin >= end || madvise(reinterpret_cast<void*>(begin), end - begin, kCollapse) == 0;
}

// Moves all of an array.
inline void move_to_huge_pages(const void* data, int64_t bytes) {
  const HugePages pages(data, bytes);
  collapse(pages.begin, pages.end);
}

// Asks for large pages under [data, data + bytes). An array seen once may be on its way out; one that is seen again is
// trained or read in place, so that moving it to large pages pays: a part at each call, because moving takes about as long
// as copying, and no call should wait for all of a huge table. After the first round it continues, now and then and in
// small parts: a new array often lies at the address of an old one of its size, and the two cannot be distinguished here.
// Where the system has no large page left, a request is slow: then the array is left alone for a while, with small pages.
inline void prefer_huge_pages(const void* data, int64_t bytes) {
  constexpr uintptr_t kFirstPart = uintptr_t(256) << 20, kPart = uintptr_t(16) << 20;
  constexpr int32_t kCallsBetween = 16, kCallsAfterRefusal = 32, kCallsAfterLaterRefusal = 1000;
  constexpr int64_t kWorthwhile = int64_t(32) << 20;
  if (bytes < kWorthwhile) return;
  const HugePages pages(data, bytes);
  const uintptr_t begin = pages.begin, end = pages.end;

  struct Seen {
    uintptr_t begin = 0, end = 0;
    uintptr_t next = 0;  // the next part to request
    int32_t wait = 0;    // calls until the next request
    bool first_round = true;
  };
  static std::mutex* mutex = new std::mutex;
  static auto* recent = new std::array<Seen, 256>;
  static size_t oldest = 0;
  auto find = [&] {
    return std::find_if(recent->begin(), recent->end(),
                        [&](const Seen& seen) { return seen.begin == begin && seen.end == end; });
  };
  uintptr_t from = 0, to = 0;
  {
    std::lock_guard<std::mutex> lock(*mutex);
    auto found = find();
    if (found == recent->end()) {
      (*recent)[oldest++ % recent->size()] = {begin, end, begin};
    } else if (found->wait > 0) {
      --found->wait;
      return;
    } else {
      from = found->next;
      to = std::min(from + (found->first_round ? kFirstPart : kPart), end);
      found->next = to == end ? begin : to;
      found->first_round = found->first_round && to != end;
      found->wait = found->first_round ? 0 : kCallsBetween;
    }
  }
  if (from == to || from == begin) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
  if (!collapse(from, to)) {
    std::lock_guard<std::mutex> lock(*mutex);
    auto found = find();
    if (found != recent->end()) found->wait = found->first_round ? kCallsAfterRefusal : kCallsAfterLaterRefusal;
  }
}

#else

inline void move_to_huge_pages(const void*, int64_t) {}
inline void prefer_huge_pages(const void*, int64_t) {}

#endif

}  // namespace sparrow
