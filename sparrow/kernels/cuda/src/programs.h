// Compiled kernels by key. A program lives as long as an executable that launches it, or while it is among the last ones
// that Python registered: compiling rule after rule leaks nothing.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "driver.h"

namespace sparrow {

constexpr size_t kRegistered = 256;  // programs that stay loaded though no executable holds them

// One loaded module. A library belongs to no context, so that one serves all devices.
class Program {
 public:
  Program(const Driver& d, const void* image, const char* const* names, const int* shared, int count) : driver_(d) {
    check(d, d.library_load(&library_, image, nullptr, nullptr, 0, nullptr, nullptr, 0), "loading kernels");
    try {
      find_kernels(names, shared, count);
    } catch (...) {
      d.library_unload(library_);
      throw;
    }
  }
  ~Program() { driver_.library_unload(library_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  std::vector<Handle> kernels;

 private:
  void find_kernels(const char* const* names, const int* shared, int count) {
    int devices = 0;
    check(driver_, driver_.device_count(&devices), "counting devices");
    for (int i = 0; i < count; ++i) {
      Handle kernel = nullptr;
      check(driver_, driver_.library_kernel(&kernel, library_, names[i]), names[i]);
      kernels.push_back(kernel);
      for (int device = 0; shared[i] > 0 && device < devices; ++device) {
        check(driver_, driver_.kernel_set(kMaxDynamicShared, shared[i], kernel, device), "reserving shared memory");
      }
    }
  }

  const Driver& driver_;
  Handle library_ = nullptr;
};

class Programs {
 public:
  static Programs& all() {
    static auto* programs = new Programs;  // never destroyed: XLA's threads may outlive this library's statics
    return *programs;
  }

  void add(int64_t key, std::shared_ptr<Program> program) {
    std::lock_guard<std::mutex> lock(mutex_);
    known_[key] = program;
    recent_.remove(program);
    recent_.push_front(std::move(program));
    if (recent_.size() > kRegistered) recent_.pop_back();
    for (auto it = known_.begin(); it != known_.end();) it = it->second.expired() ? known_.erase(it) : std::next(it);
  }

  std::shared_ptr<Program> find(int64_t key) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = known_.find(key);
    return found == known_.end() ? nullptr : found->second.lock();
  }

  size_t loaded() {
    std::lock_guard<std::mutex> lock(mutex_);
    size_t count = 0;
    for (const auto& entry : known_) count += !entry.second.expired();
    return count;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<int64_t, std::weak_ptr<Program>> known_;
  std::list<std::shared_ptr<Program>> recent_;
};

}  // namespace sparrow
