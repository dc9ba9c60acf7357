// Entries (row << 32 | source) sorted by row, stably: least digit first, over only the bits that row numbers need, one read
// and one write a pass (decoupled look-back).
//   SORT_BITS  of a digit     SORT_PASSES  digits of a row number     SORT_THREADS, SORT_BLOCKS  of a launch
//   SORT_ITEMS  entries of a thread     LOOKBACK  tiles that are looked at together
constexpr int RADIX = 1 << SORT_BITS;
constexpr int TILE = SORT_THREADS * SORT_ITEMS;
constexpr int SORT_WARPS = SORT_THREADS / 32;
constexpr u32 COUNTED = 1u << 30, SUMMED = 2u << 30, COUNT = COUNTED - 1;
static_assert(SORT_THREADS >= RADIX, "a thread per digit");
constexpr int COUNT_THREADS = 512, COUNT_AHEAD = 8;

// Negative ids are large ones here.
DEVICE u32 clamp_row(u32 id, u32 num_rows) { return id < num_rows ? id : num_rows; }

// Counts how often each digit occurs in every place. `counts` (SORT_PASSES, RADIX) is zero before.
extern "C" __global__ void __launch_bounds__(COUNT_THREADS) sort_count(const u32* __restrict__ ids, u32 n, u32 num_rows, u32* counts) {
  __shared__ u32 mine[SORT_PASSES * RADIX];
  for (u32 i = threadIdx.x; i < SORT_PASSES * RADIX; i += COUNT_THREADS) mine[i] = 0;
  __syncthreads();
  const u32 lane = threadIdx.x % 32;
  const u32 step = gridDim.x * COUNT_THREADS * COUNT_AHEAD;
  for (u32 base = blockIdx.x * COUNT_THREADS * COUNT_AHEAD; base < n; base += step) {
    u32 rows[COUNT_AHEAD];
#pragma unroll
    for (int a = 0; a < COUNT_AHEAD; ++a) {
      const u32 at = base + a * COUNT_THREADS + threadIdx.x;
      rows[a] = at < n ? clamp_row(ids[at], num_rows) : NONE;
    }
#pragma unroll
    for (int a = 0; a < COUNT_AHEAD; ++a) {
      const u32 row = rows[a];
      // One row may fill the batch: a warp that agrees counts once.
      const u32 first = __shfl_sync(FULL, row, 0);
      const bool agree = __all_sync(FULL, row == first);
      if (row != NONE && (!agree || lane == 0)) {
#pragma unroll
        for (int p = 0; p < SORT_PASSES; ++p) atomicAdd(&mine[p * RADIX + (row >> (p * SORT_BITS)) % RADIX], agree ? 32u : 1u);
      }
    }
  }
  __syncthreads();
  for (u32 i = threadIdx.x; i < SORT_PASSES * RADIX; i += COUNT_THREADS) {
    if (mine[i]) atomicAdd(&counts[i], mine[i]);
  }
}

// Exclusive sum over the threads of a block; all threads call.
DEVICE u32 scan_threads(u32 x, u32* shared /* (SORT_WARPS,) */) {
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const u32 through = sum_through(x);
  if (lane == 31) shared[warp] = through;
  __syncthreads();
  u32 before = 0;
#pragma unroll
  for (int w = 0; w < SORT_WARPS; ++w) before += w < warp ? shared[w] : 0;
  __syncthreads();
  return through - x + before;
}

struct alignas(8) Seen { u32 peers, count; };  // the lanes that have the digit now, a bit for each; how many had it before
struct Places {
  u32 shift_of[RADIX];  // from a digit's place in the tile to its place in `to`
  u32 scratch[32];
};
// One tile of a pass. `state` (tiles, RADIX) and `ticket` are zero before.
template <bool FIRST, bool WHOLE>
DEVICE void sort_tile(Places& places, char* shared_bytes, u32 tile, const u32* ids, const u32* sources, const u64* from, u64* to, u32 n, u32 num_rows, u32 shift,
                      const u32* counts, u32* state) {
  u64* staged = reinterpret_cast<u64*>(shared_bytes);          // (TILE,), after the ranks are known
  Seen* seen = reinterpret_cast<Seen*>(shared_bytes);  // (SORT_WARPS, RADIX), before
  const u32 thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  const u32 begin = tile * TILE, there = n - begin < TILE ? n - begin : TILE;

  u64 entry[SORT_ITEMS];
#pragma unroll
  for (int i = 0; i < SORT_ITEMS; ++i) {
    const u32 at = (warp * SORT_ITEMS + i) * 32 + lane;
    if (!WHOLE && at >= there) {
      entry[i] = ~0ull;
    } else if (FIRST) {
      const u32 p = begin + at;
      entry[i] = static_cast<u64>(clamp_row(ids[p], num_rows)) << 32 | (sources ? sources[p] : p);
    } else {
      entry[i] = from[begin + at];
    }
  }
  u32 ranks[(SORT_ITEMS + 1) / 2];  // two in each
  Seen* seen_here = seen + warp * RADIX;
#pragma unroll
  for (int i = 0; i < SORT_ITEMS; ++i) {
    const u32 digit = (row_of(entry[i]) >> shift) % RADIX;
    atomicOr(&seen_here[digit].peers, 1u << lane);
    __syncwarp();
    const Seen found = seen_here[digit];
    const u32 below = __popc(found.peers & lanes_below(lane));
    __syncwarp();
    if (below == 0) seen_here[digit] = {0, found.count + __popc(found.peers)};
    __syncwarp();
    const u32 rank = found.count + below;
    ranks[i / 2] = i % 2 ? ranks[i / 2] | rank << 16 : rank;
  }
  __syncthreads();

  u32 count = 0;
  if (thread < RADIX) {
#pragma unroll
    for (int w = 0; w < SORT_WARPS; ++w) {
      const u32 c = seen[w * RADIX + thread].count;
      seen[w * RADIX + thread].count = count;
      count += c;
    }
    if (tile > 0) store_relaxed(&state[tile * RADIX + thread], COUNTED | count);
  }
  const u32 first = scan_threads(count, places.scratch);
  if (thread < RADIX) {
#pragma unroll
    for (int w = 0; w < SORT_WARPS; ++w) seen[w * RADIX + thread].count += first;
  }
  u32 before = 0;
  if (tile == 0) {
    before = scan_threads(thread < RADIX ? counts[thread] : 0, places.scratch);
  } else if (thread < RADIX) {
    for (int at = static_cast<int>(tile) - 1;;) {
      u32 found[LOOKBACK];
#pragma unroll
      for (int j = 0; j < LOOKBACK; ++j) found[j] = at - j >= 0 ? load_relaxed(&state[(at - j) * RADIX + thread]) : 0;
      bool done = false, waiting = false;
#pragma unroll
      for (int j = 0; j < LOOKBACK; ++j) {
        if (!done && !waiting) {
          waiting = found[j] == 0;
          if (!waiting) {
            before += found[j] & COUNT;
            done = (found[j] & SUMMED) != 0;
            --at;
          }
        }
      }
      if (done) break;
    }
  }
  if (thread < RADIX) {
    store_relaxed(&state[tile * RADIX + thread], SUMMED | (before + count));
    places.shift_of[thread] = before - first;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < SORT_ITEMS; ++i) {
    const u32 digit = (row_of(entry[i]) >> shift) % RADIX;
    const u32 more = seen_here[digit].count;  // the sum is below TILE: no carry
    ranks[i / 2] += i % 2 ? more << 16 : more;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < SORT_ITEMS; ++i) staged[i % 2 ? ranks[i / 2] >> 16 : ranks[i / 2] & 0xffff] = entry[i];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < SORT_ITEMS; ++i) {
    const u32 at = i * SORT_THREADS + thread;
    if (WHOLE || at < there) {
      const u64 e = staged[at];
      to[places.shift_of[(row_of(e) >> shift) % RADIX] + at] = e;
    }
  }
}

template <bool FIRST>
DEVICE void sort_pass(const u32* ids, const u32* sources, const u64* from, u64* to, u32 n, u32 num_rows, u32 shift, const u32* counts, u32* state, u32* ticket) {
#ifdef SPARROW_EMULATED
  alignas(16) static char shared_bytes[TILE * 8 + SORT_WARPS * RADIX * sizeof(Seen)];
#else
  extern __shared__ __align__(16) char shared_bytes[];
#endif
  __shared__ Places places;
  __shared__ u32 my_tile;
  if (threadIdx.x == 0) my_tile = atomicAdd(ticket, 1u);  // tiles start in order, so that all before this one are running
  for (int i = threadIdx.x; i < SORT_WARPS * RADIX * sizeof(Seen) / 4; i += SORT_THREADS) reinterpret_cast<u32*>(shared_bytes)[i] = 0;
  __syncthreads();
  const u32 tile = my_tile;
  if (n - tile * TILE >= TILE) sort_tile<FIRST, true>(places, shared_bytes, tile, ids, sources, from, to, n, num_rows, shift, counts, state);
  else sort_tile<FIRST, false>(places, shared_bytes, tile, ids, sources, from, to, n, num_rows, shift, counts, state);
}

extern "C" __global__ void __launch_bounds__(SORT_THREADS, SORT_BLOCKS) sort_first(const u32* ids, const u32* sources, u64* to, u32 n, u32 num_rows,
                                                                                   const u32* counts, u32* state, u32* ticket) {
  sort_pass<true>(ids, sources, nullptr, to, n, num_rows, 0, counts, state, ticket);
}
extern "C" __global__ void __launch_bounds__(SORT_THREADS, SORT_BLOCKS) sort_next(const u64* from, u64* to, u32 n, u32 num_rows, u32 shift,
                                                                                  const u32* counts, u32* state, u32* ticket) {
  sort_pass<false>(nullptr, nullptr, from, to, n, num_rows, shift, counts, state, ticket);
}
