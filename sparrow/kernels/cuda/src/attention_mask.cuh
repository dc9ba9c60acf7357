// Which queries see which keys in one sequence: context, then history, then candidates (from `end` on); the equations are those of
// kernels/attention/operation.py.
//   MODE   0 forward, 1 dq: rows are queries, columns keys     2 dk and dv: rows are keys, columns queries
//   MASKS  0 causal alone     1 context, candidates, reach     2 sla_k1, sla_k2
//   BM, BN rows of a block, columns of a streamed tile
//   INNER  1: q, k, v are silu(x + shift) of columns of one array; results are gradients of x. Rows of x and of the results are `apart`
//          numbers from each other (forward: of the result alone); x0, x1, shift0, shift1 begin with the first head
typedef uint16_t u16;  // bf16

struct Spans {
  int low, high, low2, high2;  // columns [low, high) and [low2, high2)
};

struct Mask {
  int len, context, end, reach, k1, k2;
  __device__ __forceinline__ int place(int x) const { return max(context - 1, min(x, end)); }
  __device__ __forceinline__ int first() const { return max(k2, context); }  // all see these, with MASKS 2

  // The columns that go with row r.
  __device__ __forceinline__ Spans spans(int r) const {
    if (MASKS == 0) return MODE == 2 ? Spans{r, len, 0, 0} : Spans{0, r + 1, 0, 0};
    if (MODE == 2) {
      if (MASKS == 2) return r >= end ? Spans{0, 0, 0, 0} : Spans{r, r < first() ? end : min(r + k1, end), end, len};
      if (r >= end) return Spans{r, min(r + 1, len), 0, 0};
      return Spans{r, end - place(r) <= reach ? len : place(r) + reach + 1, 0, context};
    }
    if (MASKS == 2) return r >= end ? Spans{0, end, 0, 0} : Spans{0, min(first(), r + 1), max(0, r - k1 + 1), r + 1};
    if (r < context) return Spans{0, end, 0, 0};
    const int near = place(r) - reach;
    return Spans{near < context ? 0 : near, min(r + 1, end), r, r + 1};
  }
  // Whether all of `rows` rows from r go with all of `columns` columns from c; may be false where they do.
  __device__ __forceinline__ bool whole(int r, int rows, int c, int columns) const {
    const int last = r + rows - 1, stop = c + columns;
    if (MASKS == 2) {
      if (MODE == 2) {
        if (last >= end) return false;
        return (c >= end && stop <= len) || (c >= last && stop <= end && (last < first() || stop - 1 - r < k1));
      }
      if (stop > end) return false;
      return r >= end || (last < end && stop - 1 <= r && (stop <= first() || last - c < k1));
    }
    if (MODE == 2) return c >= last && stop <= len && (!MASKS || (c > last && last < end && place(stop - 1) - place(r) <= reach));
    return stop - 1 <= r && (!MASKS || (stop - 1 < r && stop <= end && place(last) - place(c) <= reach));
  }
  // Whether any of them may, apart from the reach.
  __device__ __forceinline__ bool some(int r, int rows, int c, int columns) const {
    if (r >= len) return false;
    if (MASKS == 2) return MODE == 2 ? r < end && c + columns - 1 >= r : c <= r + rows - 1 && c < end;
    if (MODE == 2) return c + columns - 1 >= r || (MASKS && c < context && r < end);
    return c <= r + rows - 1 || (MASKS && r < context && c < end);
  }
};

// The mask of the sequence of an item of the work list; `contexts` and `candidates` by sequence, null: none.
__device__ __forceinline__ Mask mask_of(const int4& item, const int* __restrict__ contexts,
                                        const int* __restrict__ candidates, int reach, int k1, int k2) {
  const int len = item.y;
  const int history = MASKS && candidates ? len - min(max(candidates[item.w], 0), len) : len;
  const int context = MASKS && contexts ? min(max(contexts[item.w], 0), history) : 0;
  return {len, context, history, reach, k1, k2};
}

// The blocks of BN columns that the BM rows from m0 need: `count` from `a`, then others from `b`.
struct Blocks {
  int a, count, b, total;
  __device__ __forceinline__ Blocks(int m0, const Mask& m) {
    const int stop = min(m0 + BM, m.len);
    if (MASKS == 0) {
      a = MODE == 2 ? m0 / BN : 0;
      total = count = (MODE == 2 ? (m.len + BN - 1) / BN : (stop + BN - 1) / BN) - a;
      b = 0;
      return;
    }
    int low, high, low2, high2;  // columns
    if (MASKS == 2 && MODE == 2) {
      low = m0, high = m0 >= m.end ? 0 : m0 < m.first() ? m.end : min(stop - 1 + m.k1, m.end);
      low2 = m.end, high2 = m0 >= m.end ? 0 : m.len;
    } else if (MASKS == 2) {
      low = 0, high = stop > m.end ? m.end : min(m.first(), stop);
      low2 = max(0, m0 - m.k1 + 1), high2 = stop > m.end ? 0 : stop;
    } else if (MODE == 2) {
      const int far = m.place(min(stop, m.end) - 1) + m.reach;
      low = 0, high = m0 < m.end ? m.context : 0;
      low2 = m0, high2 = m0 >= m.end ? stop : m.end <= far ? m.len : min(m.len, far + 1);
      if (stop > m.end) high2 = max(high2, stop);  // candidates see themselves
    } else {
      const int near = m.place(m0) - m.reach;
      low = m0 < m.context || near < m.context ? 0 : near, high = m0 < m.context ? m.end : min(stop, m.end);
      low2 = max(m0, m.end), high2 = stop > m.end ? stop : 0;
    }
    a = low / BN;
    count = max(0, (high + BN - 1) / BN - a);
    b = max(a + count, low2 / BN);
    total = count + max(0, (high2 + BN - 1) / BN - b);
  }
  __device__ __forceinline__ int at(int t) const { return MASKS == 0 || t < count ? a + t : b + t - count; }
};

// Zeros in `first` and `second`, `row` words of each token, for the tokens behind the last sequence; by all threads with their `number`.
DEVICE void clear(const int* offsets, u32 sequences, u32 tokens, u32 row, u32* first, u32* second, u32 number, u32 threads) {
  const size_t end = (size_t)tokens * row;
  for (size_t at = (size_t)min(max(offsets[sequences], 0), (int)tokens) * row + number; at < end; at += threads) {
    first[at] = 0;
    if (second != nullptr) second[at] = 0;
  }
}

// The gradient of x from that of silu(x).
__device__ __forceinline__ float inner(float gradient, float x) {
  const float share = 1.f / (1.f + expf(-x));
  return gradient * share * (1.f + x * (1.f - share));
}
#ifdef SPARROW_EMULATED
DEVICE float tanh_fast(float x) { return tanhf(x); }
#else
__device__ __forceinline__ float tanh_fast(float x) {
  float r;
  asm("tanh.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
#endif
// What a lane needs of x for its pieces of 8 numbers of COUNT rows, all of the same columns.
template <int COUNT>
struct Inner {
  uint4 x[COUNT];
  float shift[8], sum[8];
  // `row` of i is its offset; negative: there is none
  template <class F>
  __device__ __forceinline__ void fetch(const u16* from, const float* by, F row) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
      const int64_t at = row(i);
      x[i] = at < 0 ? uint4{0, 0, 0, 0} : *(const uint4*)(from + at);
    }
    *(float4*)shift = *(const float4*)by, *(float4*)(shift + 4) = *(const float4*)(by + 4);
#pragma unroll
    for (int e = 0; e < 8; e++) sum[e] = 0.f;
  }
  __device__ __forceinline__ uint4 of(int i, uint4 gradient) {
    const u32 own[4] = {x[i].x, x[i].y, x[i].z, x[i].w}, given[4] = {gradient.x, gradient.y, gradient.z, gradient.w};
    float found[8];
#pragma unroll
    for (int e = 0; e < 8; e++) {
      const float value = bit_cast<float>(e & 1 ? own[e / 2] & 0xffff0000u : own[e / 2] << 16) + shift[e];
      const float h = 0.5f * value, y = tanh_fast(h);  // 2 silu' - 1 = h (1 - y y) + y
      found[e] = bit_cast<float>(e & 1 ? given[e / 2] & 0xffff0000u : given[e / 2] << 16) * (0.5f * (h * (1.f - y * y) + y) + 0.5f);
      sum[e] += found[e];
    }
    return {pack(found[0], found[1]), pack(found[2], found[3]), pack(found[4], found[5]), pack(found[6], found[7])};
  }
};
