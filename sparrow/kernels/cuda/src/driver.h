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

struct Driver {
  Result (*init)(unsigned);
  Result (*error_string)(Result, const char**);
  Result (*device_count)(int*);
  Result (*library_load)(Handle*, const void*, const int*, void**, unsigned, const int*, void**, unsigned);
  Result (*library_unload)(Handle);
  Result (*library_kernel)(Handle*, Handle, const char*);
  Result (*kernel_set)(int, int, Handle, int);
  Result (*launch)(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void**, void**);
  Result (*memset_async)(uint64_t, unsigned char, size_t, Handle);
  Result (*current_context)(Handle*);
  Result (*stream_context)(Handle, Handle*);
  Result (*push_context)(Handle);
  Result (*pop_context)(Handle*);
  Result (*device)(int*, int);
  Result (*retain_context)(Handle*, int);
  Result (*release_context)(int);
  Result (*host_register)(void*, size_t, unsigned);
  Result (*host_unregister)(void*);
  Result (*priorities)(int*, int*);
  Result (*stream_create)(Handle*, unsigned, int);
  Result (*stream_destroy)(Handle);
  Result (*stream_wait)(Handle, Handle, unsigned);
  Result (*event_create)(Handle*, unsigned);
  Result (*event_destroy)(Handle);
  Result (*event_record)(Handle, Handle);
  Result (*tensor_map)(void*, int, unsigned, void*, const uint64_t*, const uint64_t*, const uint32_t*, const uint32_t*, int, int,
                       int, int);
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
  get(d->init, "cuInit");
  get(d->error_string, "cuGetErrorString");
  get(d->device_count, "cuDeviceGetCount");
  get(d->library_load, "cuLibraryLoadData");
  get(d->library_unload, "cuLibraryUnload");
  get(d->library_kernel, "cuLibraryGetKernel");
  get(d->kernel_set, "cuKernelSetAttribute");
  get(d->launch, "cuLaunchKernel");
  get(d->memset_async, "cuMemsetD8Async");
  get(d->current_context, "cuCtxGetCurrent");
  get(d->stream_context, "cuStreamGetCtx");
  get(d->push_context, "cuCtxPushCurrent_v2");
  get(d->pop_context, "cuCtxPopCurrent_v2");
  get(d->device, "cuDeviceGet");
  get(d->retain_context, "cuDevicePrimaryCtxRetain");
  get(d->release_context, "cuDevicePrimaryCtxRelease_v2");
  get(d->host_register, "cuMemHostRegister_v2");
  get(d->host_unregister, "cuMemHostUnregister");
  get(d->priorities, "cuCtxGetStreamPriorityRange");
  get(d->stream_create, "cuStreamCreateWithPriority");
  get(d->stream_destroy, "cuStreamDestroy_v2");
  get(d->stream_wait, "cuStreamWaitEvent");
  get(d->event_create, "cuEventCreate");
  get(d->event_destroy, "cuEventDestroy_v2");
  get(d->event_record, "cuEventRecord");
  get(d->tensor_map, "cuTensorMapEncodeTiled");
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
