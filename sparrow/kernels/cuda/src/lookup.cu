// Pooled rows of bags.
//   TABLE, OUT  types of the table and of the result (types.cuh)     BAGGED  bags of any length, not of one entry each
//   WARPS, MIN_BLOCKS  of the launch     AT_ONCE  rows of a group that are on their way together
//   BAGS  bags that a group sums side by side
typedef Kept<TABLE>::T Row;
typedef Kept<OUT>::T Out;

DEVICE void put(Out* to, const float* x) {
  Out values[V];
#pragma unroll
  for (int i = 0; i < V; ++i) values[i] = Kept<OUT>::put(x[i]);
  store_streaming(to, make_pack<V>(values));
}

#if !BAGGED
// One entry per bag: rows copied. A warp takes 32 bags.
extern "C" __global__ void __launch_bounds__(WARPS * 32, MIN_BLOCKS)
    lookup(const Row* table, u32 num_rows, const u32* __restrict__ ids, const float* __restrict__ gains,
               Out* out, u32 num_bags) {
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const u32 g = lane / L;
  const u32 unit = blockIdx.x * WARPS + warp, base = unit / SLICES * 32;
  if (base >= num_bags) return;
  const Group group{lane % L, FULL, unit % SLICES};
  table += group.slice * DIM;
  out += group.slice * DIM;
  const u32 my_id = base + lane < num_bags ? ids[base + lane] : NONE;
  float my_gain = 1.0f;
  if (gains) my_gain = base + lane < num_bags ? gains[base + lane] : 0.0f;
  constexpr int ROUNDS = 32 / G;  // bags of a group
  constexpr int U = AT_ONCE < ROUNDS ? AT_ONCE : ROUNDS;
#pragma unroll 1
  for (int first = 0; first < ROUNDS; first += U) {
    Pack<Row, V> x[U][K];
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const u32 id = __shfl_sync(FULL, my_id, (first + u) * G + g);
#pragma unroll
      for (int k = 0; k < K; ++k) {
        x[u][k] = {};
        if (id < num_rows && group.has(k)) x[u][k] = load_constant<V>(table + id * STRIDE + group.offset(k));
      }
    }
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const u32 bag = base + (first + u) * G + g;
      const float gain = __shfl_sync(FULL, my_gain, (first + u) * G + g);
#pragma unroll
      for (int k = 0; k < K; ++k) {
        if (bag < num_bags && group.has(k)) {
          float values[V];
#pragma unroll
          for (int v = 0; v < V; ++v) {
            values[v] = Kept<TABLE>::get(number(x[u][k], v));
            if (gains) values[v] *= gain;
          }
          put(out + bag * STRIDE + group.offset(k), values);
        }
      }
    }
  }
}

#else
// Bags of any length: a group sums BAGS of them side by side, each in the order of its entries. Ids are read L entries ahead.
extern "C" __global__ void __launch_bounds__(WARPS * 32, MIN_BLOCKS)
    lookup(const Row* table, u32 num_rows, const u32* __restrict__ ids, const u32* __restrict__ offsets,
                const float* __restrict__ gains, Out* out, u32 num_bags) {
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const u32 unit = blockIdx.x * WARPS + warp, first_bag = (unit / SLICES * G + lane / L) * BAGS;
  const Group group{lane % L, FULL, unit % SLICES};
  table += group.slice * DIM;
  out += group.slice * DIM;
  constexpr int U = AT_ONCE < L ? AT_ONCE : L;
  u32 start[BAGS], stop[BAGS], my_id[BAGS], next_id[BAGS], longest = 0;
  float my_gain[BAGS], next_gain[BAGS], sum[BAGS][E];
#pragma unroll
  for (int b = 0; b < BAGS; ++b) {
    const bool there = first_bag + b < num_bags;
    start[b] = there ? offsets[first_bag + b] : 0;
    stop[b] = there ? offsets[first_bag + b + 1] : 0;
    longest = max(longest, stop[b] - start[b]);
#pragma unroll
    for (int j = 0; j < E; ++j) sum[b][j] = 0;
  }
#pragma unroll
  for (int d = L; d < 32; d *= 2) longest = max(longest, __shfl_xor_sync(FULL, longest, d));
  const auto take = [&](u32 done, u32 (&id)[BAGS], float (&gain)[BAGS]) {
#pragma unroll
    for (int b = 0; b < BAGS; ++b) {
      const u32 at = start[b] + done + group.lane;
      id[b] = at < stop[b] ? ids[at] : NONE;
      gain[b] = gains && at < stop[b] ? gains[at] : 1.0f;
    }
  };
  take(0, next_id, next_gain);
#pragma unroll 1
  for (u32 done = 0; done < longest; done += U) {
    const u32 first = done % L;
    if (first == 0) {
#pragma unroll
      for (int b = 0; b < BAGS; ++b) my_id[b] = next_id[b], my_gain[b] = next_gain[b];
      take(done + L, next_id, next_gain);
    }
    Pack<Row, V> x[U][BAGS][K];
    float gain[U][BAGS];
#pragma unroll
    for (int u = 0; u < U; ++u)
#pragma unroll
      for (int b = 0; b < BAGS; ++b) {
        const u32 id = __shfl_sync(FULL, my_id[b], first + u, L);
        if (gains) gain[u][b] = __shfl_sync(FULL, my_gain[b], first + u, L);
#pragma unroll
        for (int k = 0; k < K; ++k) {
          x[u][b][k] = {};
          if (id < num_rows && group.has(k)) x[u][b][k] = load_constant<V>(table + id * STRIDE + group.offset(k));
        }
      }
#pragma unroll
    for (int u = 0; u < U; ++u)
#pragma unroll
      for (int b = 0; b < BAGS; ++b)
#pragma unroll
        for (int j = 0; j < E; ++j) {
          const float value = Kept<TABLE>::get(number(x[u][b][j / V], j % V));
          sum[b][j] += gains ? gain[u][b] * value : value;
        }
  }
#pragma unroll
  for (int b = 0; b < BAGS; ++b) {
    if (first_bag + b < num_bags) {
#pragma unroll
      for (int k = 0; k < K; ++k) {
        if (group.has(k)) put(out + (first_bag + b) * STRIDE + group.offset(k), sum[b] + k * V);
      }
    }
  }
}
#endif
