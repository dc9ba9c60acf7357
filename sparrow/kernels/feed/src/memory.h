// Zeroed memory of large arrays.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <new>

namespace sparrow {

// Zeroed memory in large pages, which takes memory as it is used.
template <class T>
class Memory {
 public:
  explicit Memory(size_t count) {
    constexpr size_t page = size_t{2} << 20;
    bytes_ = std::max((count * sizeof(T) + page - 1) / page, size_t{1}) * page;
    void* at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
    if (bytes_ > 8 * page) madvise(at, bytes_, MADV_HUGEPAGE);
#endif
    at_ = static_cast<T*>(at);
  }
  ~Memory() { munmap(at_, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  T& operator[](size_t index) { return at_[index]; }
  const T& operator[](size_t index) const { return at_[index]; }

 private:
  T* at_;
  size_t bytes_;
};

}  // namespace sparrow
