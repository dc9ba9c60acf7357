// Layer normalization of rows, and its gradient. A warp takes a row at a time and keeps its numbers in registers.
//   NUMBERS  of all arrays but scale, bias and sums (types.cuh)     DIM  numbers of a row, a multiple of 32     WARPS  of a block
//   GATED    0  y = norm(total) with total = x + added, or norm(x)      1  y = [u, x, norm(x) u] with u = silu(p + shift), where x is there already
constexpr int E = DIM / 32;                                                     // numbers of a lane
constexpr int V = E % 8 == 0 ? (NUMBERS ? 8 : 4) : E % 4 == 0 ? 4 : E % 2 == 0 ? 2 : 1;  // of these, side by side
constexpr int SUMS = GATED ? 3 : 2, WIDE = GATED ? 3 * DIM : DIM;  // WIDE: from row to row of x, y and dy
typedef Kept<NUMBERS>::T T;

DEVICE int column(int i) { return (i / V * 32 + int(threadIdx.x % 32)) * V + i % V; }

template <class From>
DEVICE void read_row(float* x, const From* row) {
#pragma unroll
  for (int i = 0; i < E; i += V) {
    const Pack<From, V> pack = load_constant<V>(row + column(i));
#pragma unroll
    for (int j = 0; j < V; ++j) x[i + j] = Kept<sizeof(From) == 4 ? 0 : NUMBERS>::get(number(pack, j));
  }
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
DEVICE float over_row(float x) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(FULL, x, d);
  return x;
}
// x becomes (x - mean) / deviation; 1 / deviation.
DEVICE float normalize(float* x, float epsilon) {
  float sum = 0.f, squares = 0.f;
#pragma unroll
  for (int i = 0; i < E; ++i) sum += x[i];
  const float mean = over_row(sum) / DIM;
#pragma unroll
  for (int i = 0; i < E; ++i) x[i] -= mean, squares += x[i] * x[i];
  const float factor = 1.f / sqrtf(over_row(squares) / DIM + epsilon);
#pragma unroll
  for (int i = 0; i < E; ++i) x[i] *= factor;
  return factor;
}
DEVICE float sigmoid(float x) { return 1.f / (1.f + expf(-x)); }

// The rows of p are `apart` numbers from each other.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
    norm_rows(const T* x, const T* __restrict__ p, const float* __restrict__ shift, const float* __restrict__ scale,
              const float* __restrict__ bias, const T* __restrict__ added, T* total, T* y, u32 rows, u32 apart, float epsilon) {
  float by[E], plus[E], moved[GATED ? E : 1];
  read_row(by, scale);
  read_row(plus, bias);
  if (GATED) read_row(moved, shift);
  for (u64 row = blockIdx.x * WARPS + threadIdx.x / 32; row < rows; row += gridDim.x * WARPS) {
    float own[E], u[GATED ? E : 1];
    read_row(own, x + row * WIDE);
    T* to = y + row * WIDE;
    if (GATED) {
      read_row(u, p + row * apart);
#pragma unroll
      for (int i = 0; i < E; ++i) {
        const float moving = u[GATED ? i : 0] + moved[GATED ? i : 0];
        u[GATED ? i : 0] = moving * sigmoid(moving);
      }
      write_row(to, u);
    }
    if (!GATED && added != nullptr) {
      float more[E];
      read_row(more, added + row * WIDE);
#pragma unroll
      for (int i = 0; i < E; ++i) own[i] = Kept<NUMBERS>::get(Kept<NUMBERS>::put(own[i] + more[i]));
      write_row(total + row * WIDE, own);
    }
    normalize(own, epsilon);
#pragma unroll
    for (int i = 0; i < E; ++i) own[i] = (own[i] * by[i] + plus[i]) * (GATED ? u[GATED ? i : 0] : 1.f);
    write_row(to + (GATED ? 2 * DIM : 0), own);
  }
}

// The rows of v, q and k, side by side in p after those of u, as silu(p + shift).
extern "C" __global__ void __launch_bounds__(32 * WARPS)
    activate(const T* __restrict__ p, const float* __restrict__ shift, T* v, T* q, T* k, u32 rows, u32 apart) {
  for (u64 row = blockIdx.x * WARPS + threadIdx.x / 32; row < rows; row += gridDim.x * WARPS) {
    float own[3][E], by[E];
#pragma unroll
    for (int a = 0; a < 3; ++a) read_row(own[a], p + row * apart + (a + 1) * DIM);
#pragma unroll
    for (int a = 0; a < 3; ++a) {
      read_row(by, shift + (a + 1) * DIM);
#pragma unroll
      for (int i = 0; i < E; ++i) {
        const float x = own[a][i] + by[i];
        own[a][i] = x * sigmoid(x);
      }
      write_row((a == 0 ? v : a == 1 ? q : k) + row * DIM, own[a]);
    }
  }
}

// dx, and dp (rows `apart`), from dy; without GATED dx is that plus `kept`, null: nothing. sums: of each block, the gradients of
// scale and bias and, with GATED, the sum of dp.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
    norm_gradient(const T* __restrict__ x, const T* __restrict__ p, const float* __restrict__ shift,
                  const float* __restrict__ scale, const float* __restrict__ bias, const T* __restrict__ dy, const T* __restrict__ kept, T* dx, T* dp, float* sums, u32 rows, u32 apart, float epsilon) {
  __shared__ float shared[SUMS * DIM];
  float by[E], plus[GATED ? E : 1], moved[GATED ? E : 1], sum[SUMS][E];
  read_row(by, scale);
  if (GATED) read_row(plus, bias), read_row(moved, shift);
#pragma unroll
  for (int s = 0; s < SUMS; ++s)
#pragma unroll
    for (int i = 0; i < E; ++i) sum[s][i] = 0.f;
  for (u64 row = blockIdx.x * WARPS + threadIdx.x / 32; row < rows; row += gridDim.x * WARPS) {
    float own[E], grad[E], more[E];  // the row, normalized; the gradient of its norm; what else comes to dx
    [[maybe_unused]] float gate[GATED ? E : 1], of_gate[GATED ? E : 1];
    read_row(own, x + row * WIDE);
    if (GATED) {
      const T* from = dy + row * WIDE;
      read_row(gate, p + row * apart);
      read_row(of_gate, from);
      read_row(more, from + DIM);
      read_row(grad, from + 2 * DIM);
    } else {
      read_row(grad, dy + row * DIM);
      if (kept != nullptr) read_row(more, kept + row * DIM);
    }
    const float factor = normalize(own, epsilon);
    float mean = 0.f, along = 0.f;
#pragma unroll
    for (int i = 0; i < E; ++i) {
      if (GATED) {
        const int g = GATED ? i : 0;
        gate[g] += moved[g];
        const float share = sigmoid(gate[g]);
        of_gate[g] = (of_gate[g] + grad[i] * (own[i] * by[i] + plus[g])) * share * (1.f + gate[g] * (1.f - share));
        sum[SUMS - 1][i] += of_gate[g];
        grad[i] *= gate[g] * share;
      }
      sum[0][i] += grad[i] * own[i];
      sum[1][i] += grad[i];
      grad[i] *= by[i];
      mean += grad[i];
      along += grad[i] * own[i];
    }
    mean = over_row(mean) / DIM, along = over_row(along) / DIM;
#pragma unroll
    for (int i = 0; i < E; ++i) {
      const float found = factor * (grad[i] - mean - own[i] * along);
      more[i] = GATED || kept != nullptr ? more[i] + found : found;
    }
    write_row(dx + row * DIM, more);
    if (GATED) write_row(dp + row * apart, of_gate);
  }
  for (u32 warp = 0; warp < WARPS; ++warp) {  // one after the other: the same order of the sums every time
    if (threadIdx.x / 32 == warp)
#pragma unroll
      for (int s = 0; s < SUMS; ++s)
#pragma unroll
        for (int i = 0; i < E; ++i) shared[s * DIM + column(i)] = sum[s][i] + (warp ? shared[s * DIM + column(i)] : 0.f);
    __syncthreads();
  }
  for (int at = threadIdx.x; at < SUMS * DIM; at += 32 * WARPS) sums[blockIdx.x * SUMS * DIM + at] = shared[at];
}
