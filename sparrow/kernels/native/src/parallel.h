// Calling a lambda on many threads through the plain C interface of `Parallel`.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels.h"

namespace sparrow {

template <class Task>
void for_each(const Parallel& parallel, int64_t count, Task&& task) {
  if (count <= 1 || parallel.threads <= 1) {
    for (int64_t i = 0; i < count; ++i) task(i);
    return;
  }
  auto call = [](void* argument, int64_t i) { (*static_cast<std::remove_reference_t<Task>*>(argument))(i); };
  parallel.run(parallel.pool, parallel.threads, count, call, &task);
}

// Part i of `parts` nearly equal parts of [0, count): where it begins.
inline int64_t part_begin(int64_t count, int64_t parts, int64_t i) { return count / parts * i + std::min(count % parts, i); }

}  // namespace sparrow
