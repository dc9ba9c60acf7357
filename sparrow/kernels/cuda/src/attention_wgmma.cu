// Jagged attention with silu on wgmma and TMA, for sm_90a.
//
// One kernel in three modes (attention_mask.cuh); each keeps 64 rows per warpgroup of one (sequence, head) and streams the
// other side in tiles of BN rows:
//   MODE 0  forward  keeps q          streams k, v
//   MODE 1  dq       keeps q, dout    streams k, v
//   MODE 2  dk, dv   keeps k, v       streams q, dout
// WG warpgroups compute; one more has a single thread that issues the TMA loads. The weights stay in registers: they are
// the A operand of the second product. No atomics on numbers: each output element is summed by one thread, in one order.
//
// Rows after a sequence's end are those of the next one (TMA knows no sequences): their weights are zero, so they must be finite.
//
// Macros: D (64 or 128), MODE, MASKS, WG, BN (64 or 128), STAGES (streamed tiles in flight), KEEPS (kept tiles in flight: 2 load
// the next item's while this one is computed), MINB (blocks per multiprocessor), REGC and REGP (registers of a computing and
// of a loading thread).
#define NKEEP (MODE == 0 ? 1 : 2)
#define KEEP_TILE (64 * D * 2)
#define TILE (BN * D * 2)
#define HALF (MODE == 2 && (D == 128 || WG == 3))
__device__ __forceinline__ u32 pack_half(float low, float high) {
  u32 r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
__device__ __forceinline__ void unpack_half(u32 both, float& low, float& high) {
  asm("{\n.reg .f16 a, b;\nmov.b32 {a, b}, %2;\ncvt.f32.f16 %0, a;\ncvt.f32.f16 %1, b;\n}\n" : "=f"(low), "=f"(high) : "r"(both));
}
// c (64 x BN) = keep (64 x D) stream' (BN x D)
__device__ __forceinline__ void product(float* c, u32 keep, u32 stream) {
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < D / 16; k++)
    wgmma_ss<BN>(c, descriptor(keep + (k / 4) * 64 * 128 + (k % 4) * 32, 16), descriptor(stream + (k / 4) * BN * 128 + (k % 4) * 32, 16), k > 0);
  wgmma_commit();
}
// out (64 x D) += w (64 x BN, bf16) stream (BN x D)
__device__ __forceinline__ void gather(float* out, u32 (*w)[4], u32 stream) {
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < BN / 16; k++) wgmma_rs<D>(out, w[k], descriptor(stream + k * 16 * 128, BN * 128));
  wgmma_commit();
}
__device__ __forceinline__ void keep_registers(float* c, int n) {
#pragma unroll
  for (int i = 0; i < n; i++) asm volatile("" : "+f"(c[i])::"memory");
}

// Where rows `row` and `row` + 8 do not go with columns c + 8 j + {0, 1}, s becomes `hidden`.
__device__ __forceinline__ void hide(const Mask& mask, float* s, int row, int c, float hidden) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const Spans seen = mask.spans(row + 8 * half);
    const u32 span = max(0, seen.high - seen.low), span2 = max(0, seen.high2 - seen.low2);
#pragma unroll
    for (int j = 0; j < BN / 8; j++)
#pragma unroll
      for (int e = 0; e < 2; e++) {
        const int at = c + 8 * j + e;
        if (!((u32)(at - seen.low) < span || (MASKS && (u32)(at - seen.low2) < span2))) s[4 * j + 2 * half + e] = hidden;
      }
  }
}

__device__ __forceinline__ void weights(float* s, u32 (*w)[4]) {  // 64 x BN, fp32 to bf16, as A operands
#pragma unroll
  for (int j = 0; j < BN / 8; j++) {
    w[j / 2][(j & 1) * 2] = pack(s[4 * j], s[4 * j + 1]);
    w[j / 2][(j & 1) * 2 + 1] = pack(s[4 * j + 2], s[4 * j + 3]);
  }
}

// A row of the array is written by PIECES lanes, and has `piece_of` of each lane.
constexpr int PIECES = D / 8;
typedef Inner<PIECES / 2> Pieces;
__device__ __forceinline__ long piece_of(int i, int r0, int len, long stride) {
  const int lane = threadIdx.x & 31, r = r0 + ((threadIdx.x >> 5) & 3) * 16 + (lane + 32 * i) / PIECES;
  return r < len ? r * stride + lane % PIECES * 8 : -1;
}
// The warp's 16 rows of `out`, times `factor`, through `buffer` (the warpgroup's kept tile) to the array. With INNER, `total` becomes
// the sum of the warpgroup's rows.
__device__ __forceinline__ void store(u16* to, Pieces& x, float* out, float factor, char* buffer, int r0, int len, long stride,
                                      float* total) {
  const int lane = threadIdx.x & 31, own = ((threadIdx.x >> 5) & 3) * 16;
#pragma unroll
  for (int j = 0; j < D / 8; j++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      int r = own + half * 8 + (lane >> 2);
      *(u32*)(buffer + (j / 8) * 64 * 128 + r * 128 + (((j & 7) ^ (r & 7)) << 4) + (lane & 3) * 4) =
          pack(out[4 * j + 2 * half] * factor, out[4 * j + 2 * half + 1] * factor);
    }
  __syncwarp();
  const int j = lane % PIECES;
#pragma unroll
  for (int i = 0; i < PIECES / 2; i++) {
    const int r = own + (lane + 32 * i) / PIECES;
    const long at = piece_of(i, r0, len, stride);
    if (at < 0) continue;
    const uint4 found = *(uint4*)(buffer + (j / 8) * 64 * 128 + r * 128 + (((j & 7) ^ (r & 7)) << 4));
    *(uint4*)(to + at) = INNER && MODE != 0 ? x.of(i, found) : found;
  }
  if (!INNER || MODE == 0) return;
#pragma unroll
  for (int e = 0; e < 8; e++)
#pragma unroll
    for (int d = PIECES; d < 32; d *= 2) x.sum[e] += __shfl_xor_sync(0xffffffffu, x.sum[e], d);
  if (lane < PIECES) *(float4*)(buffer + own * 128 + lane * 32) = *(float4*)x.sum, *(float4*)(buffer + own * 128 + lane * 32 + 16) = *(float4*)(x.sum + 4);
  asm volatile("bar.sync %0, 128;" ::"r"(1 + (threadIdx.x >> 7)) : "memory");
  const int column = threadIdx.x & 127;
  if (column < D) {
    const float* sums = (const float*)buffer + column;
    total[column] = sums[0] + sums[512] + sums[1024] + sums[1536];  // 16 rows of 128 bytes apart
  }
}

// work, items: from attention_work.cu. Thread blocks stay resident and take (item, head) pairs by `counter`, at first 0: which takes
// which changes nothing in the results.
extern "C" __global__ void __launch_bounds__(128 * WG + 128, MINB)
    attention(const __grid_constant__ Map keep0, const __grid_constant__ Map keep1, const __grid_constant__ Map stream0,
              const __grid_constant__ Map stream1, u16* __restrict__ out0, u16* __restrict__ out1,
              const int* __restrict__ offsets, u32 sequences, u32 tokens, u32 words, u32* first, u32* second,
              const int4* __restrict__ work, const int* __restrict__ items, int* counter, const int* __restrict__ contexts, const int* __restrict__ candidates, int heads, float alpha,
              float scale, int reach, int k1, int k2, const u16* __restrict__ x0, const u16* __restrict__ x1,
              const float* __restrict__ shift0, const float* __restrict__ shift1, int apart, float* total0, float* total1) {
  extern __shared__ char memory[];
  constexpr u32 KEEP = NKEEP * WG * KEEP_TILE;
  const u32 raw = (u32)__cvta_generic_to_shared(memory), kept = (raw + 1023) & ~1023u;
  const u32 ring0 = kept + KEEPS * KEEP, ring1 = ring0 + STAGES * TILE, bars = ring1 + STAGES * TILE + 32 * KEEPS;
  const u32 full0 = bars, full1 = full0 + 8 * STAGES, empty0 = full1 + 8 * STAGES, empty1 = empty0 + 8 * STAGES;
  const u32 keep_full = empty1 + 8 * STAGES, keep_empty = keep_full + 8 * KEEPS;
  struct Slot { int start, len, m0, head, context, end, sequence, unused; };
  volatile Slot* slots = (volatile Slot*)(memory + (ring1 + STAGES * TILE - raw));
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; s++) {
      barrier_init(full0 + 8 * s, 1), barrier_init(full1 + 8 * s, 1);
      barrier_init(empty0 + 8 * s, 4 * WG), barrier_init(empty1 + 8 * s, 4 * WG);
    }
    for (int s = 0; s < KEEPS; s++) barrier_init(keep_full + 8 * s, 1), barrier_init(keep_empty + 8 * s, 4 * WG);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (threadIdx.x >= 128 * WG) {  // loads
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGP));
    if (threadIdx.x == 128 * WG) {
      const int count = *items * heads;
      int stage = 0, phase = 1, buffer = 0, buffer_phase = 1, at = atomicAdd(counter, 1);
      while (true) {
        wait(keep_empty + 8 * buffer, buffer_phase);
        if (at >= count) {
          slots[buffer].len = -1;
          arrive(keep_full + 8 * buffer);
          break;
        }
        const int4 item = work[at / heads];
        const int head = at % heads, len = item.y, m0 = item.z;
        at = atomicAdd(counter, 1);
        const Mask mask = mask_of(item, contexts, candidates, reach, k1, k2);
        slots[buffer].start = item.x, slots[buffer].len = len, slots[buffer].m0 = m0, slots[buffer].head = head;
        slots[buffer].context = mask.context, slots[buffer].end = mask.end, slots[buffer].sequence = item.w;
        expect(keep_full + 8 * buffer, KEEP);
        const u32 to = kept + buffer * KEEP;
        for (int w = 0; w < WG; w++)
          for (int c = 0; c < D / 64; c++) {
            tma(to + w * KEEP_TILE + c * 64 * 128, &keep0, keep_full + 8 * buffer, c * 64, head, item.x + m0 + 64 * w);
            if (MODE != 0) tma(to + (WG + w) * KEEP_TILE + c * 64 * 128, &keep1, keep_full + 8 * buffer, c * 64, head, item.x + m0 + 64 * w);
          }
        if (++buffer == KEEPS) buffer = 0, buffer_phase ^= 1;
        const Blocks blocks(m0, mask);
        for (int t = 0; t < blocks.total; t++) {
          const int token = item.x + blocks.at(t) * BN;
          wait(empty0 + 8 * stage, phase);
          expect(full0 + 8 * stage, TILE);
          for (int c = 0; c < D / 64; c++)
            tma(ring0 + stage * TILE + c * BN * 128, &stream0, full0 + 8 * stage, c * 64, head, token);
          wait(empty1 + 8 * stage, phase);
          expect(full1 + 8 * stage, TILE);
          for (int c = 0; c < D / 64; c++)
            tma(ring1 + stage * TILE + c * BN * 128, &stream1, full1 + 8 * stage, c * 64, head, token);
          if (++stage == STAGES) stage = 0, phase ^= 1;
        }
      }
    } else if (threadIdx.x >= 128 * WG + 32) {
      clear(offsets, sequences, tokens, words, first, second, blockIdx.x * 96 + threadIdx.x - 128 * WG - 32, gridDim.x * 96);
    }
  } else {  // computes
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGC));
    // The shuffles let the compiler see what is the same in all lanes; it serializes wgmma on paths it takes for divergent.
    const int wg = __shfl_sync(0xffffffffu, threadIdx.x >> 7, 0), lane = threadIdx.x & 31;
    const float half_alpha = 0.5f * alpha, hidden = -1e9f / alpha;  // tanh is -1 there: silu and silu' come out as exact zeros
    int stage = 0, phase = 0, buffer = 0, buffer_phase = 0;
    while (true) {
    wait(keep_full + 8 * buffer, buffer_phase);
    const int len = __shfl_sync(0xffffffffu, slots[buffer].len, 0), m0 = __shfl_sync(0xffffffffu, slots[buffer].m0, 0);
    if (len < 0) break;
    const int context = MASKS ? __shfl_sync(0xffffffffu, slots[buffer].context, 0) : 0;
    const int before_candidates = MASKS ? __shfl_sync(0xffffffffu, slots[buffer].end, 0) : len;
    const Mask mask{len, context, before_candidates, reach, k1, k2};
    const Blocks blocks(m0, mask);
    const int r0 = m0 + 64 * wg;
    const int row = r0 + ((threadIdx.x >> 5) & 3) * 16 + (lane >> 2), column = (lane & 3) * 2;
    const u32 tile0 = kept + buffer * KEEP + wg * KEEP_TILE;
    [[maybe_unused]] const u32 tile1 = tile0 + WG * KEEP_TILE;
    // The blocks that this warpgroup's rows need.
    int begin = 0, end = blocks.total;
    while (begin < end && !mask.some(r0, 64, blocks.at(begin) * BN, BN)) begin++;
    while (begin < end && !mask.some(r0, 64, blocks.at(end - 1) * BN, BN)) end--;
    float acc0[D / 2], acc1[MODE == 2 ? D / 2 : 1], s[BN / 2];
#pragma unroll
    for (int i = 0; i < D / 2; i++) acc0[i] = 0.f;
    if (MODE == 2)
#pragma unroll
      for (int i = 0; i < D / 2; i++) acc1[MODE == 2 ? i : 0] = 0.f;
    [[maybe_unused]] u32 w[BN / 16][4];
    const long stride = INNER ? apart : heads * D, base = slots[buffer].start * stride + slots[buffer].head * D;
    [[maybe_unused]] Pieces of0, of1;
#define FETCH(to, x, shift) \
    to.fetch(x + base, shift + slots[buffer].head * D + lane % PIECES * 8, [&](int i) { return piece_of(i, r0, len, stride); })
#define RELEASE(barrier, at) if (lane == 0) arrive(barrier + 8 * (at))
#define NEXT if (++stage == STAGES) stage = 0, phase ^= 1
#define SKIP(from, to) \
    for (int t = from; t < to; t++) { \
      wait(full0 + 8 * stage, phase); wait(full1 + 8 * stage, phase); \
      RELEASE(empty0, stage); RELEASE(empty1, stage); \
      NEXT; \
    }
    if (INNER && MODE != 0 && lane % 8 == 0) {  // what FETCH will read, into the second-level cache
#pragma unroll
      for (int i = 0; i < PIECES / 2; i++) {
        const long at = piece_of(i, r0, len, stride);
        if (at < 0) continue;
        asm volatile("prefetch.global.L2 [%0];" ::"l"(x0 + base + at));
        if (MODE == 2) asm volatile("prefetch.global.L2 [%0];" ::"l"(x1 + base + at));
      }
    }
    SKIP(0, begin)
#if MODE == 0
#define SILU(t) { \
      const int n0 = blocks.at(t) * BN; \
      if (!mask.whole(r0, 64, n0, BN)) hide(mask, s, row, n0 + column, hidden); \
      _Pragma("unroll") for (int i = 0; i < BN / 2; i++) { float h = s[i] * half_alpha; s[i] = h * tanh_fast(h) + h; } \
    }
    if (begin < end) {
      wait(full0 + 8 * stage, phase);
      product(s, tile0, ring0 + stage * TILE);
      wgmma_wait<0>();
      RELEASE(empty0, stage);
      SILU(begin)
      weights(s, w);
      for (int t = begin + 1; t < end; t++) {
        const int before = stage, phase_before = phase;
        NEXT;
        wait(full0 + 8 * stage, phase);
        product(s, tile0, ring0 + stage * TILE);
        wait(full1 + 8 * before, phase_before);
        gather(acc0, w, ring1 + before * TILE);
        wgmma_wait<1>();
        keep_registers(s, BN / 2);
        RELEASE(empty0, stage);
        SILU(t)
        wgmma_wait<0>();
        keep_registers(acc0, D / 2);
        RELEASE(empty1, before);
        weights(s, w);
      }
      wait(full1 + 8 * stage, phase);
      gather(acc0, w, ring1 + stage * TILE);
      wgmma_wait<0>();
      RELEASE(empty1, stage);
      NEXT;
    }
#else
    float g[BN / 2];
    u32 ds[BN / 16][4];  // first 2 silu' - 1 as fp16, two to a register (registers are what this mode lacks), then bf16 for the product
    int before = -1;
    for (int t = begin; t < end; t++) {
      const int n0 = blocks.at(t) * BN;
      wait(full0 + 8 * stage, phase);
      product(s, tile0, ring0 + stage * TILE);
      if (MODE == 2) {
        wgmma_wait<1>();  // what the previous block left
      } else {
        wait(full1 + 8 * stage, phase);
        product(g, tile1, ring1 + stage * TILE);
        wgmma_wait<2>();
      }
      if (before >= 0) {
        RELEASE(empty0, before);
        if (MODE == 2) RELEASE(empty1, before);
      }
      if (MODE == 2) {
        wait(full1 + 8 * stage, phase);
        product(g, tile1, ring1 + stage * TILE);
      }
      wgmma_wait<1>();
      keep_registers(s, BN / 2);
      if (!mask.whole(r0, 64, n0, BN)) hide(mask, s, row, n0 + column, hidden);
      // s becomes 2 silu' - 1, w silu
#pragma unroll
      for (int j = 0; j < BN / 8; j++) {
        float p[4];
#pragma unroll
        for (int e = 0; e < 4; e++) {
          // with y = tanh(h), h half the product: silu = h y + h, 2 silu' - 1 = h (1 - y y) + y
          float h = s[4 * j + e] * half_alpha, y = tanh_fast(h);
          p[e] = h * y + h;
          s[4 * j + e] = h * (1.f - y * y) + y;
        }
        if (MODE == 2) {
          w[j / 2][(j & 1) * 2] = pack(p[0], p[1]), w[j / 2][(j & 1) * 2 + 1] = pack(p[2], p[3]);
          if (HALF) ds[j / 2][(j & 1) * 2] = pack_half(s[4 * j], s[4 * j + 1]), ds[j / 2][(j & 1) * 2 + 1] = pack_half(s[4 * j + 2], s[4 * j + 3]);
        }
      }
#if MODE == 2
      gather(acc1, w, ring1 + stage * TILE);
      wgmma_wait<1>();
#else
      wgmma_wait<0>();
      RELEASE(empty1, stage);
#endif
      keep_registers(g, BN / 2);
      if (HALF) {
#pragma unroll
        for (int j = 0; j < BN / 4; j++) {
          float low, high;
          unpack_half(ds[j / 4][j & 3], low, high);
          ds[j / 4][j & 3] = pack(low * g[2 * j] + g[2 * j], high * g[2 * j + 1] + g[2 * j + 1]);
        }
      } else {
#pragma unroll
        for (int i = 0; i < BN / 2; i++) s[i] = s[i] * g[i] + g[i];
        weights(s, ds);
      }
      gather(acc0, ds, ring0 + stage * TILE);
      before = stage;
      NEXT;
    }
    if (INNER) FETCH(of0, x0, shift0);
    if (INNER && MODE == 2 && D == 64) FETCH(of1, x1, shift1);  // of 128 numbers, registers would not suffice
    wgmma_wait<0>();
    keep_registers(acc0, D / 2);
    if (MODE == 2) keep_registers(acc1, D / 2);
    if (before >= 0) {
      RELEASE(empty0, before);
      if (MODE == 2) RELEASE(empty1, before);
    }
#endif
    SKIP(end, blocks.total)
    asm volatile("bar.sync %0, 128;" ::"r"(1 + wg) : "memory");
    if (r0 < len) {
      const long slot = INNER ? ((slots[buffer].start + r0) / 64 + slots[buffer].sequence) * (long)apart + slots[buffer].head * D : 0;
      store(out0 + base, of0, acc0, MODE == 0 ? scale : 0.5f * alpha * scale, memory + (tile0 - raw), r0, len, stride, total0 + slot);
      if (INNER && MODE == 2 && D == 128) FETCH(of1, x1, shift1);
      if (MODE == 2) store(out1 + base, of1, acc1, scale, memory + (tile1 - raw), r0, len, stride, total1 + slot);
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // before TMA writes over what store wrote
    __syncwarp();
    RELEASE(keep_empty, buffer);
    if (++buffer == KEEPS) buffer = 0, buffer_phase ^= 1;
    }
  }
}
