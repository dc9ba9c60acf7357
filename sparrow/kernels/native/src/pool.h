// A loop over tasks on XLA's own threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

#include "cpu.h"
#include "parallel.h"
#include "xla/ffi/api/ffi.h"

namespace sparrow {

// Each thread has a stretch of the tasks, the same one in every loop: its memory of the last loop, or of the last
// step, is in its own cache and page table. A thread that is done takes tasks of others. So the caller, who works
// too, never waits for a thread that has not begun: a busy pool makes it slower, but cannot stop it.
inline void run_on_pool(void* pool, int32_t threads, int64_t count, void (*task)(void*, int64_t), void* argument) {
  struct alignas(64) Stretch {
    std::atomic<int64_t> next;
    int64_t end;
  };
  struct Shared {
    std::atomic<int64_t> done{0};
    int64_t workers;
    std::unique_ptr<Stretch[]> stretches;
    void (*task)(void*, int64_t);
    void* argument;

    void work(int64_t worker) {
      int64_t finished = 0;
      for (int64_t k = 0; k < workers; ++k) {
        Stretch& stretch = stretches[(worker + k) % workers];
        for (int64_t i; (i = stretch.next.fetch_add(1, std::memory_order_relaxed)) < stretch.end; ++finished) {
          task(argument, i);
        }
      }
      done.fetch_add(finished, std::memory_order_release);
    }
  };
  auto shared = std::make_shared<Shared>();  // outlives this call: a thread that comes too late looks at the counters
  shared->workers = std::min<int64_t>(threads, count);
  shared->stretches = std::make_unique<Stretch[]>(shared->workers);
  for (int64_t worker = 0; worker < shared->workers; ++worker) {
    shared->stretches[worker].next = part_begin(count, shared->workers, worker);
    shared->stretches[worker].end = part_begin(count, shared->workers, worker + 1);
  }
  shared->task = task;
  shared->argument = argument;
  for (int64_t worker = 1; worker < shared->workers; ++worker) {
    static_cast<xla::ffi::ThreadPool*>(pool)->Schedule([shared, worker] {
      const FlushDenormals flush;
      shared->work(worker);
    });
  }
  shared->work(0);
  for (int spins = 0; shared->done.load(std::memory_order_acquire) < count; ++spins) {
    if (spins > 4096) std::this_thread::yield();
  }
}

}  // namespace sparrow
