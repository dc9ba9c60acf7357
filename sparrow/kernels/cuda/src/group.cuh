// How a row lies over the lanes of a warp. Macros decide it:
//   DIM     elements of a row, or of a slice of it
//   SLICES  slices that a row has; each is worked on for itself
//   VECTOR  elements that a lane reads at once, a divisor of DIM
//   LANES   lanes that share a row (0: as few as hold it in one vector each, 32 at most)
constexpr int V = VECTOR;
constexpr int VECTORS = DIM / V;
constexpr int next_power(int n, int p = 1) { return p >= n ? p : next_power(n, 2 * p); }
constexpr int L = LANES ? LANES : next_power(VECTORS) > 32 ? 32 : next_power(VECTORS);
constexpr int G = 32 / L;                 // groups in a warp
constexpr int K = (VECTORS + L - 1) / L;  // vectors of a lane
constexpr int E = K * V;                  // elements of a lane
constexpr bool RAGGED = K * L != VECTORS;
constexpr u64 STRIDE = static_cast<u64>(DIM) * SLICES;  // elements of a complete row
static_assert(DIM % V == 0, "a row is made of vectors");

template <class T>
DEVICE T exchange(u32 mask, T x, int distance) {
  if constexpr (sizeof(T) < 4) return T(__shfl_xor_sync(mask, int(x), distance));
  else return __shfl_xor_sync(mask, x, distance);
}

// The lanes that share a row. Lane l holds vectors l, l + L, ...
struct Group {
  u32 lane;   // within the group
  u32 mask;   // the warp's lanes that take part in the group's exchanges
  u32 slice;  // of the row

  MEMBER bool has(int k) const { return !RAGGED || k * L + lane < VECTORS; }
  MEMBER int offset(int k) const { return (k * L + lane) * V; }
  MEMBER int column(int i) const { return slice * DIM + offset(i / V) + i % V; }
  MEMBER bool inside(int i) const { return has(i / V); }
  // Of all lanes' x, by a butterfly: every lane gets the same bits, because a + b is b + a.
  template <class T, class F>
  MEMBER T combine(T x, F f) const {
#pragma unroll
    for (int d = L / 2; d > 0; d /= 2) x = f(x, exchange(mask, x, d));
    return x;
  }
};
