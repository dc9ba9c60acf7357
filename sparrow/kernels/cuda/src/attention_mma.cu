// Jagged attention on mma.sync m16n8k16 bf16, for sm_80 and later; with silu, or SOFTMAX 1; biases as attention_bias.cuh has them.
//
// One kernel in three modes (attention_mask.cuh); each keeps BM rows of one (sequence, head) and streams the other side in
// tiles of BN:
//   MODE 0  forward  keeps q          streams k, v     out = scale w v, w = silu(alpha q k') or softmax(alpha q k')
//   MODE 1  dq       keeps q, dout    streams k, v     dq  = alpha ds k
//   MODE 2  dk, dv   keeps k, v       streams q, dout  dv  = scale w' dout;  dk = alpha ds' q
// with ds = scale (dout v') * silu'(alpha q k'), or w * (scale (dout v') - delta), delta_i = <dout_i, out_i>.
// where products are alpha q k' + bias. Each output element is summed by one thread, in one order; gradients of a bias are integers.
//
// Macros: D (64 or 128), MODE, MASKS, SOFTMAX, WARPS, MT (tiles of 16 rows per warp), BN (streamed rows per stage), NC (of
// these, per step), MINB (blocks per multiprocessor), POSITION, TIME (whether there is such a bias), HELD (buckets whose gradients are summed in shared
// memory; 0: in global memory). BM = 16 * MT * WARPS.
#define BIASED (POSITION || TIME)
#define THREADS (32 * WARPS)
#define NKEEP (MODE == 0 ? 1 : 2)
#define STAGES 2

// Rows [row0, row0 + ROWS) of one head of a (tokens, heads, D) array; rows at or after `len` become zeros.
template <int ROWS>
__device__ __forceinline__ void load(Shared to, const u16* from, int row0, int len, long stride) {
  constexpr int PIECES = D / 8;
#pragma unroll
  for (int at = threadIdx.x; at < ROWS * PIECES; at += THREADS) {
    int row = at / PIECES, piece = at % PIECES;
    bool there = row0 + row < len;
    copy16(to + place(row, piece), from + (there ? (long)(row0 + row) * stride : 0) + piece * 8, there);
  }
}

// c (MT x NC) = keep (own rows) x stream'(NC rows from n)
__device__ __forceinline__ void product(float (*c)[NC / 8][4], Shared keep, Shared stream, int row, int n, int lane) {
#pragma unroll
  for (int m = 0; m < MT; m++)
#pragma unroll
    for (int j = 0; j < NC / 8; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) c[m][j][e] = 0.f;
#pragma unroll
  for (int k = 0; k < D / 16; k++) {
    u32 a[MT][4];
#pragma unroll
    for (int m = 0; m < MT; m++) ldm(a[m], keep + place(row + m * 16 + (lane & 15), 2 * k + (lane >> 4)));
#pragma unroll
    for (int j = 0; j < NC / 16; j++) {
      u32 b[4];
      ldm(b, stream + place(n + j * 16 + (lane & 7) + ((lane >> 4) << 3), 2 * k + ((lane >> 3) & 1)));
#pragma unroll
      for (int m = 0; m < MT; m++) {
        mma(c[m][2 * j], a[m], b);
        mma(c[m][2 * j + 1], a[m], b + 2);
      }
    }
  }
}

// The warp's rows of `out`, times `factor`, through its own rows of `buffer` to the array.
__device__ __forceinline__ void store(u16* to, const u16* x, const float* shift, float (*out)[D / 8][4], float factor,
                                      char* buffer, int row, int row0, int len, long stride, int lane) {
  constexpr int PIECES = D / 8, COUNT = 16 * MT * PIECES / 32;
  const auto offset = [&](int i) {
    const int r = row0 + row + (lane + 32 * i) / PIECES;
    return r < len ? r * stride + lane % PIECES * 8 : -1;
  };
  [[maybe_unused]] Inner<COUNT> inner;
  if (INNER && MODE != 0) inner.fetch(x, shift + lane % PIECES * 8, offset);
#pragma unroll
  for (int m = 0; m < MT; m++)
#pragma unroll
    for (int j = 0; j < D / 8; j++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        int r = row + m * 16 + half * 8 + (lane >> 2);
        *(u32*)(buffer + place(r, j) + (lane & 3) * 4) = pack(out[m][j][2 * half] * factor, out[m][j][2 * half + 1] * factor);
      }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < COUNT; i++) {
    if (offset(i) < 0) continue;
    const uint4 found = *(uint4*)(buffer + place(row + (lane + 32 * i) / PIECES, lane % PIECES));
    *(uint4*)(to + offset(i)) = INNER && MODE != 0 ? inner.of(i, found) : found;
  }
}

// work, count: from attention_work.cu; the grid is the most items there can be x heads. sums, delta: (tokens, heads), of
// SOFTMAX alone: the logarithm of each row's sum, to base 2; `delta` as above.
extern "C" __global__ void __launch_bounds__(THREADS, MINB)
    attention(const u16* __restrict__ q, const u16* __restrict__ k, const u16* __restrict__ v, const u16* __restrict__ dout,
              u16* __restrict__ out0, u16* __restrict__ out1, float* __restrict__ sums, const float* __restrict__ delta,
              const int* __restrict__ offsets, u32 sequences, u32 tokens, u32 words, u32* first, u32* second,
              const int4* __restrict__ work, const int* __restrict__ count, const int* __restrict__ contexts,
              const int* __restrict__ candidates, int heads, float alpha, float scale, int reach, int k1, int k2,
              const float* __restrict__ position, int positions, const float* __restrict__ time, int spans_of_time,
              const float* __restrict__ times, float time_unit, int log_time, const float* __restrict__ factor, u32* found,
              const u16* __restrict__ x0, const u16* __restrict__ x1, const float* __restrict__ shift0,
              const float* __restrict__ shift1, int apart) {
  constexpr u32 TILE = BN * D * 2, TILES = NKEEP * BM * D * 2 + 2 * STAGES * TILE;
#ifdef SPARROW_EMULATED
  alignas(16) static char memory[TILES + 8 * HELD];
#else
  extern __shared__ __align__(1024) char memory[];
#endif
  const int lane = threadIdx.x & 31, row = (threadIdx.x >> 5) * 16 * MT;
  clear(offsets, sequences, tokens, words, first, second, blockIdx.x * THREADS + threadIdx.x, gridDim.x * THREADS);
  if (blockIdx.x / heads >= u32(*count)) return;
  const int4 item = work[blockIdx.x / heads];
  const int len = item.y, m0 = item.z, head = blockIdx.x % heads;
  const Mask mask = mask_of(item, contexts, candidates, reach, k1, k2);
  const Blocks blocks(m0, mask);
  const long stride = (long)heads * D, base = (long)item.x * stride + head * D;
  const long number = (long)item.x * heads + head;  // of `sums` and `delta`, of row 0
  const u16* keep0 = (MODE == 2 ? k : q) + base;
  const u16* keep1 = (MODE == 2 ? v : dout) + base;
  const u16* stream0 = (MODE == 2 ? q : k) + base;
  const u16* stream1 = (MODE == 2 ? dout : v) + base;
  const Shared kept = smem_address(memory), streamed = kept + NKEEP * BM * D * 2;
  const Bias bias{position, positions, time, spans_of_time, time_unit, log_time};
  const auto time_of = [&](int r) { return TIME && r < len ? times[item.x + r] : 0.f; };
  u32* const held = HELD ? (u32*)(memory + TILES) : found;
  if (BIASED && MODE == 1)
    for (int at = threadIdx.x; at < 2 * HELD; at += THREADS) held[at] = 0;
  [[maybe_unused]] Gradient of_position{held}, of_time{held + 2 * (POSITION ? positions : 0)};
  [[maybe_unused]] const float of_score = BIASED && MODE == 1 ? *factor * (SOFTMAX ? 1.f : 0.5f * scale) : 0.f;

  load<BM>(kept, keep0, m0, len, stride);
  if (MODE != 0) load<BM>(kept + BM * D * 2, keep1, m0, len, stride);
#pragma unroll
  for (int s = 0; s < STAGES - 1; s++) {
    if (s < blocks.total) {
      load<BN>(streamed + s * 2 * TILE, stream0, blocks.at(s) * BN, len, stride);
      load<BN>(streamed + s * 2 * TILE + TILE, stream1, blocks.at(s) * BN, len, stride);
    }
    commit_copies();
  }

  float acc0[MT][D / 8][4], acc1[MT][D / 8][4];  // acc1: dv, in MODE 2 alone
#pragma unroll
  for (int m = 0; m < MT; m++)
#pragma unroll
    for (int j = 0; j < D / 8; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        acc0[m][j][e] = 0.f;
        acc1[m][j][e] = 0.f;
      }
  // Of the thread's rows: the largest score so far and the sum of powers, or what forward found.
  constexpr float LOW = -1e30f;
  [[maybe_unused]] float top[MT][2], total[MT][2], own_delta[MT][2];
  if (SOFTMAX)
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int r = m0 + row + m * 16 + half * 8 + (lane >> 2);
        top[m][half] = MODE == 1 && r < len ? sums[number + (long)r * heads] : MODE == 0 ? LOW : 0.f;
        own_delta[m][half] = MODE == 1 && r < len ? delta[number + (long)r * heads] : 0.f;
        total[m][half] = 0.f;
      }

  [[maybe_unused]] float own_time[MT][2];
#pragma unroll
  for (int m = 0; m < MT; m++)
#pragma unroll
    for (int half = 0; half < 2; half++) own_time[m][half] = time_of(m0 + row + m * 16 + half * 8 + (lane >> 2));

  const float factor_of_s = BIASED ? 1.f : alpha, half_alpha = 0.5f * factor_of_s, log_alpha = factor_of_s * 1.4426950408889634f;
  int stage = 0;
  for (int t = 0; t < blocks.total; t++) {
    wait_copies();
    __syncthreads();
    {
      int next = t + STAGES - 1, at = stage + STAGES - 1;
      if (at >= STAGES) at -= STAGES;
      if (next < blocks.total) {
        load<BN>(streamed + at * 2 * TILE, stream0, blocks.at(next) * BN, len, stride);
        load<BN>(streamed + at * 2 * TILE + TILE, stream1, blocks.at(next) * BN, len, stride);
      }
      commit_copies();
    }
    const Shared tile0 = streamed + stage * 2 * TILE, tile1 = tile0 + TILE;
    if (++stage == STAGES) stage = 0;
#pragma unroll 1
    for (int n = 0; n < BN; n += NC) {
      const int n0 = blocks.at(t) * BN + n, r0 = m0 + row;
      if (n0 >= len || !mask.some(r0, 16 * MT, n0, NC)) continue;
      const bool masked = !mask.whole(r0, 16 * MT, n0, NC);
      float s[MT][NC / 8][4];
      u32 w[MT][NC / 16][4];
      product(s, kept, tile0, row, n, lane);
      u32 hidden[MT][2];  // bit 2 j + e: column j * 8 + e of the thread's row is not seen
      if (masked) {
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
          for (int half = 0; half < 2; half++) {
            const Spans seen = mask.spans(r0 + m * 16 + half * 8 + (lane >> 2));
            const u32 span = max(0, seen.high - seen.low), span2 = max(0, seen.high2 - seen.low2);
            hidden[m][half] = 0;
#pragma unroll
            for (int j = 0; j < NC / 8; j++)
#pragma unroll
              for (int e = 0; e < 2; e++) {
                const int at = n0 + j * 8 + (lane & 3) * 2 + e;
                if (!((u32)(at - seen.low) < span || (MASKS && (u32)(at - seen.low2) < span2))) hidden[m][half] |= 1u << (2 * j + e);
              }
          }
      }
#define HIDDEN(m, j, e) (masked && (hidden[m][(e) >> 1] >> (2 * (j) + ((e) & 1)) & 1))
      [[maybe_unused]] float column_time[NC / 8][2];
      const auto biased = [&](int m, int j, int e, int& bucket, int& time_bucket) {
        const int r = r0 + m * 16 + (e >> 1) * 8 + (lane >> 2), c = n0 + j * 8 + (lane & 3) * 2 + (e & 1);
        const float own = own_time[m][e >> 1], other = column_time[j][e & 1];
        return MODE == 2 ? bias.of(mask, c, r, other - own, bucket, time_bucket) : bias.of(mask, r, c, own - other, bucket, time_bucket);
      };
      if (BIASED) {
#pragma unroll
        for (int j = 0; j < NC / 8; j++)
#pragma unroll
          for (int e = 0; e < 2; e++) column_time[j][e] = time_of(n0 + j * 8 + (lane & 3) * 2 + e);
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
          for (int j = 0; j < NC / 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
              int bucket = 0, time_bucket = 0;
              if (!HIDDEN(m, j, e)) s[m][j][e] = alpha * s[m][j][e] + biased(m, j, e, bucket, time_bucket);
            }
      }
#if MODE == 0
#pragma unroll
      for (int m = 0; m < MT; m++) {
        if (SOFTMAX) {
#pragma unroll
          for (int half = 0; half < 2; half++) {
            float largest = top[m][half];
#pragma unroll
            for (int j = 0; j < NC / 8; j++)
#pragma unroll
              for (int e = 2 * half; e < 2 * half + 2; e++) {
                s[m][j][e] = HIDDEN(m, j, e) ? LOW : s[m][j][e] * log_alpha;
                largest = fmaxf(largest, s[m][j][e]);
              }
            largest = fmaxf(largest, __shfl_xor_sync(FULL, largest, 1));
            largest = fmaxf(largest, __shfl_xor_sync(FULL, largest, 2));
            const float factor = exp2_fast(top[m][half] - largest);
            top[m][half] = largest;
            total[m][half] *= factor;
#pragma unroll
            for (int j = 0; j < D / 8; j++) acc0[m][j][2 * half] *= factor, acc0[m][j][2 * half + 1] *= factor;
          }
        }
#pragma unroll
        for (int j = 0; j < NC / 8; j++) {
          float p[4];
#pragma unroll
          for (int e = 0; e < 4; e++) {
            if (SOFTMAX) {
              p[e] = s[m][j][e] == LOW ? 0.f : exp2_fast(s[m][j][e] - top[m][e >> 1]);
              total[m][e >> 1] += p[e];
            } else {
              const float h = s[m][j][e] * half_alpha;
              p[e] = HIDDEN(m, j, e) ? 0.f : h * tanh_fast(h) + h;
            }
          }
          w[m][j / 2][(j & 1) * 2] = pack(p[0], p[1]);
          w[m][j / 2][(j & 1) * 2 + 1] = pack(p[2], p[3]);
        }
      }
      gather(acc0, w, tile1, n, lane);
#else
      float g[MT][NC / 8][4];
      product(g, kept + BM * D * 2, tile1, row, n, lane);
      u32 ds[MT][NC / 16][4];
#pragma unroll
      for (int j = 0; j < NC / 8; j++) {
        [[maybe_unused]] float of_column[2][2];  // the sum and delta of the queries of two columns
        if (SOFTMAX && MODE == 2)
#pragma unroll
          for (int e = 0; e < 2; e++) {
            const int at = n0 + j * 8 + (lane & 3) * 2 + e;
            of_column[e][0] = at < len ? sums[number + (long)at * heads] : 0.f;
            of_column[e][1] = at < len ? delta[number + (long)at * heads] : 0.f;
          }
#pragma unroll
        for (int m = 0; m < MT; m++) {
          float p[4], x[4];
#pragma unroll
          for (int e = 0; e < 4; e++) {
            if (SOFTMAX) {
              p[e] = exp2_fast(s[m][j][e] * log_alpha - (MODE == 2 ? of_column[e & 1][0] : top[m][e >> 1]));
              x[e] = p[e] * (scale * g[m][j][e] - (MODE == 2 ? of_column[e & 1][1] : own_delta[m][e >> 1]));
            } else {
              const float h = s[m][j][e] * half_alpha, y = tanh_fast(h);  // silu = h y + h, 2 silu' - 1 = h (1 - y y) + y
              p[e] = h * y + h;
              x[e] = (h * (1.f - y * y) + y) * g[m][j][e] + g[m][j][e];
            }
            if (HIDDEN(m, j, e)) p[e] = x[e] = 0.f;
            if (BIASED && MODE == 1 && !HIDDEN(m, j, e)) {
              int bucket = 0, time_bucket = 0;
              biased(m, j, e, bucket, time_bucket);
              if (POSITION) of_position.add(bucket, x[e] * of_score);
              if (TIME) of_time.add(time_bucket, x[e] * of_score);
            }
          }
          if (MODE == 2) {
            w[m][j / 2][(j & 1) * 2] = pack(p[0], p[1]);
            w[m][j / 2][(j & 1) * 2 + 1] = pack(p[2], p[3]);
          }
          ds[m][j / 2][(j & 1) * 2] = pack(x[0], x[1]);
          ds[m][j / 2][(j & 1) * 2 + 1] = pack(x[2], x[3]);
        }
      }
      if (MODE == 2) gather(acc1, w, tile1, n, lane);
      gather(acc0, ds, tile0, n, lane);
#endif
    }
  }
  wait_copies();
  __syncthreads();  // without a tile, the kept rows may still be on their way from other threads
  if (SOFTMAX && MODE == 0) {
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        float all = total[m][half];
        all += __shfl_xor_sync(FULL, all, 1);
        all += __shfl_xor_sync(FULL, all, 2);
        const int r = m0 + row + m * 16 + half * 8 + (lane >> 2);
        if ((lane & 3) == 0 && r < len) sums[number + (long)r * heads] = all > 0.f ? top[m][half] + log2f(all) : 0.f;
        const float factor = all > 0.f ? 1.f / all : 0.f;
#pragma unroll
        for (int j = 0; j < D / 8; j++) acc0[m][j][2 * half] *= factor, acc0[m][j][2 * half + 1] *= factor;
      }
  }
  // Every warp overwrites its own kept rows only.
  const long step = INNER ? apart : stride, begin = item.x * step + head * D;
  store(out0 + begin, x0 + begin, shift0 + head * D, acc0, MODE == 0 ? scale : SOFTMAX ? alpha : 0.5f * alpha * scale, memory, row, m0, len, step, lane);
  if (SOFTMAX && MODE == 0) {  // what the 16 bits of the result leave out: `delta` needs it
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
      for (int j = 0; j < D / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e += 2) {
          const u32 both = pack(acc0[m][j][e] * scale, acc0[m][j][e + 1] * scale);
          acc0[m][j][e] = acc0[m][j][e] * scale - bit_cast<float>(both << 16);
          acc0[m][j][e + 1] = acc0[m][j][e + 1] * scale - bit_cast<float>(both & 0xffff0000u);
        }
    __syncwarp();  // the result has left the warp's rows
    store(out1 + base, nullptr, nullptr, acc0, 1.f, memory, row, m0, len, stride, lane);
  }
  if (MODE == 2) store(out1 + begin, x1 + begin, shift1 + head * D, acc1, scale, memory + BM * D * 2, row, m0, len, step, lane);
  if (BIASED && MODE == 1) {
    if (POSITION) of_position.leave();
    if (TIME) of_time.leave();
    if (HELD) __syncthreads();
    for (int at = threadIdx.x; at < HELD; at += THREADS) add_wide(found + 2 * at, (u64)held[2 * at + 1] << 32 | held[2 * at]);
  }
}
