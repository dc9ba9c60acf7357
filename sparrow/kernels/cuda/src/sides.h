// Second streams, for work that runs beside the rest.
#pragma once

#include <map>
#include <mutex>

#include "driver.h"

namespace sparrow {

// A second stream, and the events that tie it to the first.
struct Side {
  Handle stream = nullptr, fork = nullptr, join = nullptr;
  std::mutex mutex;  // held from a fork until its join is queued: the fork of one call and the join of another must not mix
};

// The second streams of one call in an executable, one of each context. No two executables share a stream: while one of them
// is captured into a CUDA graph, which its streams are part of to the end, the others run on.
class Sides {
 public:
  explicit Sides(const Driver& d) : driver_(d) {}
  ~Sides() {
    for (auto& [context, side] : sides_) {
      if (side.stream == nullptr) continue;
      driver_.stream_destroy(side.stream);
      driver_.event_destroy(side.fork);
      driver_.event_destroy(side.join);
    }
  }

  // The side of `context`, which is current.
  Side& of(Handle context) {
    std::lock_guard<std::mutex> lock(mutex_);
    Side& side = sides_[context];
    if (side.stream == nullptr) {
      int least = 0, greatest = 0;
      check(driver_, driver_.priorities(&least, &greatest), "stream priorities");
      check(driver_, driver_.event_create(&side.fork, kWithoutTiming), "creating an event");
      check(driver_, driver_.event_create(&side.join, kWithoutTiming), "creating an event");
      check(driver_, driver_.stream_create(&side.stream, kNonBlocking, greatest), "creating a stream");
    }
    return side;
  }

 private:
  const Driver& driver_;
  std::mutex mutex_;
  std::map<Handle, Side> sides_;
};

}  // namespace sparrow
