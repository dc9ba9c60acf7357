// Layer normalization of rows, and its gradient. GROUP warps take a row at a time and keep its numbers in registers, while they load the
// next one.
//   NUMBERS  of all arrays but scale, bias and sums (types.cuh)     DIM  numbers of a row, a multiple of 32 GROUP     WARPS  of a block
//   GATED    0  y = norm(total) with total = x + added, or norm(x)      1  y = [u, x, norm(x) u] with u = silu(p + shift), where x is there already
constexpr int E = DIM / 32 / GROUP;                                             // numbers of a lane
constexpr int V = E % 8 == 0 ? (NUMBERS ? 8 : 4) : E % 4 == 0 ? 4 : E % 2 == 0 ? 2 : 1;  // of these, side by side
constexpr int SUMS = GATED ? 3 : 2, WIDE = GATED ? 3 * DIM : DIM;  // WIDE: from row to row of x, y and dy
constexpr u32 ROWS = WARPS / GROUP, THREADS = 32 * GROUP;          // rows of a block at a time, threads of a row
typedef Kept<NUMBERS>::T T;
struct Row {  // as it lies in memory
  Pack<T, V> pack[E / V];
};

DEVICE int column(int i) { return (i / V * THREADS + int(threadIdx.x % THREADS)) * V + i % V; }
DEVICE u64 first_row() { return blockIdx.x * ROWS + threadIdx.x / THREADS; }

DEVICE void read_numbers(float* x, const float* from) {
#pragma unroll
  for (int i = 0; i < E; i += V) {
    const Pack<float, V> pack = load_constant<V>(from + column(i));
#pragma unroll
    for (int j = 0; j < V; ++j) x[i + j] = number(pack, j);
  }
}
DEVICE void fetch(Row& row, const T* from) {
#pragma unroll
  for (int i = 0; i < E; i += V) row.pack[i / V] = load_constant<V>(from + column(i));
}
DEVICE void unpack(float* x, const Row& row) {
#pragma unroll
  for (int i = 0; i < E; ++i) x[i] = Kept<NUMBERS>::get(number(row.pack[i / V], i % V));
}
DEVICE void write_row(T* row, const float* x) {
#pragma unroll
  for (int i = 0; i < E; i += V) {
    T kept[V];
#pragma unroll
    for (int j = 0; j < V; ++j) kept[j] = Kept<NUMBERS>::put(x[i + j]);
    store<CACHED>(row + column(i), make_pack<V>(kept), 0);
  }
}
// The sums over the row. Each call in a loop has its own `parts`, N for each warp of the block.
template <int N>
DEVICE void over_row(float* x, float* parts) {
#pragma unroll
  for (int n = 0; n < N; ++n)
#pragma unroll
    for (int d = 16; d > 0; d /= 2) x[n] += __shfl_xor_sync(FULL, x[n], d);
  if (GROUP == 1) return;
  const u32 warp = threadIdx.x / 32;
#pragma unroll
  for (int n = 0; n < N; ++n)
    if (threadIdx.x % 32 == 0) parts[warp * N + n] = x[n];
  __syncthreads();
#pragma unroll
  for (int n = 0; n < N; ++n) {
    x[n] = 0.f;
#pragma unroll
    for (int w = 0; w < GROUP; ++w) x[n] += parts[(warp / GROUP * GROUP + w) * N + n];
  }
}
// x becomes (x - mean) / deviation; 1 / deviation.
DEVICE float normalize(float* x, float epsilon, float* parts) {
  float sum = 0.f, squares = 0.f;
#pragma unroll
  for (int i = 0; i < E; ++i) sum += x[i];
  over_row<1>(&sum, parts);
  const float mean = sum / DIM;
#pragma unroll
  for (int i = 0; i < E; ++i) x[i] -= mean, squares += x[i] * x[i];
  over_row<1>(&squares, parts + WARPS);
  const float factor = 1.f / sqrtf(squares / DIM + epsilon);
#pragma unroll
  for (int i = 0; i < E; ++i) x[i] *= factor;
  return factor;
}
DEVICE float sigmoid(float x) { return NUMBERS ? reciprocal_fast(1.f + exp2_fast(-1.44269504f * x)) : 1.f / (1.f + expf(-x)); }

// The rows of p are `apart` numbers from each other; null: u is in y already.
extern "C" __global__ void __launch_bounds__(32 * WARPS, NORM_BLOCKS)
    norm_rows(const T* x, const T* __restrict__ p, const float* __restrict__ shift, const float* __restrict__ scale,
              const float* __restrict__ bias, const T* __restrict__ added, T* total, T* y, u32 rows, u32 apart, float epsilon) {
  __shared__ float parts[2 * WARPS];
  float by[E], plus[E], moved[GATED ? E : 1];
  read_numbers(by, scale);
  read_numbers(plus, bias);
  if (GATED) read_numbers(moved, shift);
  Row next, other;  // of x, and of p or of what is added
  const auto ahead = [&](u64 row) {
    if (row >= rows) return;
    fetch(next, x + row * WIDE);
    if (GATED) fetch(other, p == nullptr ? y + row * WIDE : p + row * apart);
    else if (added != nullptr) fetch(other, added + row * WIDE);
  };
  u64 row = first_row();
  ahead(row);
  for (u64 begin = blockIdx.x * ROWS; begin < rows; begin += gridDim.x * ROWS, row += gridDim.x * ROWS) {
    float own[E], more[E];
    unpack(own, next), unpack(more, other);
    ahead(row + gridDim.x * ROWS);
    const bool there = row < rows;
    if (GATED && p != nullptr) {
#pragma unroll
      for (int i = 0; i < E; ++i) {
        const float moving = more[i] + moved[GATED ? i : 0];
        more[i] = moving * sigmoid(moving);
      }
      if (there) write_row(y + row * WIDE, more);
    } else if (!GATED && added != nullptr) {
#pragma unroll
      for (int i = 0; i < E; ++i) own[i] = Kept<NUMBERS>::get(Kept<NUMBERS>::put(own[i] + more[i]));
      if (there) write_row(total + row * WIDE, own);
    }
    normalize(own, epsilon, parts);
#pragma unroll
    for (int i = 0; i < E; ++i) own[i] = (own[i] * by[i] + plus[i]) * (GATED ? more[i] : 1.f);
    if (there) write_row(y + row * WIDE + (GATED ? 2 * DIM : 0), own);
  }
}

// The rows of v, q and k, side by side in p after those of u, as silu(p + shift).
extern "C" __global__ void __launch_bounds__(32 * WARPS, NORM_BLOCKS)
    activate(const T* __restrict__ p, const float* __restrict__ shift, T* v, T* q, T* k, u32 rows, u32 apart) {
  float by[3][E];
#pragma unroll
  for (int a = 0; a < 3; ++a) read_numbers(by[a], shift + (a + 1) * DIM);
  Row next[3];
  const auto ahead = [&](u64 row) {
#pragma unroll
    for (int a = 0; a < 3; ++a)
      if (row < rows) fetch(next[a], p + row * apart + (a + 1) * DIM);
  };
  u64 row = first_row();
  for (ahead(row); row < rows; row += gridDim.x * ROWS) {
    float own[3][E];
#pragma unroll
    for (int a = 0; a < 3; ++a) unpack(own[a], next[a]);
    ahead(row + gridDim.x * ROWS);
#pragma unroll
    for (int a = 0; a < 3; ++a) {
#pragma unroll
      for (int i = 0; i < E; ++i) {
        const float x = own[a][i] + by[a][i];
        own[a][i] = x * sigmoid(x);
      }
      write_row((a == 0 ? v : a == 1 ? q : k) + row * DIM, own[a]);
    }
  }
}

// dx, and dp (rows `apart`), from dy; without GATED dx is that plus `kept`, null: nothing. sums: of each block, the gradients of
// scale and bias and, with GATED, the sum of dp. `zeros`: `fours` times four words that become 0, for kernels after this one.
extern "C" __global__ void __launch_bounds__(32 * WARPS, GRADIENT_BLOCKS)
    norm_gradient(const T* __restrict__ x, const T* __restrict__ p, const float* __restrict__ shift,
                  const float* __restrict__ scale, const float* __restrict__ bias, const T* __restrict__ dy, const T* __restrict__ kept, T* dx, T* dp, float* sums, u32 rows, u32 apart, float epsilon, uint4* zeros, u32 fours) {
  __shared__ float shared[SUMS * DIM], parts[4 * WARPS];
  float by[E], plus[GATED ? E : 1], moved[GATED ? E : 1], sum[SUMS][E];
  read_numbers(by, scale);
  if (GATED) read_numbers(plus, bias), read_numbers(moved, shift);
  for (u32 at = blockIdx.x * 32 * WARPS + threadIdx.x; at < fours; at += gridDim.x * 32 * WARPS) zeros[at] = uint4{0, 0, 0, 0};
#pragma unroll
  for (int s = 0; s < SUMS; ++s)
#pragma unroll
    for (int i = 0; i < E; ++i) sum[s][i] = 0.f;
  Row of_x, of_grad, of_more, of_p, of_first;
  const auto ahead = [&](u64 row) {
    if (row >= rows) return;
    fetch(of_x, x + row * WIDE);
    fetch(of_grad, dy + row * WIDE + (GATED ? 2 * DIM : 0));
    if (GATED) fetch(of_p, p + row * apart), fetch(of_first, dy + row * WIDE), fetch(of_more, dy + row * WIDE + DIM);
    else if (kept != nullptr) fetch(of_more, kept + row * DIM);
  };
  u64 row = first_row();
  ahead(row);
  for (u64 begin = blockIdx.x * ROWS; begin < rows; begin += gridDim.x * ROWS, row += gridDim.x * ROWS) {
    const bool there = row < rows;
    float own[E], grad[E], more[E];  // the row, normalized; the gradient of its norm; what else comes to dx
    [[maybe_unused]] float gate[GATED ? E : 1], of_gate[GATED ? E : 1];
    unpack(own, of_x), unpack(grad, of_grad), unpack(more, of_more);
    if (GATED) unpack(gate, of_p), unpack(of_gate, of_first);
    ahead(row + gridDim.x * ROWS);
    const float factor = normalize(own, epsilon, parts);
    float along[2] = {0.f, 0.f};  // of the gradient, and of its product with the row
#pragma unroll
    for (int i = 0; i < E; ++i) {
      if (GATED) {
        const int g = GATED ? i : 0;
        gate[g] += moved[g];
        const float share = sigmoid(gate[g]);
        of_gate[g] = (of_gate[g] + grad[i] * (own[i] * by[i] + plus[g])) * share * (1.f + gate[g] * (1.f - share));
        if (there) sum[SUMS - 1][i] += of_gate[g];
        grad[i] *= gate[g] * share;
      }
      if (there) sum[0][i] += grad[i] * own[i], sum[1][i] += grad[i];
      grad[i] *= by[i];
      along[0] += grad[i];
      along[1] += grad[i] * own[i];
    }
    over_row<2>(along, parts + 2 * WARPS);
#pragma unroll
    for (int i = 0; i < E; ++i) {
      const float found = factor * (grad[i] - along[0] / DIM - own[i] * (along[1] / DIM));
      more[i] = GATED || kept != nullptr ? more[i] + found : found;
    }
    if (there) write_row(dx + row * DIM, more);
    if (GATED && there) write_row(dp + row * apart, of_gate);
  }
  for (u32 group = 0; group < ROWS; ++group) {  // one after the other: the same order of the sums every time
    if (threadIdx.x / THREADS == group)
#pragma unroll
      for (int s = 0; s < SUMS; ++s)
#pragma unroll
        for (int i = 0; i < E; ++i) shared[s * DIM + column(i)] = sum[s][i] + (group ? shared[s * DIM + column(i)] : 0.f);
    __syncthreads();
  }
  for (int at = threadIdx.x; at < SUMS * DIM; at += 32 * WARPS) sums[blockIdx.x * SUMS * DIM + at] = shared[at];
}
