// Unknown ids ask for places, in the order of their first occurrence.
//   ASK_THREADS of a block     ASK_ITEMS entries of a thread
constexpr u32 CHUNK = ASK_THREADS * ASK_ITEMS;
constexpr u32 MOST_SEGMENTS = 2048;

// Counters by segment: asking for a row, asking for a waiting place, returned, admitted from a waiting place.
enum Counter { ROWS, WAITING, BACK, MOVES, COUNTERS };

struct Asking {
  u32 counter;  // NONE: it asks for nothing
  bool moves;
  u32 seen;
};

DEVICE Asking ask(const Ids& m, u32 i, u32 times) {
  const int number = m.entry_segments[i], place = m.places[i];
  const Segment& s = m.segments[number];
  if (place >= 0 && place < int(m.num_rows)) return {u32(BACK * m.num_segments + number), false, times};
  const bool waits = place >= 0;
  const u32 seen = waits ? saturated(times, m.counts[place]) : times;
  const bool lucky = s.chance == 0 || mix64(m.keys[i] ^ mix64(u64(u32(*m.step)) ^ s.seed)) < s.chance;
  if (seen >= u32(s.admit) && lucky) return {u32(ROWS * m.num_segments + number), waits, seen};
  if (s.admit > 1 && !waits) return {u32(WAITING * m.num_segments + number), false, seen};
  return {NONE, false, seen};
}

// Places to free in each pool; all in one block.
DEVICE void plan_eviction(const Ids& m, u32* shared /* (2 * segments + 1,) */) {
  const u32 num_pools = 2 * u32(m.num_segments);
  const bool frozen = load_relaxed(m.plan + FROZEN) != 0;
  bool some = false;
  for (u32 pool = threadIdx.x; pool < num_pools; pool += ASK_THREADS) {
    const Pool p(m, pool);
    const int free = m.pools[2 * pool], missing = int(field(m, NEED)[pool]) - free;
    const bool may = p.policy != NEVER_EVICT || (p.expire > 0 && *m.step >= m.pools[2 * pool + 1]);
    const bool evicts = !frozen && missing > 0 && may && p.size > 0;
    field(m, FREE)[pool] = free;
    field(m, WANTED)[pool] = evicts ? max(u32(missing), (p.size + 99) / 100) : 0;
    shared[pool] = evicts ? (p.size + 31) / 32 : 0;
    some |= evicts;
  }
  some = __syncthreads_or(some);
  sum_up(shared, num_pools);
  for (u32 pool = threadIdx.x; pool <= num_pools; pool += ASK_THREADS) field(m, WORDS)[pool] = shared[pool];
  if (threadIdx.x == 0) m.plan[ANY] = some;
}

extern "C" __global__ void __launch_bounds__(ASK_THREADS) ids_ask(Ids m) {
  __shared__ u32 counters[COUNTERS * MOST_SEGMENTS + 1];
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, num_counters = COUNTERS * u32(m.num_segments);
  for (u32 c = threadIdx.x; c < num_counters; c += ASK_THREADS) counters[c] = 0;
  const bool frozen = m.plan[FROZEN] != 0;
  for (int item = 0; item < ASK_ITEMS; ++item) {
    const u32 i = blockIdx.x * CHUNK + item * ASK_THREADS + threadIdx.x;
    const u32 ref = i < m.count ? m.refs[i] : 0;
    const bool first = ref != 0 && !frozen && m.first[ref - 1] == u32(m.count) - i;
    Asking asking = {NONE, false, 0};
    if (first) {
      asking = ask(m, i, m.times[ref - 1]);
      const int place = m.places[i];
      if (place >= 0) {
        m.before[i] = m.last[place];
        m.last[place] = *m.step;
      }
      m.asks[i] = asking.counter;
    }
    if (!__syncthreads_or(asking.counter != NONE)) continue;
    for (u32 w = 0; w < ASK_THREADS / 32; ++w) {
      if (w == warp) {
        const u32 move = asking.moves ? asking.counter + MOVES * u32(m.num_segments) : NONE;
        const u32 same = __match_any_sync(FULL, u64(asking.counter)), moving = __match_any_sync(FULL, u64(move));
        if (asking.counter != NONE) m.ranks[i] = counters[asking.counter] + __popc(same & lanes_below(lane));
        if (asking.moves) m.move_ranks[i] = counters[move] + __popc(moving & lanes_below(lane));
        __syncwarp();
        if (asking.counter != NONE && (same & lanes_below(lane)) == 0) counters[asking.counter] += __popc(same);
        if (asking.moves && (moving & lanes_below(lane)) == 0) counters[move] += __popc(moving);
      }
      __syncthreads();
    }
  }
  __syncthreads();
  for (u32 c = threadIdx.x; c < num_counters; c += ASK_THREADS) m.chunk_counts[u64(blockIdx.x) * num_counters + c] = counters[c];
  if (!is_last(m.plan + ASK_TICKET)) return;

  // The entries before each chunk.
  constexpr u32 AHEAD = 4;
  for (u32 c = warp; c < num_counters; c += ASK_THREADS / 32) {
    u32 before = 0;
    for (u32 base = 0; base < m.chunks; base += 32 * AHEAD) {
      u32 own[AHEAD];
#pragma unroll
      for (u32 a = 0; a < AHEAD; ++a) {
        const u32 chunk = base + 32 * a + lane;
        own[a] = chunk < m.chunks ? load_relaxed(m.chunk_counts + u64(chunk) * num_counters + c) : 0;
      }
#pragma unroll
      for (u32 a = 0; a < AHEAD; ++a) {
        const u32 chunk = base + 32 * a + lane;
        u32 through = own[a];
#pragma unroll
        for (int d = 1; d < 32; d *= 2) {
          const u32 y = __shfl_up_sync(FULL, through, d);
          if (lane >= d) through += y;
        }
        if (chunk < m.chunks) m.chunk_counts[u64(chunk) * num_counters + c] = before + through - own[a];
        before += __shfl_sync(FULL, through, 31);
      }
    }
    const u32 kind = c / u32(m.num_segments), number = c % u32(m.num_segments);
    if (lane == 0 && kind <= WAITING) field(m, NEED)[c] = before;
    if (lane == 0 && kind == BACK) field(m, RETURNED)[number] = before;
  }
  __syncthreads();
  plan_eviction(m, counters);
}
