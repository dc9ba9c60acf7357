// A projection and its silu, where rows are so short that a product of their own would wait for memory: p = x W, and silu(p + shift),
// for sm_90a. A thread block keeps 256 columns of W in shared memory and takes 64 rows of x at a time; WG warpgroups compute a part
// of the columns each, one more loads.
//
// Macros: K (numbers of a row of x: 64, 128, 192 or 256), WIDTH (a fourth of the columns of W, a multiple of 256), STAGES (of x), WG (2 or 4).
constexpr int COLUMNS = 256 / WG, PIECES = COLUMNS / 8;  // of a warpgroup; 16 bytes of a row of them
constexpr int PANEL = K * 128, ROWS = K / 64 * 64 * 128;  // bytes: 64 columns of W; 64 rows of x
typedef uint16_t u16;

__device__ __forceinline__ float silu(float x) { return x * reciprocal_fast(1.f + exp2_fast(-1.44269504f * x)); }

// u: the first third of rows of 3 WIDTH numbers. Every `slices`-th block has the same columns.
extern "C" __global__ void __launch_bounds__(128 * WG + 128, 1)
    project(const __grid_constant__ Map from, const __grid_constant__ Map by, const float* __restrict__ shift, u16* p, u16* u, u16* v,
            u16* q, u16* k, u32 rows) {
  extern __shared__ char memory[];
  constexpr u32 slices = 4 * WIDTH / 256;
  const u32 raw = (u32)__cvta_generic_to_shared(memory), held = (raw + 1023) & ~1023u;
  const u32 ring = held + 4 * PANEL, staging = ring + STAGES * ROWS, there = staging + 32768, full = there + 8, empty = full + 8 * STAGES;
  const u32 slice = blockIdx.x % slices, first = blockIdx.x / slices, step = gridDim.x / slices;
  if (threadIdx.x == 0) {
    barrier_init(there, 1);
    for (int s = 0; s < STAGES; s++) barrier_init(full + 8 * s, 1), barrier_init(empty + 8 * s, 4 * WG);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  int stage = 0;
  if (threadIdx.x >= 128 * WG) {  // loads
    if (threadIdx.x > 128 * WG) return;
    expect(there, 4 * PANEL);
    for (int c = 0; c < 4; c++) tma(held + c * PANEL, &by, there, slice * 256 + c * 64, 0, 0);
    int phase = 1;
    for (u32 at = first; at * 64 < rows; at += step) {
      wait(empty + 8 * stage, phase);
      expect(full + 8 * stage, ROWS);
      for (int c = 0; c < K / 64; c++) tma(ring + stage * ROWS + c * 64 * 128, &from, full + 8 * stage, c * 64, 0, at * 64);
      if (++stage == STAGES) stage = 0, phase ^= 1;
    }
    return;
  }
  const int wg = __shfl_sync(0xffffffffu, threadIdx.x >> 7, 0), lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const u32 column = slice * 256 + wg * COLUMNS + lane % PIECES * 8, part = slice * 256 / WIDTH, stride = part ? WIDTH : 3 * WIDTH;
  u16* const activated = (part == 0 ? u : part == 1 ? v : part == 2 ? q : k) + column % WIDTH;
  char* const own = memory + (staging - raw) + warp * 32 * COLUMNS;  // 16 rows
  float plus[8];
  *(float4*)plus = *(const float4*)(shift + column), *(float4*)(plus + 4) = *(const float4*)(shift + column + 4);
  int phase = 0;
  wait(there, 0);
  for (u32 at = first; at * 64 < rows; at += step) {
    float c[COLUMNS / 2];
    wait(full + 8 * stage, phase);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < K / 16; s++)
      wgmma_st<COLUMNS>(c, descriptor(ring + stage * ROWS + (s / 4) * 64 * 128 + (s % 4) * 32, 16),
                    descriptor(held + wg * (COLUMNS / 64) * PANEL + s * 16 * 128, PANEL), s > 0);
    wgmma_commit();
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < COLUMNS / 2; i++) asm volatile("" : "+f"(c[i])::"memory");
    if (lane == 0) arrive(empty + 8 * stage);
    if (++stage == STAGES) stage = 0, phase ^= 1;
#pragma unroll
    for (int j = 0; j < PIECES; j++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int r = half * 8 + (lane >> 2);
        *(u32*)(own + r * 2 * COLUMNS + ((j ^ (r & 7)) << 4) + (lane & 3) * 4) = pack(c[4 * j + 2 * half], c[4 * j + 2 * half + 1]);
      }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < PIECES / 2; i++) {
      const int r = (lane + 32 * i) / PIECES;
      const u64 row = at * 64 + (warp & 3) * 16 + r;
      if (row >= rows) continue;
      const uint4 found = *(uint4*)(own + r * 2 * COLUMNS + ((lane % PIECES ^ (r & 7)) << 4));
      const u32 words[4] = {found.x, found.y, found.z, found.w};
      u32 made[4];
#pragma unroll
      for (int e = 0; e < 4; e++)
        made[e] = pack(silu(bit_cast<float>(words[e] << 16) + plus[2 * e]), silu(bit_cast<float>(words[e] & 0xffff0000u) + plus[2 * e + 1]));
      *(uint4*)(p + row * (4 * WIDTH) + column) = found;
      *(uint4*)(activated + row * stride) = {made[0], made[1], made[2], made[3]};
    }
    __syncwarp();
  }
}
