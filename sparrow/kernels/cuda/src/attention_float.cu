// Jagged attention in float32 by plain products, with a bias by distance: for what the kernels on tensor cores do not take.
//
// The modes, masks and equations are those of attention_mma.cu, with scores s = alpha q k' + bias (attention_bias.cuh). A
// block keeps BM rows of one (sequence, head), and streams the other side in tiles of BN. A thread has TM rows, from
// thread / 16 * TM on, of each tile the columns thread % 16 + 16 j, and of each result the numbers 64 c + thread % 16 * 4.
//
// Macros: D (64 or 128), MODE, MASKS, SOFTMAX, POSITION and TIME (whether there is such a bias), BM, BN, THREADS, HELD (the
// buckets of both, whose sums the block holds; 0: they are too many).
constexpr int LANES = 16, TM = BM * LANES / THREADS, TN = BN / LANES, TD = D / 64;
constexpr int STRIDE = D + 4, WIDE = BN + 4;  // of rows in shared memory, against bank conflicts
constexpr int NKEEP = MODE == 0 ? 1 : 2;
constexpr int SHARED = (NKEEP * BM + 2 * BN) * STRIDE + BM * WIDE;  // floats, before the sums of buckets
constexpr float LOW = -1e30f;

// Rows [row0, row0 + COUNT) of one head of a (tokens, heads, D) array; rows at or after `len` become zeros.
template <int COUNT>
DEVICE void load(float* to, const float* from, int row0, int len, int64_t stride) {
#pragma unroll
  for (int at = threadIdx.x; at < COUNT * D / 4; at += THREADS) {
    const int row = at / (D / 4), piece = at % (D / 4) * 4;
    float4 x = {0.f, 0.f, 0.f, 0.f};
    if (row0 + row < len) x = *(const float4*)(from + (row0 + row) * stride + piece);
    *(float4*)(to + row * STRIDE + piece) = x;
  }
}

// c (TM x TN) = own rows of `kept` x own columns of `stream`'
DEVICE void product(float (*c)[TN], const float* kept, const float* stream) {
#pragma unroll
  for (int i = 0; i < TM; i++)
#pragma unroll
    for (int j = 0; j < TN; j++) c[i][j] = 0.f;
#pragma unroll 4
  for (int d = 0; d < D; d += 4) {
    float4 a[TM], b[TN];
#pragma unroll
    for (int i = 0; i < TM; i++) a[i] = *(const float4*)(kept + i * STRIDE + d);
#pragma unroll
    for (int j = 0; j < TN; j++) b[j] = *(const float4*)(stream + j * LANES * STRIDE + d);
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
      for (int j = 0; j < TN; j++) {
        c[i][j] += a[i].x * b[j].x;
        c[i][j] += a[i].y * b[j].y;
        c[i][j] += a[i].z * b[j].z;
        c[i][j] += a[i].w * b[j].w;
      }
  }
}

// out (TM x 4 TD) += own rows of the weights, which the threads of a row exchange through `memory`, x own numbers of `stream`
DEVICE void gather(float (*out)[4 * TD], const float (*weights)[TN], float* memory, int lane, const float* stream) {
#pragma unroll
  for (int i = 0; i < TM; i++)
#pragma unroll
    for (int j = 0; j < TN; j++) memory[i * WIDE + lane + j * LANES] = weights[i][j];
  __syncwarp();
#pragma unroll 2
  for (int n = 0; n < BN; n += 4) {
    float w[TM][4];
#pragma unroll
    for (int i = 0; i < TM; i++) *(float4*)w[i] = *(const float4*)(memory + i * WIDE + n);
#pragma unroll
    for (int e = 0; e < 4; e++)
#pragma unroll
      for (int c = 0; c < TD; c++) {
        const float4 x = *(const float4*)(stream + (n + e) * STRIDE + 64 * c);
#pragma unroll
        for (int i = 0; i < TM; i++) {
          out[i][4 * c] += w[i][e] * x.x;
          out[i][4 * c + 1] += w[i][e] * x.y;
          out[i][4 * c + 2] += w[i][e] * x.z;
          out[i][4 * c + 3] += w[i][e] * x.w;
        }
      }
  }
  __syncwarp();
}

// Own numbers of own rows of `out`, times the row's factor, to the array.
DEVICE void store(float* to, const float* from, const float* shift, const float (*out)[4 * TD], const float* factors, int row0, int len,
                  int64_t stride) {
#pragma unroll
  for (int i = 0; i < TM; i++)
    if (row0 + i < len)
#pragma unroll
      for (int c = 0; c < TD; c++) {
        const float* x = out[i] + 4 * c;
        float4 scaled = {x[0] * factors[i], x[1] * factors[i], x[2] * factors[i], x[3] * factors[i]};
        if (INNER && MODE != 0) {
          const float4 own = *(const float4*)(from + (row0 + i) * stride + 64 * c), by = *(const float4*)(shift + 64 * c);
          scaled = {inner(scaled.x, own.x + by.x), inner(scaled.y, own.y + by.y), inner(scaled.z, own.z + by.z),
                    inner(scaled.w, own.w + by.w)};
        }
        *(float4*)(to + (row0 + i) * stride + 64 * c) = scaled;
      }
}

// The sum, or the largest, of the threads of a row.
template <class F>
DEVICE float over_row(float x, F f) {
#pragma unroll
  for (int d = 1; d < LANES; d *= 2) x = f(x, __shfl_xor_sync(FULL, x, d));
  return x;
}

// The arguments are those of attention_mma.cu, the logarithms of sums natural ones; `found` are the gradients of the bias.
extern "C" __global__ void __launch_bounds__(THREADS)
    attention(const float* __restrict__ q, const float* __restrict__ k, const float* __restrict__ v,
              const float* __restrict__ dout, float* __restrict__ out0, float* __restrict__ out1, float* __restrict__ sums,
              const float* __restrict__ delta, const int* __restrict__ offsets, u32 sequences, u32 tokens, u32 words, u32* first,
              u32* second, const int4* __restrict__ work, const int* __restrict__ count,
              const int* __restrict__ contexts, const int* __restrict__ candidates, int heads, float alpha, float scale,
              int reach, int k1, int k2, const float* __restrict__ position, int positions, const float* __restrict__ time,
              int spans_of_time, const float* __restrict__ times, float time_unit, int log_time,
              const float* __restrict__ factor, u32* found,
              const float* __restrict__ x0, const float* __restrict__ x1, const float* __restrict__ shift0,
              const float* __restrict__ shift1, int apart) {
#ifdef SPARROW_EMULATED
  alignas(16) static float memory[SHARED + 2 * HELD];
#else
  extern __shared__ __align__(16) float memory[];
#endif
  clear(offsets, sequences, tokens, words, first, second, blockIdx.x * THREADS + threadIdx.x, gridDim.x * THREADS);
  if (blockIdx.x / heads >= u32(*count)) return;
  const int4 item = work[blockIdx.x / heads];
  const int len = item.y, m0 = item.z, head = blockIdx.x % heads;
  const Mask mask = mask_of(item, contexts, candidates, reach, k1, k2);
  const Blocks blocks(m0, mask);
  const int64_t stride = (int64_t)heads * D, base = item.x * stride + head * D;
  const int64_t number = (int64_t)item.x * heads + head;  // of `sums` and `delta`, of row 0
  const int lane = threadIdx.x % LANES, row = threadIdx.x / LANES * TM, r0 = m0 + row;
  float *const tile0 = memory + NKEEP * BM * STRIDE, *const tile1 = tile0 + BN * STRIDE;
  float* const weights = tile1 + BN * STRIDE + row * WIDE;
  const float* const kept = memory + row * STRIDE;
  load<BM>(memory, (MODE == 2 ? k : q) + base, m0, len, stride);
  if (MODE != 0) load<BM>(memory + BM * STRIDE, (MODE == 2 ? v : dout) + base, m0, len, stride);

  const Bias bias{position, positions, time, spans_of_time, time_unit, log_time};
  const float* const times_here = times + (TIME ? item.x : 0);
  u32* const held = HELD ? (u32*)(memory + SHARED) : found;
  for (int at = threadIdx.x; at < 2 * HELD; at += THREADS) held[at] = 0;
  [[maybe_unused]] Gradient of_position{held}, of_time{held + 2 * (POSITION ? positions : 0)};
  const float times_factor = MODE == 1 && (POSITION || TIME) ? *factor : 0.f;
  Spans spans[TM];
  float acc0[TM][4 * TD], acc1[TM][4 * TD];  // acc1: dv, in MODE 2 alone
  float top[TM], total[TM], own_delta[TM];   // of each row: the largest score so far and the sum of powers, or what forward found
#pragma unroll
  for (int i = 0; i < TM; i++) {
    const bool there = r0 + i < len;
    spans[i] = there ? mask.spans(r0 + i) : Spans{0, 0, 0, 0};
    top[i] = SOFTMAX && MODE == 1 && there ? sums[number + (int64_t)(r0 + i) * heads] : LOW;
    own_delta[i] = SOFTMAX && MODE == 1 && there ? delta[number + (int64_t)(r0 + i) * heads] : 0.f;
    total[i] = 0.f;
#pragma unroll
    for (int e = 0; e < 4 * TD; e++) acc0[i][e] = acc1[i][e] = 0.f;
  }

  for (int t = 0; t < blocks.total; t++) {
    const int n0 = blocks.at(t) * BN;
    __syncthreads();
    load<BN>(tile0, (MODE == 2 ? q : k) + base, n0, len, stride);
    load<BN>(tile1, (MODE == 2 ? dout : v) + base, n0, len, stride);
    __syncthreads();
    float s[TM][TN], g[TM][TN];  // scores, then weights; the products of dout and v, then the gradients of scores
    bool seen[TM][TN];
    product(s, kept, tile0 + lane * STRIDE);
    if (MODE != 0) product(g, kept + BM * STRIDE, tile1 + lane * STRIDE);
#pragma unroll
    for (int j = 0; j < TN; j++) {
      const int at = n0 + lane + j * LANES;
      const bool in_sums = SOFTMAX && MODE == 2 && at < len;
      const float column_sum = in_sums ? sums[number + (int64_t)at * heads] : 0.f;
      const float column_delta = in_sums ? delta[number + (int64_t)at * heads] : 0.f;
#pragma unroll
      for (int i = 0; i < TM; i++) {
        const Spans own = spans[i];
        seen[i][j] = (at >= own.low && at < own.high) || (MASKS && at >= own.low2 && at < own.high2);
        const int query = MODE == 2 ? at : r0 + i, key = MODE == 2 ? r0 + i : at;
        int bucket = 0, time_bucket = 0;
        float x = alpha * s[i][j];
        if (seen[i][j]) x += bias.of(mask, query, key, TIME ? times_here[query] - times_here[key] : 0.f, bucket, time_bucket);
        if (MODE == 0) {
          s[i][j] = SOFTMAX ? (seen[i][j] ? x : LOW) : seen[i][j] ? x / (1.f + expf(-x)) : 0.f;
          continue;
        }
        float weight, gradient;
        if (SOFTMAX) {
          weight = expf(x - (MODE == 2 ? column_sum : top[i]));
          gradient = weight * (scale * g[i][j] - (MODE == 2 ? column_delta : own_delta[i]));
        } else {
          const float sigmoid = 1.f / (1.f + expf(-x));
          weight = x * sigmoid;
          gradient = scale * g[i][j] * sigmoid * (1.f + x * (1.f - sigmoid));
        }
        s[i][j] = seen[i][j] ? weight : 0.f;
        g[i][j] = seen[i][j] ? gradient : 0.f;
        if (MODE == 1 && seen[i][j]) {
          if (POSITION) of_position.add(bucket, gradient * times_factor);
          if (TIME) of_time.add(time_bucket, gradient * times_factor);
        }
      }
    }
    if (MODE == 0 && SOFTMAX) {
#pragma unroll
      for (int i = 0; i < TM; i++) {
        float largest = top[i];
#pragma unroll
        for (int j = 0; j < TN; j++) largest = fmaxf(largest, s[i][j]);
        largest = over_row(largest, [](float a, float b) { return fmaxf(a, b); });
        const float factor_before = expf(top[i] - largest);
        top[i] = largest;
        total[i] *= factor_before;
#pragma unroll
        for (int e = 0; e < 4 * TD; e++) acc0[i][e] *= factor_before;
#pragma unroll
        for (int j = 0; j < TN; j++) {
          s[i][j] = seen[i][j] ? expf(s[i][j] - largest) : 0.f;
          total[i] += s[i][j];
        }
      }
    }
    if (MODE == 0) {
      gather(acc0, s, weights, lane, tile1 + lane * 4);
    } else {
      if (MODE == 2) gather(acc1, s, weights, lane, tile1 + lane * 4);
      gather(acc0, g, weights, lane, tile0 + lane * 4);
    }
  }

  float factors[TM];
#pragma unroll
  for (int i = 0; i < TM; i++) {
    factors[i] = MODE == 0 ? scale : alpha;
    if (MODE != 0 || !SOFTMAX) continue;
    const float all = over_row(total[i], [](float a, float b) { return a + b; });
    if (lane == 0 && r0 + i < len) sums[number + (int64_t)(r0 + i) * heads] = all > 0.f ? top[i] + logf(all) : 0.f;
    factors[i] = all > 0.f ? scale / all : 0.f;
  }
  const int64_t step = INNER ? apart : stride, begin = item.x * step + head * D + lane * 4;
  store(out0 + begin, x0 + begin, shift0 + head * D + lane * 4, acc0, factors, r0, len, step);
  if (MODE == 2) {
#pragma unroll
    for (int i = 0; i < TM; i++) factors[i] = scale;
    store(out1 + begin, x1 + begin, shift1 + head * D + lane * 4, acc1, factors, r0, len, step);
  }
  if (MODE == 1 && POSITION) of_position.leave();
  if (MODE == 1 && TIME) of_time.leave();
  if (HELD) __syncthreads();
  for (int at = threadIdx.x; at < HELD; at += THREADS) add_wide(found + 2 * at, (u64)held[2 * at + 1] << 32 | held[2 * at]);
}
