// One pool for the process, shared by all threads.
#include "pool.h"

#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

#include <sys/mman.h>

#include "scratch.h"
#include "versions.h"

namespace sparrow {
namespace {

constexpr int64_t LEAST = 1 << 16;
constexpr int64_t MOST_IDLE = int64_t{1} << 30;
constexpr int64_t MOST = int64_t{1} << 46;  // bytes of a piece

struct Pool {
  std::mutex lock;
  std::map<int64_t, std::vector<void*>> idle;
  int64_t bytes = 0;
};

Pool& pool() {
  static Pool* made = new Pool;  // never destroyed: arrays may be freed at the very end of the process
  return *made;
}

}  // namespace

int64_t pool_size(int64_t bytes) {
  if (bytes < 0 || bytes > MOST) return -1;
  if (SANITIZED) return bytes;
  int64_t step = LEAST / 4;
  while (step * 8 < bytes) step *= 2;  // four sizes an octave
  return bytes <= LEAST ? LEAST : (bytes + step - 1) / step * step;
}

void* pool_take(int64_t size) {
  if (size < 0) return nullptr;
  if (SANITIZED) return aligned(size);
  {
    Pool& own = pool();
    const std::lock_guard<std::mutex> guard(own.lock);
    const auto found = own.idle.find(size);
    if (found != own.idle.end() && !found->second.empty()) {
      void* memory = found->second.back();
      found->second.pop_back();
      own.bytes -= size;
      return memory;
    }
  }
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : on_large_pages(memory, size);
}

void pool_give(void* memory, int64_t size) {
  if (SANITIZED) return std::free(memory);
  Pool& own = pool();
  {
    const std::lock_guard<std::mutex> guard(own.lock);
    if (own.bytes + size <= MOST_IDLE) {
      own.idle[size].push_back(memory);
      own.bytes += size;
      return;
    }
  }
  munmap(memory, size);
}

}  // namespace sparrow

// `bytes` may be any number, the same for both; `pool_size` of a size is that size.
SPARROW_API int64_t sparrow_pool_take(int64_t bytes) {
  return reinterpret_cast<int64_t>(sparrow::pool_take(sparrow::pool_size(bytes)));
}

SPARROW_API void sparrow_pool_give(int64_t memory, int64_t bytes) {
  sparrow::pool_give(reinterpret_cast<void*>(memory), sparrow::pool_size(bytes));
}

// Gives idle pieces back to the system, the largest first, until at most `keep` bytes of them are left. Returns the bytes
// given back.
SPARROW_API int64_t sparrow_pool_trim(int64_t keep) {
  sparrow::Pool& own = sparrow::pool();
  const std::lock_guard<std::mutex> guard(own.lock);
  const int64_t before = own.bytes;
  for (auto held = own.idle.rbegin(); held != own.idle.rend(); ++held) {
    while (own.bytes > keep && !held->second.empty()) {
      munmap(held->second.back(), held->first);
      held->second.pop_back();
      own.bytes -= held->first;
    }
  }
  return before - own.bytes;
}
