// Large pieces of memory that are used again: to get pages from the system for every chunk costs more than to fill them.
#pragma once

#include <cstdint>
#include <cstring>
#include <new>

namespace sparrow {

// Bytes of a piece that holds `bytes`, and gives one of that size back; -1: no piece has that many.
int64_t pool_size(int64_t bytes);
void* pool_take(int64_t size);  // null: out of memory, or no such size
void pool_give(void* memory, int64_t size);

// A growing array of words.
class Pooled {
 public:
  Pooled() = default;
  Pooled(const Pooled&) = delete;
  Pooled& operator=(const Pooled&) = delete;
  ~Pooled() {
    if (memory_ != nullptr) pool_give(memory_, size_);
  }

  // The array, with space for `words`, of which `used` keep their content.
  int32_t* grown(int64_t words, int64_t used) {
    if (words * 4 <= size_) return static_cast<int32_t*>(memory_);
    const int64_t size = pool_size(words * 4 + size_);
    void* larger = pool_take(size);
    if (larger == nullptr) throw std::bad_alloc();
    if (memory_ != nullptr) {
      std::memcpy(larger, memory_, used * 4);
      pool_give(memory_, size_);
    }
    memory_ = larger;
    size_ = size;
    return static_cast<int32_t*>(memory_);
  }

  int64_t size() const { return size_; }

  int32_t* release() {
    void* memory = memory_;
    memory_ = nullptr;
    size_ = 0;
    return static_cast<int32_t*>(memory);
  }

 private:
  void* memory_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace sparrow
