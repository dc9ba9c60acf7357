// Barriers, copies by the copy engine (TMA) and matrix instructions of sm_90a.
struct __align__(64) Map { u64 words[16]; };  // a CUtensorMap

__device__ __forceinline__ void barrier_init(u32 at, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count));
}
__device__ __forceinline__ void expect(u32 at, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
}
__device__ __forceinline__ void arrive(u32 at) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}
__device__ __forceinline__ void wait(u32 at, int parity) {
  asm volatile(
      "{\n.reg .pred p;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra DONE;\nbra AGAIN;\nDONE:\n}\n" ::"r"(at),
      "r"(parity)
      : "memory");
}
__device__ __forceinline__ void tma(u32 to, const Map* map, u32 barrier, int column, int head, int token) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(column), "r"(head), "r"(token)
      : "memory");
}
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
// WGMMA_INSTRUCTIONS
// Tiles lie as columns of 64 elements (128 bytes), each [rows][64], in the 128-byte swizzle.
__device__ __forceinline__ u64 descriptor(u32 at, u32 leading) {
  return (u64)((at & 0x3FFFF) >> 4) | (u64)(leading >> 4) << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}
