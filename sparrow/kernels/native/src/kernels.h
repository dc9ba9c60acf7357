// The kernels of one instruction set, as the FFI layer calls them. Every pointer is to memory whose length the caller
// has compared with the counts; ids, bags and offsets may hold anything.
#pragma once

#include <cstdint>

#include "row_step.h"

namespace sparrow {

// Runs task(argument, i) for i in [0, count), on up to `threads` threads, the caller's among them.
struct Parallel {
  int32_t threads;
  void* pool;
  void (*run)(void* pool, int32_t threads, int64_t count, void (*task)(void*, int64_t), void* argument);
};

constexpr int32_t kMaxSlots = 16;

enum class TableType : int32_t { kFloat32, kBfloat16, kFloat16 };

struct LookupCall {
  const void* table;  // (num_rows, dim)
  TableType type;
  int64_t num_rows;
  int32_t dim;
  int64_t count;           // the number of entries
  const int32_t* ids;      // (count,)
  const float* gains;      // (count,), or null: all 1
  const int32_t* offsets;  // (num_bags + 1,), or null: entry i is bag i, and num_bags is count
  int64_t num_bags;
  float* out;  // (num_bags, dim)
};

struct UpdateCall {
  char* table;  // (num_rows, dim)
  int64_t row_bytes;
  int64_t num_rows;
  int32_t dim;
  int32_t num_slots;
  float* const* slots;         // (num_slots,) arrays of (num_rows, width)
  const int32_t* slot_widths;  // (num_slots,), dim or 1
  int64_t count;               // the number of entries
  const int32_t* ids;          // (count,)
  const int32_t* bags;         // (count,), or null: entry i is bag i
  const float* gains;          // (count,), or null: all 1
  int64_t num_bags;
  const float* bag_grads;  // (num_bags, dim)
  int32_t num_tables;
  int32_t num_scalars;
  const float* scalars;         // (num_tables, num_scalars)
  const uint32_t* seeds;        // (num_tables,)
  const int32_t* first_rows;    // (num_tables,) ascending
  const int32_t* logical_rows;  // (num_rows,) each row's number in its logical table, or null: row - first_rows[table]
  RowStep step;
  int32_t buffers;  // the number of scratch buffers of the step
};

// Sequence s is the tokens from offsets[s] to offsets[s + 1]. Arrays that an attention does not have are null.
struct AttentionCall {
  const float *q, *k, *v;  // (tokens, heads, dim), the same, (tokens, heads, width)
  int64_t tokens, heads, dim, width, sequences;
  const int32_t *offsets, *contexts, *candidates;  // (sequences + 1,), (sequences,), (sequences,)
  const float *position, *time, *times;            // (position_buckets,), (time_buckets,), (tokens,)
  int64_t position_buckets, time_buckets;
  bool softmax, log_time;
  float alpha, scale, time_unit;
  int64_t max_distance, sla_k1, sla_k2;
  float* out;          // (tokens, heads, width)
  float* lse;          // (tokens, heads), log Σ_j e^score of the softmax
  const float* grads;  // backward alone: (tokens, heads, width)
  float *dq, *dk, *dv, *dposition, *dtime;
};

void lookup(const LookupCall& call, const Parallel& parallel);
void update(const UpdateCall& call, const Parallel& parallel);
void attention(const AttentionCall& call, const Parallel& parallel);
void attention_backward(const AttentionCall& call, const Parallel& parallel);

struct Kernels {
  void (*lookup)(const LookupCall&, const Parallel&);
  void (*update)(const UpdateCall&, const Parallel&);
  void (*attention)(const AttentionCall&, const Parallel&);
  void (*attention_backward)(const AttentionCall&, const Parallel&);
};

}  // namespace sparrow
