// Dot products of all pairs of an example's vectors, and their gradient, on tensor cores. A warp takes an example.
//   NUMBERS  of all numbers: 1 bfloat16, 2 float16 (types.cuh)     DIM  elements of a vector, a multiple of 32
//   FIRST, VECTORS  vectors of an example in the first array, and in both     WARPS, MIN_BLOCKS  of the launch
//   AHEAD, AHEAD_GRADIENT  steps of 32 elements that are on their way together
//
// A matrix instruction takes 16 columns at a time: two of every four consecutive lanes' numbers, in its own order. A dot
// product has no order of columns, so a lane reads 8 consecutive numbers at once and gives them to two instructions as
// they lie; both operands have the same order.
typedef Kept<NUMBERS>::T Half;
constexpr u32 BLOCKS = (VECTORS + 7) / 8;  // of 8 vectors, the height of a register's matrix
constexpr u32 TILES = (BLOCKS + 1) / 2;    // of 16 vectors, the height of an operand
constexpr u32 STEPS = DIM / 32;
constexpr u32 PAIRS = VECTORS * (VECTORS - 1) / 2;
static_assert(DIM % 32 == 0 && WARPS % 2 == 0, "lanes read 16 bytes, blocks write words");

// The place of the pair i < j.
DEVICE u32 place(u32 i, u32 j) { return i * (2 * VECTORS - i - 1) / 2 + j - i - 1; }

#ifdef SPARROW_EMULATED
// sum += a b, of 16 x 16 and 16 x 8. A lane holds two numbers of a row in each word, of columns 2 t and 2 t + 1.
DEVICE void multiply(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  const u32 lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const auto number = [](u32 word, int i) { return Kept<NUMBERS>::get(Half(word >> (16 * i))); };
  for (u32 k = 0; k < 4; ++k) {
    u32 left[4], right[2][2];
    for (int r = 0; r < 4; ++r) left[r] = __shfl_sync(FULL, a[r], g * 4 + k);
    for (int c = 0; c < 2; ++c) {
      right[c][0] = __shfl_sync(FULL, b0, (2 * t + c) * 4 + k);
      right[c][1] = __shfl_sync(FULL, b1, (2 * t + c) * 4 + k);
    }
    for (int c = 0; c < 2; ++c)
      for (int i = 0; i < 2; ++i) {
        sum[c] += number(left[0], i) * number(right[c][0], i) + number(left[2], i) * number(right[c][1], i);
        sum[2 + c] += number(left[1], i) * number(right[c][0], i) + number(left[3], i) * number(right[c][1], i);
      }
  }
}
// An 8 x 8 matrix, a row of it in four consecutive lanes, with rows and columns exchanged.
DEVICE u32 transpose(u32 x) {
  const u32 lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const u32 even = __shfl_sync(FULL, x, 2 * t * 4 + g / 2), odd = __shfl_sync(FULL, x, (2 * t + 1) * 4 + g / 2);
  return (even >> (g % 2 * 16) & 0xffff) | odd >> (g % 2 * 16) << 16;
}
#else
DEVICE void multiply(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  if (NUMBERS == 1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}
DEVICE u32 transpose(u32 x) {
  u32 y;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}
#endif

// Where vector i of an example lies.
template <class T>
DEVICE T* vector_at(T* first, T* rest, u64 example, u32 i) {
  if (i < FIRST) return first + (example * FIRST + i) * DIM;
  return rest + (example * (VECTORS - FIRST) + i - FIRST) * DIM;
}

// A lane's numbers of one step: 8 of every eighth vector, and zeros past the last vector.
struct Numbers {
  Pack<Half, 8> of[2 * TILES];
  MEMBER void load(const Half* first, const Half* rest, u64 example, u32 step, u32 g, u32 t) {
#pragma unroll
    for (u32 r = 0; r < 2 * TILES; ++r) {
      of[r] = {};
      if (8 * r + g < VECTORS) of[r] = load_constant<8>(vector_at(first, rest, example, 8 * r + g) + step * 32 + t * 8);
    }
  }
};

// The pairs of a block's examples lie side by side in `all` and in shared memory, and are moved as words.
DEVICE u32 halves_of_block(u32 batch) {
  const u32 left = batch - blockIdx.x * WARPS;
  return (left < WARPS ? left : WARPS) * PAIRS;
}

extern "C" __global__ void __launch_bounds__(WARPS * 32, MIN_BLOCKS)
    pairs(const Half* __restrict__ first, const Half* __restrict__ rest, Half* all, u32 batch) {
  __shared__ u32 words[WARPS * PAIRS / 2 + 1];
  Half* staged = reinterpret_cast<Half*>(words);
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const u32 example = blockIdx.x * WARPS + warp;
  if (example < batch) {
    float sum[TILES][BLOCKS][4] = {};
#pragma unroll 1
    for (u32 begin = 0; begin < STEPS; begin += AHEAD) {
      Numbers x[AHEAD];
#pragma unroll
      for (u32 s = 0; s < AHEAD; ++s)
        if (begin + s < STEPS) x[s].load(first, rest, example, begin + s, g, t);
#pragma unroll
      for (u32 s = 0; s < AHEAD; ++s) {
        if (begin + s >= STEPS) break;
#pragma unroll
        for (u32 half = 0; half < 4; half += 2)
#pragma unroll
          for (u32 m = 0; m < TILES; ++m) {
            const Pack<Half, 8>&upper = x[s].of[2 * m], &lower = x[s].of[2 * m + 1];
            const u32 a[4] = {upper.word[half], lower.word[half], upper.word[half + 1], lower.word[half + 1]};
#pragma unroll
            for (u32 n = 2 * m; n < BLOCKS; ++n)  // the matrix is symmetric: its upper part
              multiply(sum[m][n], a, x[s].of[n].word[half], x[s].of[n].word[half + 1]);
          }
      }
    }
#pragma unroll
    for (u32 m = 0; m < TILES; ++m)
#pragma unroll
      for (u32 n = 2 * m; n < BLOCKS; ++n)
#pragma unroll
        for (u32 c = 0; c < 4; ++c) {
          const u32 i = 16 * m + c / 2 * 8 + g, j = 8 * n + 2 * t + c % 2;
          if (i < j && j < VECTORS) staged[warp * PAIRS + place(i, j)] = Kept<NUMBERS>::put(sum[m][n][c]);
        }
  }
  __syncthreads();
  const u32 count = halves_of_block(batch);
  Half* to = all + static_cast<u64>(blockIdx.x) * WARPS * PAIRS;
  for (u32 i = threadIdx.x; i < count / 2; i += WARPS * 32) reinterpret_cast<u32*>(to)[i] = words[i];
  if (count % 2 && threadIdx.x == 0) to[count - 1] = staged[count - 1];
}

// The gradient of vector i is the sum over j of the gradient of the pair {i, j} times vector j: a symmetric matrix, whose
// diagonal is zero, times the vectors.
extern "C" __global__ void __launch_bounds__(WARPS * 32, MIN_BLOCKS)
    pairs_gradient(const Half* __restrict__ first, const Half* __restrict__ rest, const Half* __restrict__ all, Half* to_first,
                   Half* to_rest, u32 batch) {
  __shared__ u32 words[WARPS * PAIRS / 2 + 1];
  const Half* staged = reinterpret_cast<const Half*>(words);
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const u32 example = blockIdx.x * WARPS + warp;
  const u32 count = halves_of_block(batch);
  const Half* from = all + static_cast<u64>(blockIdx.x) * WARPS * PAIRS;
  for (u32 i = threadIdx.x; i < count / 2; i += WARPS * 32) words[i] = reinterpret_cast<const u32*>(from)[i];
  if (count % 2 && threadIdx.x == 0) reinterpret_cast<Half*>(words)[count - 1] = from[count - 1];
  __syncthreads();
  if (example >= batch) return;
  const auto of_pair = [&](u32 i, u32 j) {
    const bool is_pair = i != j && i < VECTORS && j < VECTORS;
    return is_pair ? u32(staged[warp * PAIRS + (i < j ? place(i, j) : place(j, i))]) : 0;
  };
  u32 symmetric[TILES][TILES][4];
#pragma unroll
  for (u32 m = 0; m < TILES; ++m)
#pragma unroll
    for (u32 k = 0; k < TILES; ++k)
#pragma unroll
      for (u32 w = 0; w < 4; ++w) {
        const u32 i = 16 * m + w % 2 * 8 + g, j = 16 * k + w / 2 * 8 + 2 * t;
        symmetric[m][k][w] = of_pair(i, j) | of_pair(i, j + 1) << 16;
      }
#pragma unroll 1
  for (u32 begin = 0; begin < STEPS; begin += AHEAD_GRADIENT) {
    Numbers x[AHEAD_GRADIENT];
#pragma unroll
    for (u32 s = 0; s < AHEAD_GRADIENT; ++s)
      if (begin + s < STEPS) x[s].load(first, rest, example, begin + s, g, t);
#pragma unroll
    for (u32 s = 0; s < AHEAD_GRADIENT; ++s) {
      if (begin + s >= STEPS) break;
      float sum[TILES][4][4] = {};
#pragma unroll
      for (u32 w = 0; w < 4; ++w)
#pragma unroll
        for (u32 k = 0; k < TILES; ++k) {
          const u32 b0 = transpose(x[s].of[2 * k].word[w]), b1 = transpose(x[s].of[2 * k + 1].word[w]);
#pragma unroll
          for (u32 m = 0; m < TILES; ++m) multiply(sum[m][w], symmetric[m][k], b0, b1);
        }
#pragma unroll
      for (u32 m = 0; m < TILES; ++m)
#pragma unroll
        for (u32 lower = 0; lower < 2; ++lower) {
          const u32 i = 16 * m + 8 * lower + g;
          Half values[8];
#pragma unroll
          for (u32 v = 0; v < 8; ++v) values[v] = Kept<NUMBERS>::put(sum[m][v / 2][2 * lower + v % 2]);
          if (i < VECTORS) store<CACHED>(vector_at(to_first, to_rest, example, i) + (begin + s) * 32 + t * 8, make_pack<8>(values), 0);
        }
    }
  }
}
