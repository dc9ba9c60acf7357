// First values of rows whose ids are new, uniform between two numbers of their table: the random bits that JAX draws for the key of
// seed, table and id (threefry, partitionable). The grid does not depend on the number of new ids: the host need not know it.
//   DIM, TABLE: of a row     NE slots with vectors     NR slots with one number per row
constexpr int START_THREADS = 256;
constexpr int START_LANES = DIM > 16 ? 32 : DIM > 8 ? 16 : DIM > 4 ? 8 : 4;
constexpr int COLUMNS = 3 + NE + NR;  // of a table: its hash, the limits, the first values of its slots
typedef Kept<TABLE> Number;

struct Arrays {
  Number::T* table;
  float* vectors[NE > 0 ? NE : 1];
  float* numbers[NR > 0 ? NR : 1];
};

// Copies an element of a row, and with the first one the numbers of the row.
DEVICE void copy(const Arrays& to, u64 to_row, const Arrays& from, u64 from_row, u32 e) {
  to.table[to_row * DIM + e] = from.table[from_row * DIM + e];
#pragma unroll
  for (int k = 0; k < NE; ++k) to.vectors[k][to_row * DIM + e] = from.vectors[k][from_row * DIM + e];
  if (e != 0) return;
#pragma unroll
  for (int k = 0; k < NR; ++k) to.numbers[k][to_row] = from.numbers[k][from_row];
}

struct Pair {
  u32 a, b;
};

DEVICE u32 turned(u32 x, int by) { return x << by | x >> (32 - by); }

DEVICE Pair threefry(Pair key, u32 a, u32 b) {
  const u32 keys[3] = {key.a, key.b, key.a ^ key.b ^ 0x1bd11bdau};
  constexpr int turns[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  a += keys[0], b += keys[1];
#pragma unroll
  for (int i = 0; i < 5; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      a += b;
      b = turned(b, turns[i % 2][j]) ^ a;
    }
    a += keys[(i + 1) % 3], b += keys[(i + 2) % 3] + u32(i + 1);
  }
  return {a, b};
}

// Rounded twice, as XLA does it: no fused operation.
#ifdef SPARROW_EMULATED
DEVICE float scaled(float x, float by, float plus) { return x * by + plus; }
#else
DEVICE float scaled(float x, float by, float plus) { return __fadd_rn(__fmul_rn(x, by), plus); }
#endif

extern "C" __global__ void __launch_bounds__(START_THREADS) start(Arrays to, Arrays before, const u32* rows, const u32* ids, const u32* ends,
                                                                  const u32* tables, const u32* seed, u32 num_tables, u32 num_rows) {
  const u32 lane = threadIdx.x % START_LANES, count = ends[num_tables - 1], groups = gridDim.x * (START_THREADS / START_LANES);
  for (u32 i = blockIdx.x * (START_THREADS / START_LANES) + threadIdx.x / START_LANES; i < count; i += groups) {
    const u32 row = rows[i];
    u32 table = 0;
    while (table + 1 < num_tables && ends[table] <= i) ++table;
    if (row >= num_rows) continue;
    const u32* own = tables + table * COLUMNS;
    const Pair of_table = threefry({0, *seed}, 0, own[0]);
    const Pair key = threefry(threefry(of_table, 0, ids[2 * i + 1]), 0, ids[2 * i]);
    const float low = bit_cast<float>(own[1]), width = bit_cast<float>(own[2]) - low;
    for (u32 e = lane; e < DIM; e += START_LANES) {
      copy(before, i, to, row, e);
      const Pair drawn = threefry(key, 0, e);
      const float unit = bit_cast<float>((drawn.a ^ drawn.b) >> 9 | 0x3f800000u) - 1.0f;
      const float value = scaled(unit, width, low);
      to.table[u64(row) * DIM + e] = Number::put(value < low ? low : value);
#pragma unroll
      for (int k = 0; k < NE; ++k) to.vectors[k][u64(row) * DIM + e] = bit_cast<float>(own[3 + k]);
    }
    if (lane == 0) {
#pragma unroll
      for (int k = 0; k < NR; ++k) to.numbers[k][row] = bit_cast<float>(own[3 + NE + k]);
    }
  }
}

// The rows as `start` found them.
extern "C" __global__ void __launch_bounds__(START_THREADS) put_back(Arrays to, Arrays before, const u32* rows, const u32* ends, const u32* when,
                                                                     u32 num_tables, u32 num_rows) {
  if (*when == 0) return;
  const u32 lane = threadIdx.x % START_LANES, count = ends[num_tables - 1], groups = gridDim.x * (START_THREADS / START_LANES);
  for (u32 i = blockIdx.x * (START_THREADS / START_LANES) + threadIdx.x / START_LANES; i < count; i += groups) {
    if (rows[i] >= num_rows) continue;
    for (u32 e = lane; e < DIM; e += START_LANES) copy(to, rows[i], before, i, e);
  }
}
