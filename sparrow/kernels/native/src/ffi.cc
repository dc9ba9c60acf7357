// XLA's side: takes the buffers of a call apart, checks them, and hands them to the kernels that fit this machine.
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "handlers.h"
#include "pages.h"

namespace sparrow {
namespace {

// The compiled row steps by the hash of their code. A key means the same step in every process, unlike an address,
// so that a compiled JAX program may be kept on disk.
struct Registered {
  RowStep step;
  int32_t buffers;
};
std::mutex steps_mutex;
std::unordered_map<int64_t, Registered>& steps() {
  static auto* steps = new std::unordered_map<int64_t, Registered>;  // never destroyed: threads may outlive it
  return *steps;
}
std::optional<Registered> find_step(int64_t key) {
  std::lock_guard<std::mutex> lock(steps_mutex);
  const auto found = steps().find(key);
  return found == steps().end() ? std::nullopt : std::optional<Registered>(found->second);
}

ffi::Error handle_lookup(ffi::ThreadPool pool, Array table, Array ids, Array offsets, Array gains, int64_t threads,
                         ffi::Result<Array> out) {
  LookupCall call{};
  int64_t bytes;
  if (table.dimensions().size() != 2 || !table_type(table.element_type(), &call.type, &bytes)) {
    return refuse("the table must be a matrix of float32, bfloat16 or float16");
  }
  if (!is(ids, Type::S32, 1) || !is(offsets, Type::S32, 1) || !is(gains, Type::F32, 1) || !is(*out, Type::F32, 2)) {
    return refuse("lookup takes ids and offsets of int32 and gains of float32");
  }
  call.table = table.untyped_data();
  call.num_rows = table.dimensions()[0];
  call.dim = static_cast<int32_t>(table.dimensions()[1]);
  call.count = count(ids);
  call.ids = ids.typed_data<int32_t>();
  call.offsets = or_null<int32_t>(offsets);
  call.gains = or_null<float>(gains);
  call.num_bags = out->dimensions()[0];
  call.out = out->typed_data<float>();
  const bool fits = out->dimensions()[1] == call.dim && (call.gains == nullptr || count(gains) == call.count) &&
                    (call.offsets != nullptr ? count(offsets) == call.num_bags + 1 : call.count == call.num_bags);
  if (!fits) return refuse("the arrays of a lookup have lengths that do not belong together");
  prefer_huge_pages(call.table, call.num_rows * call.dim * bytes);
  return launch(kernels.load()->lookup, call, pool, threads);
}

// Table and slots are changed in place.
ffi::Error handle_update(ffi::ThreadPool pool, Array ids, Array bags, Array gains, Array bag_grads, Array scalars,
                         Array seeds, Array first_rows, Array logical_rows, Array table, ffi::RemainingArgs slots,
                         int64_t step, int64_t threads, ffi::Result<Array> new_table, ffi::RemainingRets new_slots) {
  UpdateCall call{};
  TableType type;
  if (table.dimensions().size() != 2 || !table_type(table.element_type(), &type, &call.row_bytes)) {
    return refuse("the table must be a matrix of float32, bfloat16 or float16");
  }
  if (!is(ids, Type::S32, 1) || !is(bags, Type::S32, 1) || !is(gains, Type::F32, 1) || !is(bag_grads, Type::F32, 2) ||
      !is(scalars, Type::F32, 2) || !is(seeds, Type::U32, 1) || !is(first_rows, Type::S32, 1) ||
      !is(logical_rows, Type::S32, 1)) {
    return refuse("an argument of update has the wrong type");
  }
  call.num_rows = table.dimensions()[0];
  call.dim = static_cast<int32_t>(table.dimensions()[1]);
  call.row_bytes *= call.dim;
  call.count = count(ids);
  call.ids = ids.typed_data<int32_t>();
  call.bags = or_null<int32_t>(bags);
  call.gains = or_null<float>(gains);
  call.num_bags = bag_grads.dimensions()[0];
  call.bag_grads = bag_grads.typed_data<float>();
  call.num_tables = static_cast<int32_t>(scalars.dimensions()[0]);
  call.num_scalars = static_cast<int32_t>(scalars.dimensions()[1]);
  call.scalars = scalars.typed_data<float>();
  call.seeds = seeds.typed_data<uint32_t>();
  call.first_rows = first_rows.typed_data<int32_t>();
  call.logical_rows = or_null<int32_t>(logical_rows);
  call.num_slots = static_cast<int32_t>(slots.size());
  const bool fits = (call.dim == 0 || bag_grads.dimensions()[1] == call.dim) && call.num_tables > 0 &&
                    count(seeds) == call.num_tables && count(first_rows) == call.num_tables &&
                    (call.bags == nullptr || count(bags) == call.count) &&
                    (call.gains == nullptr || count(gains) == call.count) &&
                    (call.logical_rows == nullptr || count(logical_rows) == call.num_rows);
  if (!fits) return refuse("the arrays of an update have lengths that do not belong together");
  if (call.num_slots > kMaxSlots) return refuse("too many slots");
  if (table.untyped_data() != new_table->untyped_data()) return refuse("the table is not updated in place");
  call.table = static_cast<char*>(new_table->untyped_data());

  float* slot_data[kMaxSlots];
  int32_t slot_widths[kMaxSlots];
  for (int32_t k = 0; k < call.num_slots; ++k) {
    const auto old_slot = slots.get<Array>(k);
    const auto result = new_slots.get<Array>(k);
    if (!old_slot.has_value() || !result.has_value()) return refuse("slots and new slots must be as many");
    ffi::Result<Array> new_slot = *result;
    if (old_slot->untyped_data() != new_slot->untyped_data()) return refuse("a slot is not updated in place");
    const bool per_row = old_slot->dimensions().size() == 1;
    slot_widths[k] = per_row ? 1 : call.dim;
    if (old_slot->element_type() != Type::F32 || count(*old_slot) != call.num_rows * slot_widths[k]) {
      return refuse("a slot must be float32, with one number or one vector per row");
    }
    slot_data[k] = new_slot->typed_data<float>();
  }
  call.slots = slot_data;
  call.slot_widths = slot_widths;

  prefer_huge_pages(call.table, call.num_rows * call.row_bytes);
  for (int32_t k = 0; k < call.num_slots; ++k) {
    prefer_huge_pages(slot_data[k], call.num_rows * slot_widths[k] * int64_t(sizeof(float)));
  }

  const std::optional<Registered> registered = find_step(step);
  if (!registered) return refuse("this program's row step has not been loaded in this process");
  call.step = registered->step;
  call.buffers = registered->buffers;
  return launch(kernels.load()->update, call, pool, threads);
}

}  // namespace
}  // namespace sparrow

#pragma GCC visibility push(default)

SPARROW_HANDLER(sparrow_lookup, sparrow::handle_lookup, "threads");
SPARROW_HANDLER(sparrow_update, sparrow::handle_update, "step", "threads");

extern "C" {

int32_t sparrow_cpu_level() { return sparrow::cpu_level(); }

void sparrow_move_to_huge_pages(const void* data, int64_t bytes) { sparrow::move_to_huge_pages(data, bytes); }

void sparrow_use_kernels(const sparrow::Kernels* kernels) { sparrow::kernels.store(kernels); }

void sparrow_register_step(int64_t key, sparrow::RowStep step, int32_t buffers) {
  std::lock_guard<std::mutex> lock(sparrow::steps_mutex);
  sparrow::steps()[key] = {step, buffers};
}

}  // extern "C"

#pragma GCC visibility pop
