// XLA's side: one FFI handler that runs a plan, the list of launches that Python made when JAX traced the call
// (plan.py has the format). It knows nothing of lookups and updates.
#include <deque>

#include "programs.h"
#include "sides.h"
#include "xla/ffi/api/ffi.h"

namespace sparrow {
namespace {
namespace ffi = xla::ffi;

enum Operation : int64_t { kLaunch = 1, kZero = 2, kFork = 3, kJoin = 4, kMap = 5 };
enum Stream : int64_t { kMain = 0, kSide = 1 };
enum Argument : int64_t { kInput = 0, kOutput = 1, kNumber = 2, kNull = 3, kMapped = 4 };
constexpr int64_t kContinues = 16;  // added to an argument's kind: it is one more field of the same kernel parameter
constexpr int64_t kMostArguments = 96;

struct alignas(64) TensorMap {
  char bytes[128];  // a CUtensorMap
};

struct Buffers {
  std::vector<char*> inputs, outputs;

  void* at(int64_t kind, int64_t index, int64_t offset) const {
    const std::vector<char*>& side = kind == kInput ? inputs : outputs;
    if (index < 0 || static_cast<size_t>(index) >= side.size()) throw Failure{"the plan names a buffer that is not there"};
    return side[index] + offset;
  }
};

class Run {
 public:
  Run(const Driver& d, const std::vector<std::shared_ptr<Program>>& programs, Sides& sides, const Buffers& buffers, Handle stream)
      : driver_(d), programs_(programs), sides_(sides), buffers_(buffers), stream_(stream) {}

  void all(const int64_t* plan, int64_t size, Handle context) {
    std::unique_lock<std::mutex> lock;
    for (int64_t at = 0; at < size;) {
      const int64_t* op = plan + at;
      const int64_t left = size - at;
      if (op[0] == kLaunch && left >= 8 && op[7] <= kMostArguments && left >= 8 + 3 * op[7]) {
        launch(op);
        at += 8 + 3 * op[7];
      } else if (op[0] == kZero && left >= 6) {
        const auto to = reinterpret_cast<uint64_t>(buffers_.at(op[1], op[2], op[3]));
        check(driver_, driver_.memset_async(to, 0, op[4], stream(op[5])), "memset");
        at += 6;
      } else if (op[0] == kMap && left >= 8) {
        map(op);
        at += 8;
      } else if (op[0] == kFork) {
        side_ = &sides_.of(context);
        lock = std::unique_lock<std::mutex>(side_->mutex);
        check(driver_, driver_.event_record(side_->fork, stream_), "fork");
        check(driver_, driver_.stream_wait(side_->stream, side_->fork, 0), "fork");
        at += 1;
      } else if (op[0] == kJoin && side_ != nullptr) {
        check(driver_, driver_.event_record(side_->join, side_->stream), "join");
        check(driver_, driver_.stream_wait(stream_, side_->join, 0), "join");
        lock.unlock();
        at += 1;
      } else {
        throw Failure{"the plan is damaged"};
      }
    }
  }

 private:
  Handle stream(int64_t wanted) const {
    if (wanted != kMain && side_ == nullptr) throw Failure{"the plan is damaged"};
    return wanted == kMain ? stream_ : side_->stream;
  }

  // bfloat16 (type 9) in boxes of 64 numbers x 1 head x rows, in the 128-byte swizzle (3), with the widest promotion in L2 but one (2).
  void map(const int64_t* op) {
    const auto dim = static_cast<uint64_t>(op[4]), heads = static_cast<uint64_t>(op[5]);
    const uint64_t sizes[] = {dim, heads, static_cast<uint64_t>(op[6])}, strides[] = {dim * 2, heads * dim * 2};
    const uint32_t box[] = {64, 1, static_cast<uint32_t>(op[7])}, steps[] = {1, 1, 1};
    maps_.emplace_back();
    check(driver_,
          driver_.tensor_map(&maps_.back(), 9, 3, buffers_.at(op[1], op[2], op[3]), sizes, strides, box, steps, 0, 3, 2, 0),
          "describing an array to the copy engine");
  }

  void launch(const int64_t* op) {
    const auto program = static_cast<size_t>(op[1]), kernel = static_cast<size_t>(op[2]);
    if (program >= programs_.size() || kernel >= programs_[program]->kernels.size()) {
      throw Failure{"the plan names a kernel that is not there"};
    }
    union Cell {
      void* pointer;
      uint32_t number;
    } cells[kMostArguments];
    void* parameters[kMostArguments];
    int64_t count = 0;
    for (int64_t i = 0; i < op[7]; ++i) {
      const int64_t* argument = op + 8 + 3 * i;
      const int64_t kind = argument[0] % kContinues;
      cells[i].pointer = nullptr;
      if (kind == kNumber) {
        cells[i].number = static_cast<uint32_t>(argument[1]);
      } else if (kind == kMapped) {
        if (argument[1] < 0 || static_cast<size_t>(argument[1]) >= maps_.size()) throw Failure{"the plan is damaged"};
        parameters[count++] = &maps_[argument[1]];
        continue;
      } else if (kind != kNull) {
        cells[i].pointer = buffers_.at(kind, argument[1], argument[2]);
      }
      if (argument[0] < kContinues) parameters[count++] = &cells[i];
    }
    check(driver_,
          driver_.launch(programs_[program]->kernels[kernel], op[3], 1, 1, op[4], 1, 1, op[5], stream(op[6]), parameters, nullptr),
          "launching a kernel");
  }

  const Driver& driver_;
  const std::vector<std::shared_ptr<Program>>& programs_;
  Sides& sides_;
  const Buffers& buffers_;
  const Handle stream_;
  Side* side_ = nullptr;
  std::deque<TensorMap> maps_;
};

// The state of one call in an executable: the programs that its plan launches, and its second streams.
struct Held {
  explicit Held(const Driver& d) : sides(d) {}
  static ffi::TypeId id;
  std::vector<std::shared_ptr<Program>> programs;
  Sides sides;
};
ffi::TypeId Held::id = {};

ffi::ErrorOr<std::unique_ptr<Held>> instantiate(ffi::Span<const int64_t> keys, ffi::Span<const int64_t> /* plan */) {
  std::string error;
  const Driver& d = driver(&error);
  if (!error.empty()) return ffi::Unexpected(ffi::Error::Internal("sparrow: " + error));
  auto held = std::make_unique<Held>(d);
  for (const int64_t key : keys) {
    std::shared_ptr<Program> program = Programs::all().find(key);
    if (program == nullptr) {
      return ffi::Unexpected(ffi::Error::Internal("sparrow: the kernels of this program are not loaded in this process; trace it again"));
    }
    held->programs.push_back(std::move(program));
  }
  return held;
}

ffi::Error execute(Handle stream, Held* held, ffi::RemainingArgs args, ffi::RemainingRets rets, ffi::Span<const int64_t> plan) {
  std::string error;
  const Driver& d = driver(&error);
  if (!error.empty()) return ffi::Error::Internal("sparrow: " + error);
  Buffers buffers;
  for (size_t i = 0; i < args.size(); ++i) {
    auto buffer = args.get<ffi::AnyBuffer>(i);
    if (!buffer.has_value()) return ffi::Error::InvalidArgument("sparrow: an argument is no array");
    buffers.inputs.push_back(static_cast<char*>(buffer->untyped_data()));
  }
  for (size_t i = 0; i < rets.size(); ++i) {
    auto buffer = rets.get<ffi::AnyBuffer>(i);
    if (!buffer.has_value()) return ffi::Error::InvalidArgument("sparrow: a result is no array");
    buffers.outputs.push_back(static_cast<char*>((*buffer)->untyped_data()));
  }
  // XLA makes its context current; where it has not, the stream knows which one it is.
  Handle current = nullptr, wanted = nullptr, popped = nullptr;
  d.current_context(&current);
  if (d.stream_context(stream, &wanted) != 0 || wanted == nullptr) wanted = current;
  const bool pushed = wanted != current && d.push_context(wanted) == 0;
  try {
    Run(d, held->programs, held->sides, buffers, stream).all(plan.begin(), plan.size(), wanted);
  } catch (const Failure& failure) {
    error = failure.message;
  }
  if (pushed) d.pop_context(&popped);
  return error.empty() ? ffi::Error::Success() : ffi::Error::Internal("sparrow: " + error);
}

thread_local std::string last_error;

// Runs `work` in the first device's primary context, which is the one that XLA uses; 0, or 1 and `last_error`.
template <class Work>
int in_context(Work&& work) {
  const Driver& d = driver(&last_error);
  if (!last_error.empty()) return 1;
  int device = 0;
  Handle context = nullptr, popped = nullptr;
  try {
    check(d, d.device(&device, 0), "finding the GPU");
    check(d, d.retain_context(&context, device), "finding the GPU");
    const bool pushed = d.push_context(context) == 0;
    const Result result = work(d);
    if (pushed) d.pop_context(&popped);
    d.release_context(device);
    check(d, result, "pinning memory");
  } catch (const Failure& failure) {
    last_error = failure.message;
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace sparrow

#pragma GCC visibility push(default)
using Span = xla::ffi::Span<const int64_t>;
XLA_FFI_DEFINE_HANDLER_SYMBOL(sparrow_cuda_instantiate, sparrow::instantiate,
                              xla::ffi::Ffi::BindInstantiate().Attr<Span>("keys").Attr<Span>("plan"));
template <class Binding>
static auto with_call(Binding&& binding) {
  return std::move(binding).template Ctx<xla::ffi::State<sparrow::Held>>().RemainingArgs().RemainingRets().template Attr<Span>("keys")
      .template Attr<Span>("plan");
}
#ifdef SPARROW_WITHOUT_STREAM  // the emulation of the tests, on XLA's CPU
static xla::ffi::Error execute_without_stream(sparrow::Held* held, xla::ffi::RemainingArgs args, xla::ffi::RemainingRets rets,
                                              Span /* keys */, Span plan) {
  return sparrow::execute(nullptr, held, args, rets, plan);
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(sparrow_cuda, execute_without_stream, with_call(xla::ffi::Ffi::Bind()));
#else
static xla::ffi::Error execute_on_stream(sparrow::Handle stream, sparrow::Held* held, xla::ffi::RemainingArgs args,
                                         xla::ffi::RemainingRets rets, Span /* keys */, Span plan) {
  return sparrow::execute(stream, held, args, rets, plan);
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(sparrow_cuda, execute_on_stream,
                              with_call(xla::ffi::Ffi::Bind().Ctx<xla::ffi::PlatformStream<sparrow::Handle>>()),
                              {xla::ffi::Traits::kCmdBufferCompatible});
#endif

extern "C" {
XLA_FFI_TypeId* sparrow_cuda_type_id() { return &sparrow::Held::id; }
const XLA_FFI_TypeInfo* sparrow_cuda_type_info() {
  static const XLA_FFI_TypeInfo info = xla::ffi::MakeTypeInfo<sparrow::Held>();
  return &info;
}

// Why the last call of this thread failed.
const char* sparrow_cuda_error() { return sparrow::last_error.c_str(); }

// Whether the driver works: 0, or 1 and `sparrow_cuda_error`.
int sparrow_cuda_driver() {
  sparrow::driver(&sparrow::last_error);
  return !sparrow::last_error.empty();
}

// Loads `count` kernels of `image` under `key`. `shared[i]`: dynamic shared memory that kernel i asks for beyond 48 KB.
int sparrow_cuda_register(int64_t key, const void* image, const char* const* names, const int* shared, int count) {
  const sparrow::Driver& d = sparrow::driver(&sparrow::last_error);
  if (!sparrow::last_error.empty()) return 1;
  try {
    std::shared_ptr<sparrow::Program> program = sparrow::Programs::all().find(key);
    if (program == nullptr) program = std::make_shared<sparrow::Program>(d, image, names, shared, count);
    sparrow::Programs::all().add(key, std::move(program));
  } catch (const sparrow::Failure& failure) {
    sparrow::last_error = failure.message;
    return 1;
  }
  return 0;
}

// Makes memory of the host readable and writable for kernels on all devices; and takes that back.
int sparrow_cuda_pin(void* data, int64_t bytes) {
  return sparrow::in_context([&](const sparrow::Driver& d) { return d.host_register(data, bytes, sparrow::kPortableMapped); });
}
int sparrow_cuda_unpin(void* data) {
  return sparrow::in_context([&](const sparrow::Driver& d) { return d.host_unregister(data); });
}

// Whether the program `key` is loaded.
int sparrow_cuda_has(int64_t key) { return sparrow::Programs::all().find(key) != nullptr; }

// How many programs are loaded.
int64_t sparrow_cuda_loaded() { return static_cast<int64_t>(sparrow::Programs::all().loaded()); }
}
#pragma GCC visibility pop
