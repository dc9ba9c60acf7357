// Tiles of 16-bit numbers in shared memory, and their products by the matrix instructions of sm_80 and later.
// Macros: D (64 or 128, numbers of a row), MT (tiles of 16 rows), NC (rows of the other side, per step).
#ifdef SPARROW_EMULATED
typedef char* Shared;
DEVICE Shared smem_address(void* p) { return (char*)p; }
DEVICE void copy16(Shared to, const void* from, bool there) { there ? memcpy(to, from, 16) : memset(to, 0, 16); }
DEVICE void commit_copies() {}
DEVICE void wait_copies() {}
DEVICE void ldm(u32* r, Shared at) {
  const u32 lane = threadIdx.x % 32;
  for (u32 m = 0; m < 4; ++m) r[m] = *(u32*)(__shfl_sync(FULL, at, m * 8 + lane / 4) + lane % 4 * 4);
}
DEVICE void ldm_t(u32* r, Shared at) {
  const u32 lane = threadIdx.x % 32;
  for (u32 m = 0; m < 4; ++m) {
    const Shared low = __shfl_sync(FULL, at, m * 8 + lane % 4 * 2), high = __shfl_sync(FULL, at, m * 8 + lane % 4 * 2 + 1);
    r[m] = ((u16*)low)[lane / 4] | u32(((u16*)high)[lane / 4]) << 16;
  }
}
DEVICE void mma(float* c, const u32* a, const u32* b) {
  const u32 g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const auto number = [](u32 word, int i) { return from_bfloat16(u16(word >> (16 * i))); };
  for (u32 k = 0; k < 4; ++k) {
    u32 left[4], right[2][2];
    for (int r = 0; r < 4; ++r) left[r] = __shfl_sync(FULL, a[r], g * 4 + k);
    for (int column = 0; column < 2; ++column)
      for (int half = 0; half < 2; ++half) right[column][half] = __shfl_sync(FULL, b[half], (2 * t + column) * 4 + k);
    for (int e = 0; e < 4; ++e)
      for (int i = 0; i < 2; ++i)
        c[e] += number(left[e / 2], i) * number(right[e % 2][0], i) + number(left[2 + e / 2], i) * number(right[e % 2][1], i);
  }
}
#else
typedef u32 Shared;
__device__ __forceinline__ Shared smem_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void copy16(Shared to, const void* from, bool there) {
  int bytes = there ? 16 : 0;  // the rest is filled with zeros
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes));
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;"); }
__device__ __forceinline__ void wait_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
__device__ __forceinline__ void ldm(u32* r, Shared at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}
__device__ __forceinline__ void ldm_t(u32* r, Shared at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}
__device__ __forceinline__ void mma(float* c, const u32* a, const u32* b) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif
// Rows of D bf16; the 16-byte pieces of a row are permuted by the row, so that ldmatrix has no bank conflicts.
__device__ __forceinline__ u32 place(int row, int piece) { return row * (D * 2) + ((piece ^ (row & 7)) << 4); }

// out (MT x D) += weights (MT x NC, bf16) x stream (NC rows from n)
__device__ __forceinline__ void gather(float (*out)[D / 8][4], u32 (*w)[NC / 16][4], Shared stream, int n, int lane) {
#pragma unroll
  for (int k = 0; k < NC / 16; k++)
#pragma unroll
    for (int j = 0; j < D / 16; j++) {
      u32 b[4];
      ldm_t(b, stream + place(n + k * 16 + (lane & 15), 2 * j + (lane >> 4)));
#pragma unroll
      for (int m = 0; m < MT; m++) {
        mma(out[m][2 * j], w[m][k], b);
        mma(out[m][2 * j + 1], w[m][k], b + 2);
      }
    }
}
