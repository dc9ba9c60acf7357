// What the handlers of XLA's calls share.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

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

// An array that a call does not have travels as an empty one.
template <class T>
T* or_null(const Array& array) {
  return count(array) == 0 ? nullptr : static_cast<T*>(array.untyped_data());
}

// Calls work(parallel): with denormals flushed, on the given number of threads (0: all of XLA's pool).
template <class Work>
ffi::Error guarded(ffi::ThreadPool pool, int64_t threads, Work&& work) {
  const int64_t wanted = threads > 0 ? threads : std::max<int64_t>(1, pool.num_threads());
  const FlushDenormals flush;
  try {
    work(Parallel{static_cast<int32_t>(wanted), &pool, &run_on_pool});
  } catch (const std::exception& error) {
    return ffi::Error(ffi::ErrorCode::kResourceExhausted, std::string("sparrow: ") + error.what());
  }
  return ffi::Error::Success();
}
template <class Call>
ffi::Error launch(void (*kernel)(const Call&, const Parallel&), const Call& call, ffi::ThreadPool pool, int64_t threads) {
  return guarded(pool, threads, [&](const Parallel& parallel) { kernel(call, parallel); });
}

template <class Parameter>
struct ResultOf : std::false_type {};
template <class T>
struct ResultOf<ffi::Result<T>> : std::true_type {
  using Type = T;
};

template <class Parameter, class Binding>
auto bind_one(Binding&& binding, const char* name) {
  if constexpr (std::is_same_v<Parameter, ffi::ThreadPool>) {
    return std::move(binding).template Ctx<Parameter>();
  } else if constexpr (std::is_arithmetic_v<Parameter>) {
    return std::move(binding).template Attr<Parameter>(name);
  } else if constexpr (std::is_same_v<Parameter, ffi::RemainingArgs>) {
    return std::move(binding).RemainingArgs();
  } else if constexpr (std::is_same_v<Parameter, ffi::RemainingRets>) {
    return std::move(binding).RemainingRets();
  } else if constexpr (ResultOf<Parameter>::value) {
    return std::move(binding).template Ret<typename ResultOf<Parameter>::Type>();
  } else {
    return std::move(binding).template Arg<Parameter>();
  }
}
template <class Parameter, class... Rest>
struct Bound {
  template <class Binding>
  static auto to(Binding&& binding, const char* const* names) {
    if constexpr (sizeof...(Rest) == 0) {
      return bind_one<Parameter>(std::move(binding), *names);
    } else {
      return Bound<Rest...>::to(bind_one<Parameter>(std::move(binding), *names), names + std::is_arithmetic_v<Parameter>);
    }
  }
};

// What XLA gives a handler, by the handler's parameters: numbers are attributes, called `names` in their order.
template <class... Parameters>
auto binding_of(ffi::Error (*)(Parameters...), std::vector<const char*> names) {
  names.push_back("");  // that no parameter has
  return Bound<Parameters...>::to(ffi::Ffi::Bind(), names.data());
}
#define SPARROW_HANDLER(NAME, FUNCTION, ...) \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(NAME, FUNCTION, sparrow::binding_of(&FUNCTION, {__VA_ARGS__}))

}  // namespace sparrow
