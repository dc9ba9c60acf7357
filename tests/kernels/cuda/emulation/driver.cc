// The CUDA driver's functions that the shim calls, for kernels compiled by g++. An image is the path of a shared library.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <vector>

struct Dim {
  unsigned x, y, z;
};
extern "C" {
Dim emulated_grid, emulated_block_index;
int64_t emulated_launches = 0, emulated_libraries = 0;
std::atomic<int64_t> emulated_handles{0};  // streams and events
}

namespace {
constexpr size_t kStack = 256 << 10;
struct Collective {
  unsigned arrived = 0;
  int phase = 0;
  uint64_t value[2][32];
};
#if defined(__x86_64__)
// Without the system calls of swapcontext, which keeps the signal mask: the callee-saved registers and the stack.
struct Context {
  void* stack;
};
extern "C" void emulated_switch(void** from, void* to);
asm(R"(
.text
.type emulated_switch, @function
emulated_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");
void switch_to(Context& from, Context& to) { emulated_switch(&from.stack, to.stack); }
void make(Context& context, char* stack, size_t size, void (*entry)()) {
  void** top = reinterpret_cast<void**>(stack + size);
  top[-1] = nullptr;  // no return address: entry never returns
  top[-2] = reinterpret_cast<void*>(entry);
  context.stack = top - 8;  // and six registers, of any value
}
#else
struct Context {
  ucontext_t context;
};
void switch_to(Context& from, Context& to) { swapcontext(&from.context, &to.context); }
void make(Context& context, char* stack, size_t size, void (*entry)()) {
  getcontext(&context.context);
  context.context.uc_stack.ss_sp = stack;
  context.context.uc_stack.ss_size = size;
  context.context.uc_link = nullptr;
  makecontext(&context.context, entry, 0);
}
#endif
struct Thread {
  Context context;
  bool done;
};
std::recursive_mutex everything;  // one kernel at a time
std::vector<Thread> threads;
std::vector<std::map<unsigned, Collective>> warps;
char* stacks = nullptr;
size_t num_stacks = 0;
unsigned current;
Context scheduler;
void (*kernel)(void**);
void** kernel_arguments;
int phase, arrived, any[2], live;

void yield() { switch_to(threads[current].context, scheduler); }
void entry() {
  kernel(kernel_arguments);
  threads[current].done = true;
  --live;
  yield();
}
void run_block(unsigned n) {
  if (num_stacks < n) {
    stacks = static_cast<char*>(mmap(nullptr, n * kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    num_stacks = n;
  }
  threads.resize(n);
  warps.assign((n + 31) / 32, {});
  phase = arrived = any[0] = any[1] = 0;
  live = n;
  for (unsigned i = 0; i < n; ++i) {
    threads[i].done = false;
    make(threads[i].context, stacks + i * kStack, kStack, entry);
  }
  for (long rounds = 0; live > 0; ++rounds) {
    if (rounds > 1000000) {
      fprintf(stderr, "emulated kernel: deadlock\n");
      abort();
    }
    for (current = 0; current < n; ++current) {
      if (!threads[current].done) switch_to(scheduler, threads[current].context);
    }
  }
}
}  // namespace

#define API extern "C" __attribute__((visibility("default")))
API unsigned emulated_thread() { return current; }
API const uint64_t* emulated_exchange(unsigned mask, uint64_t x) {
  const unsigned lane = current % 32;
  if (!(mask >> lane & 1)) {
    fprintf(stderr, "emulated kernel: lane %u is not in its mask %x\n", lane, mask);
    abort();
  }
  Collective& c = warps[current / 32][mask];
  const int mine = c.phase;
  c.value[mine & 1][lane] = x;
  c.arrived |= 1u << lane;
  if (c.arrived == mask) {
    c.arrived = 0;
    ++c.phase;
  } else {
    while (c.phase == mine) yield();
  }
  return c.value[mine & 1];
}
API int emulated_barrier_or(int x) {
  const int mine = phase;
  any[mine & 1] |= x != 0;
  if (++arrived == live) {
    arrived = 0;
    any[(mine + 1) & 1] = 0;
    ++phase;
  } else {
    while (phase == mine) yield();
  }
  return any[mine & 1];
}

API int cuInit(unsigned) { return 0; }
API int cuGetErrorString(int, const char** text) { return *text = "emulated error", 0; }
API int cuDeviceGetCount(int* count) { return *count = 1, 0; }
API int cuLibraryLoadData(void** library, const void* image, const int*, void**, unsigned, const int*, void**, unsigned) {
  *library = dlopen(static_cast<const char*>(image), RTLD_NOW | RTLD_LOCAL);
  if (*library == nullptr) fprintf(stderr, "emulated driver: %s\n", dlerror());
  emulated_libraries += *library != nullptr;
  return *library == nullptr;
}
API int cuLibraryUnload(void* library) { return --emulated_libraries, dlclose(library); }
API int cuLibraryGetKernel(void** found, void* library, const char* name) {
  return (*found = dlsym(library, (std::string("emulated_") + name).c_str())) == nullptr;
}
API int cuKernelSetAttribute(int, int, void*, int) { return 0; }
API int cuLaunchKernel(void* function, unsigned grid, unsigned, unsigned, unsigned block, unsigned, unsigned, unsigned, void*, void** arguments, void**) {
  std::lock_guard<std::recursive_mutex> lock(everything);
  ++emulated_launches;
  kernel = reinterpret_cast<void (*)(void**)>(function);
  kernel_arguments = arguments;
  emulated_grid = {grid, 1, 1};
  for (unsigned b = 0; b < grid; ++b) {
    emulated_block_index = {b, 0, 0};
    run_block(block);
  }
  return 0;
}
API int cuMemsetD8Async(uint64_t to, unsigned char value, size_t size, void*) { return memset(reinterpret_cast<void*>(to), value, size), 0; }
// Every thread has a context of its own, as threads that serve several devices have: streams and events of another one are
// refused, as the driver refuses them.
namespace {
struct Owned {
  void* context;
};
void* here() {
  static thread_local char context;
  return &context;
}
void* owned() {
  ++emulated_handles;
  return new Owned{here()};
}
int release(void* handle) {
  --emulated_handles;
  delete static_cast<Owned*>(handle);
  return 0;
}
bool foreign(void* handle) { return handle != nullptr && static_cast<Owned*>(handle)->context != here(); }
}  // namespace
API int cuCtxGetCurrent(void** context) { return *context = here(), 0; }
API int cuStreamGetCtx(void*, void** context) { return *context = here(), 0; }
API int cuDeviceGet(int* device, int number) { return *device = number, number != 0; }
API int cuDevicePrimaryCtxRetain(void** context, int) { return *context = here(), 0; }
API int cuDevicePrimaryCtxRelease_v2(int) { return 0; }
API int cuMemHostRegister_v2(void* data, size_t, unsigned flags) { return data == nullptr || flags != 3; }
API int cuMemHostUnregister(void*) { return 0; }
API int cuCtxPushCurrent_v2(void*) { return 0; }
API int cuCtxPopCurrent_v2(void**) { return 0; }
API int cuCtxGetStreamPriorityRange(int* least, int* greatest) { return *least = *greatest = 0, 0; }
API int cuStreamCreateWithPriority(void** stream, unsigned, int) { return *stream = owned(), 0; }
API int cuStreamDestroy_v2(void* stream) { return release(stream); }
API int cuStreamWaitEvent(void* stream, void* event, unsigned) { return foreign(stream) || foreign(event); }
API int cuEventCreate(void** event, unsigned) { return *event = owned(), 0; }
API int cuEventDestroy_v2(void* event) { return release(event); }
API int cuTensorMapEncodeTiled(...) { return 801; }  // the emulation has no copy engine
API int cuEventRecord(void* event, void* stream) { return foreign(stream) || foreign(event); }
