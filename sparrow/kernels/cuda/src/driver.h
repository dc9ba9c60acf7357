// The part of the CUDA driver's interface that is used. libcuda.so.1 is opened at run time: no CUDA headers, no toolkit.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#ifndef SPARROW_CUDA_DRIVER
#define SPARROW_CUDA_DRIVER "libcuda.so.1"
#endif

namespace sparrow {

using Result = int;
using Handle = void*;  // a stream, event, context, library or kernel

// The functions: their names here and in the driver, and their parameters.
#define SPARROW_DRIVER(X) \
  X(init, cuInit, unsigned) \
  X(error_string, cuGetErrorString, Result, const char**) \
  X(device_count, cuDeviceGetCount, int*) \
  X(library_load, cuLibraryLoadData, Handle*, const void*, const int*, void**, unsigned, const int*, void**, unsigned) \
  X(library_unload, cuLibraryUnload, Handle) \
  X(library_kernel, cuLibraryGetKernel, Handle*, Handle, const char*) \
  X(kernel_set, cuKernelSetAttribute, int, int, Handle, int) \
  X(launch, cuLaunchKernel, Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void**, void**) \
  X(memset_async, cuMemsetD8Async, uint64_t, unsigned char, size_t, Handle) \
  X(current_context, cuCtxGetCurrent, Handle*) \
  X(stream_context, cuStreamGetCtx, Handle, Handle*) \
  X(push_context, cuCtxPushCurrent_v2, Handle) \
  X(pop_context, cuCtxPopCurrent_v2, Handle*) \
  X(device, cuDeviceGet, int*, int) \
  X(retain_context, cuDevicePrimaryCtxRetain, Handle*, int) \
  X(release_context, cuDevicePrimaryCtxRelease_v2, int) \
  X(host_register, cuMemHostRegister_v2, void*, size_t, unsigned) \
  X(host_unregister, cuMemHostUnregister, void*) \
  X(priorities, cuCtxGetStreamPriorityRange, int*, int*) \
  X(stream_create, cuStreamCreateWithPriority, Handle*, unsigned, int) \
  X(stream_destroy, cuStreamDestroy_v2, Handle) \
  X(stream_wait, cuStreamWaitEvent, Handle, Handle, unsigned) \
  X(event_create, cuEventCreate, Handle*, unsigned) \
  X(event_destroy, cuEventDestroy_v2, Handle) \
  X(event_record, cuEventRecord, Handle, Handle) \
  X(tensor_map, cuTensorMapEncodeTiled, void*, int, unsigned, void*, const uint64_t*, const uint64_t*, const uint32_t*, const uint32_t*, int, int, int, int)

struct Driver {
#define SPARROW_FUNCTION(NAME, SYMBOL, ...) Result (*NAME)(__VA_ARGS__);
  SPARROW_DRIVER(SPARROW_FUNCTION)
};

constexpr int kMaxDynamicShared = 8;    // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
constexpr unsigned kPortableMapped = 3;  // CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP
constexpr unsigned kNonBlocking = 1;    // CU_STREAM_NON_BLOCKING
constexpr unsigned kWithoutTiming = 2;  // CU_EVENT_DISABLE_TIMING

inline std::string load_driver(Driver* d) {
  void* library = dlopen(SPARROW_CUDA_DRIVER, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return std::string("the NVIDIA driver cannot be opened: ") + dlerror();
  std::string missing;
  const auto get = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr) missing = name;
  };
#define SPARROW_GET(NAME, SYMBOL, ...) get(d->NAME, #SYMBOL);
  SPARROW_DRIVER(SPARROW_GET)
  if (!missing.empty()) return "the NVIDIA driver is older than CUDA 12.0: it has no " + missing;
  if (const Result result = d->init(0)) return "the NVIDIA driver does not start: error " + std::to_string(result);
  return "";
}

// The driver, opened once. `error`: why it cannot be used, or empty.
inline const Driver& driver(std::string* error) {
  static Driver d{};
  static const std::string problem = load_driver(&d);
  *error = problem;
  return d;
}

struct Failure {
  std::string message;
};

inline void check(const Driver& d, Result result, const char* during) {
  if (result == 0) return;
  const char* text = nullptr;
  d.error_string(result, &text);
  throw Failure{std::string(during) + ": " + (text != nullptr ? text : "unknown error") + " (" + std::to_string(result) + ")"};
}

}  // namespace sparrow
