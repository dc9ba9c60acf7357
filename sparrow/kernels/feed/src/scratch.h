// `Scratch`: memory for the work on one chunk, kept by its thread for the next one.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include <sys/mman.h>

#include "snappy.h"

namespace sparrow {

// Under AddressSanitizer (`make test-asan`), every array is a piece of memory of its own.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool SANITIZED = true;
#else
constexpr bool SANITIZED = false;
#endif

constexpr int64_t LARGE_PAGE = 1 << 21;

// Asks for large pages, where the memory has space for one: addresses are found sooner.
inline void* on_large_pages(void* memory, int64_t size) {
#if defined(MADV_HUGEPAGE)
  if (size >= LARGE_PAGE) madvise(memory, size, MADV_HUGEPAGE);
#endif
  return memory;
}

inline void* aligned(int64_t size) {
  void* memory = nullptr;
  return posix_memalign(&memory, size < LARGE_PAGE ? 64 : LARGE_PAGE, size) == 0 ? on_large_pages(memory, size) : nullptr;
}

class Scratch {
 public:
  // An array with any content, and SLACK behind it. It lasts until the next `reset`.
  template <class T>
  T* array(int64_t count) {
    if (count < 0 || count > MOST) throw std::bad_alloc();
    const size_t exact = static_cast<size_t>(count) * sizeof(T) + SLACK;
    const size_t bytes = SANITIZED ? exact : (exact + 63) & ~size_t{63};
    if (SANITIZED || blocks_.empty() || blocks_.back().size - used_ < bytes) add(bytes);
    uint8_t* made = blocks_.back().memory.get() + used_;
    used_ += bytes;
    return reinterpret_cast<T*>(made);
  }

  // Gives everything back. Several blocks become one, for the next chunk.
  void reset() {
    if (SANITIZED) {
      blocks_.clear();
    } else if (blocks_.size() > 1) {
      size_t all = 0;
      for (const Block& block : blocks_) all += block.size;
      blocks_.clear();
      add(all);
    }
    used_ = 0;
  }

 private:
  struct Free {
    void operator()(uint8_t* memory) const { std::free(memory); }
  };
  struct Block {
    std::unique_ptr<uint8_t, Free> memory;
    size_t size;
  };

  void add(size_t bytes) {
    const size_t size = SANITIZED ? bytes : bytes < LEAST ? LEAST : (bytes + 63) & ~size_t{63};
    void* memory = aligned(size);
    if (memory == nullptr) throw std::bad_alloc();
    blocks_.push_back({std::unique_ptr<uint8_t, Free>(static_cast<uint8_t*>(memory)), size});
    used_ = 0;
  }

  static constexpr size_t LEAST = 1 << 20;
  static constexpr int64_t MOST = int64_t{1} << 40;
  std::vector<Block> blocks_;
  size_t used_ = 0;
};

}  // namespace sparrow
