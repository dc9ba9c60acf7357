// An identity whose result is available after a time that follows its bytes, as if it came over a link. No core waits.
#include <chrono>
#include <cstring>
#include <thread>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

static ffi::Future Delayed(ffi::AnyBuffer in, ffi::Result<ffi::AnyBuffer> out, double nanoseconds_per_byte) {
  std::memcpy(out->untyped_data(), in.untyped_data(), in.size_bytes());
  ffi::Promise promise;
  ffi::Future future(promise);
  auto wait = std::chrono::nanoseconds(static_cast<int64_t>(nanoseconds_per_byte * in.size_bytes()));
  std::thread([promise, wait]() mutable {
    std::this_thread::sleep_for(wait);
    promise.SetAvailable();
  }).detach();
  return future;
}

extern "C" __attribute__((visibility("default"))) XLA_FFI_Error* delayed(XLA_FFI_CallFrame*);
XLA_FFI_DEFINE_HANDLER_SYMBOL(delayed, Delayed,
                              ffi::Ffi::Bind().Arg<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>().Attr<double>(
                                  "nanoseconds_per_byte"));
