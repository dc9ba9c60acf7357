// A loop over tasks on XLA's own threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

#include "cpu.h"
#include "xla/ffi/api/ffi.h"

namespace sparrow {

// Tasks are taken one by one from a shared counter by XLA's threads and by the caller, who therefore never waits for
// a thread that has not begun: a busy pool makes it slower, but cannot stop it.
inline void run_on_pool(void* pool, int32_t threads, int64_t count, void (*task)(void*, int64_t), void* argument) {
  struct Shared {
    std::atomic<int64_t> next{0}, done{0};
    int64_t count;
    void (*task)(void*, int64_t);
    void* argument;

    void work() {
      int64_t finished = 0;
      for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count; ++finished) task(argument, i);
      done.fetch_add(finished, std::memory_order_release);
    }
  };
  auto shared = std::make_shared<Shared>();  // outlives this call: a thread that comes too late looks at the counter
  shared->count = count;
  shared->task = task;
  shared->argument = argument;
  const int64_t helpers = std::min<int64_t>(threads, count) - 1;
  for (int64_t i = 0; i < helpers; ++i) {
    static_cast<xla::ffi::ThreadPool*>(pool)->Schedule([shared] {
      const FlushDenormals flush;
      shared->work();
    });
  }
  shared->work();
  for (int spins = 0; shared->done.load(std::memory_order_acquire) < count; ++spins) {
    if (spins > 4096) std::this_thread::yield();
  }
}

}  // namespace sparrow
