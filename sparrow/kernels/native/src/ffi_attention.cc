// XLA's calls of the attention kernels.
#include "handlers.h"

namespace sparrow {
namespace {

float* floats(ffi::Result<Array>& array) { return static_cast<float*>(array->untyped_data()); }

// What both directions take.
struct Given {
  Array q, k, v, offsets, contexts, candidates, position, time, times;
  int64_t softmax, log_time, max_distance, sla_k1, sla_k2;
  float alpha, scale, time_unit;

  // Why the arrays do not belong together, or null.
  const char* fill(AttentionCall* call) const {
    for (const Array& array : {q, k, v}) {
      if (!is(array, Type::F32, 3)) return "attention takes q, k and v of float32";
    }
    for (const Array& array : {offsets, contexts, candidates}) {
      if (!is(array, Type::S32, 1)) return "attention takes offsets, contexts and candidates of int32";
    }
    for (const Array& array : {position, time, times}) {
      if (!is(array, Type::F32, 1)) return "attention takes biases and times of float32";
    }
    call->tokens = q.dimensions()[0], call->heads = q.dimensions()[1], call->dim = q.dimensions()[2];
    call->width = v.dimensions()[2], call->sequences = count(offsets) - 1;
    const bool fits = call->sequences >= 0 && count(k) == count(q) && v.dimensions()[0] == call->tokens &&
                      v.dimensions()[1] == call->heads && (count(contexts) == 0 || count(contexts) == call->sequences) &&
                      (count(candidates) == 0 || count(candidates) == call->sequences) &&
                      (count(time) == 0 || count(times) == call->tokens);
    if (!fits) return "the arrays of an attention have lengths that do not belong together";
    call->q = or_null<float>(q), call->k = or_null<float>(k), call->v = or_null<float>(v);
    call->offsets = or_null<int32_t>(offsets), call->contexts = or_null<int32_t>(contexts);
    call->candidates = or_null<int32_t>(candidates);
    call->position = or_null<float>(position), call->time = or_null<float>(time), call->times = or_null<float>(times);
    call->position_buckets = count(position), call->time_buckets = count(time);
    call->softmax = softmax, call->log_time = log_time, call->max_distance = max_distance;
    call->sla_k1 = sla_k1, call->sla_k2 = sla_k2;
    call->alpha = alpha, call->scale = scale, call->time_unit = time_unit;
    return nullptr;
  }
};

ffi::Error handle_attention(ffi::ThreadPool pool, Array q, Array k, Array v, Array offsets, Array contexts, Array candidates,
                            Array position, Array time, Array times, int64_t softmax, int64_t log_time,
                            int64_t max_distance, int64_t sla_k1, int64_t sla_k2, float alpha, float scale, float time_unit,
                            int64_t threads, ffi::Result<Array> out, ffi::Result<Array> lse) {
  AttentionCall call{};
  const Given given{q, k, v, offsets, contexts, candidates, position, time, times,
                    softmax, log_time, max_distance, sla_k1, sla_k2, alpha, scale, time_unit};
  if (const char* problem = given.fill(&call)) return refuse(problem);
  if (count(*out) != count(v) || (softmax && count(*lse) != call.tokens * call.heads)) {
    return refuse("the results of an attention have the wrong size");
  }
  call.out = floats(out), call.lse = floats(lse);
  return launch(kernels.load()->attention, call, pool, threads);
}

ffi::Error handle_backward(ffi::ThreadPool pool, Array q, Array k, Array v, Array offsets, Array contexts, Array candidates,
                           Array position, Array time, Array times, Array out, Array lse, Array grads, int64_t softmax,
                           int64_t log_time, int64_t max_distance, int64_t sla_k1, int64_t sla_k2, float alpha, float scale,
                           float time_unit, int64_t threads, ffi::Result<Array> dq, ffi::Result<Array> dk,
                           ffi::Result<Array> dv, ffi::Result<Array> dposition, ffi::Result<Array> dtime) {
  AttentionCall call{};
  const Given given{q, k, v, offsets, contexts, candidates, position, time, times,
                    softmax, log_time, max_distance, sla_k1, sla_k2, alpha, scale, time_unit};
  if (const char* problem = given.fill(&call)) return refuse(problem);
  if (!is(grads, Type::F32, 3) || !is(out, Type::F32, 3) || count(grads) != count(v) || count(out) != count(v) ||
      (softmax && count(lse) != call.tokens * call.heads) || count(*dq) != count(q) || count(*dk) != count(k) ||
      count(*dv) != count(v) || count(*dposition) != count(position) || count(*dtime) != count(time)) {
    return refuse("the arrays of an attention's gradient have the wrong size");
  }
  call.out = static_cast<float*>(out.untyped_data()), call.lse = static_cast<float*>(lse.untyped_data());
  call.grads = or_null<float>(grads);
  call.dq = floats(dq), call.dk = floats(dk), call.dv = floats(dv);
  call.dposition = floats(dposition), call.dtime = floats(dtime);
  return launch(kernels.load()->attention_backward, call, pool, threads);
}

}  // namespace
}  // namespace sparrow

#pragma GCC visibility push(default)
#define ATTRIBUTES "softmax", "log_time", "max_distance", "sla_k1", "sla_k2", "alpha", "scale", "time_unit", "threads"
SPARROW_HANDLER(sparrow_attention, sparrow::handle_attention, ATTRIBUTES);
SPARROW_HANDLER(sparrow_attention_backward, sparrow::handle_backward, ATTRIBUTES);
#pragma GCC visibility pop
