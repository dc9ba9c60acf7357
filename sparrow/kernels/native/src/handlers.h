// What the handlers of XLA's calls share.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <string>

#include "cpu.h"
#include "kernels.h"
#include "pool.h"
#include "xla/ffi/api/ffi.h"

namespace sparrow {

namespace ffi = xla::ffi;
using Array = ffi::AnyBuffer;
using Type = ffi::DataType;

inline std::atomic<const Kernels*> kernels{nullptr};  // set once, when the libraries are loaded

inline ffi::Error refuse(const std::string& what) { return ffi::Error::InvalidArgument("sparrow: " + what); }

inline bool is(const Array& buffer, Type type, size_t rank) {
  return buffer.element_type() == type && buffer.dimensions().size() == rank;
}

inline bool table_type(Type type, TableType* out, int64_t* bytes) {
  if (type != Type::F32 && type != Type::BF16 && type != Type::F16) return false;
  *out = type == Type::F32 ? TableType::kFloat32 : type == Type::BF16 ? TableType::kBfloat16 : TableType::kFloat16;
  *bytes = type == Type::F32 ? 4 : 2;
  return true;
}

inline int64_t count(const Array& buffer) { return static_cast<int64_t>(buffer.element_count()); }

// Runs a kernel: with denormals flushed, on the given number of threads (0: all of XLA's pool).
template <class Call>
ffi::Error launch(void (*kernel)(const Call&, const Parallel&), const Call& call, ffi::ThreadPool pool,
                  int64_t threads) {
  const int64_t wanted = threads > 0 ? threads : std::max<int64_t>(1, pool.num_threads());
  const FlushDenormals flush;
  try {
    kernel(call, {static_cast<int32_t>(wanted), &pool, &run_on_pool});
  } catch (const std::exception& error) {
    return ffi::Error(ffi::ErrorCode::kResourceExhausted, std::string("sparrow: ") + error.what());
  }
  return ffi::Error::Success();
}

}  // namespace sparrow
