// Memory that a kernel works in, kept from call to call: fresh pages cost more than the work done in them.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace sparrow {

// Grows, never shrinks, does not clear.
class Buffer {
 public:
  template <class T>
  T* reserve(size_t count) {
    const size_t bytes = count * sizeof(T);
    if (bytes > size_) {
      data_.reset();
      size_ = 0;
      data_.reset(new (std::align_val_t(64)) std::byte[bytes]);
      size_ = bytes;
    }
    return reinterpret_cast<T*>(data_.get());
  }

 private:
  struct Free {
    void operator()(std::byte* data) const { ::operator delete[](data, std::align_val_t(64)); }
  };
  std::unique_ptr<std::byte[], Free> data_;
  size_t size_ = 0;
};

struct Workspace {
  Buffer entries, sorted, counts, threads;
};

// A workspace for exclusive use while this object lives.
class WorkspaceLease {
 public:
  WorkspaceLease() {
    std::lock_guard<std::mutex> lock(mutex());
    if (!idle().empty()) {
      workspace_ = std::move(idle().back());
      idle().pop_back();
    } else {
      workspace_ = std::make_unique<Workspace>();
    }
  }
  ~WorkspaceLease() {
    std::lock_guard<std::mutex> lock(mutex());
    idle().push_back(std::move(workspace_));
  }
  WorkspaceLease(const WorkspaceLease&) = delete;
  WorkspaceLease& operator=(const WorkspaceLease&) = delete;

  Workspace& operator*() { return *workspace_; }

 private:
  static std::mutex& mutex() {
    static std::mutex* mutex = new std::mutex;  // never destroyed: threads may outlive static objects
    return *mutex;
  }
  static std::vector<std::unique_ptr<Workspace>>& idle() {
    static auto* idle = new std::vector<std::unique_ptr<Workspace>>;
    return *idle;
  }
  std::unique_ptr<Workspace> workspace_;
};

}  // namespace sparrow
