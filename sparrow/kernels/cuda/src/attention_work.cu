// The blocks of rows that the attention kernels take, as a list: of each item the first token and the length of its sequence, the
// block's first row, the number of the sequence. Long sequences come first (little is left to do at the end), the blocks of one
// sequence stay together (they share what they stream in the second-level cache), of these the one with the most to do comes first.
constexpr u32 KINDS = 256;  // of lengths

extern "C" __global__ void __launch_bounds__(1024)
    attention_work(const int* offsets, u32 sequences, u32 tokens, u32 rows, u32 ascending, int4* items, int* count) {
  __shared__ int starts[KINDS], longest;
  const u32 thread = threadIdx.x;
  if (thread < KINDS) starts[thread] = 0;
  if (thread == 0) longest = 1;
  __syncthreads();
  const auto start_of = [&](u32 s) { return min(max(offsets[s], 0), (int)tokens); };
  const auto blocks_of = [&](u32 s) { return (max(start_of(s + 1) - start_of(s), 0) + (int)rows - 1) / (int)rows; };
  for (u32 s = thread; s < sequences; s += 1024) atomicMax(&longest, blocks_of(s));
  __syncthreads();
  const auto kind_of = [&](int blocks) { return KINDS - 1 - (u32)((long long)blocks * (KINDS - 1) / longest); };
  for (u32 s = thread; s < sequences; s += 1024) atomicAdd(&starts[kind_of(blocks_of(s))], blocks_of(s));
  __syncthreads();
  if (thread < 32) {  // exclusive sums
    int own[KINDS / 32], sum = 0;
    for (int i = 0; i < KINDS / 32; ++i) own[i] = sum, sum += starts[thread * (KINDS / 32) + i];
    int before = sum;
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(0xffffffffu, before, step);
      if (thread >= step) before += other;
    }
    if (thread == 31) *count = before;
    for (int i = 0; i < KINDS / 32; ++i) starts[thread * (KINDS / 32) + i] = before - sum + own[i];
  }
  __syncthreads();
  for (u32 s = thread; s < sequences; s += 1024) {
    const int blocks = blocks_of(s), start = start_of(s), length = start_of(s + 1) - start;
    const int at = atomicAdd(&starts[kind_of(blocks)], blocks);
    for (int i = 0; i < blocks; ++i) {
      items[at + i] = make_int4(start, length, (ascending ? i : blocks - 1 - i) * (int)rows, (int)s);
    }
  }
}
