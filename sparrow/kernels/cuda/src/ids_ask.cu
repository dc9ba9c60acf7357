// Unknown ids ask for places, in the order of their first occurrence. A warp has a chunk of entries.
//   ASK_WARPS of a block     HELD_COUNTERS numbers of a warp
constexpr u32 MOST_SEGMENTS = 2048;
constexpr int COUNT_THREADS = 512;

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
  for (u32 pool = threadIdx.x; pool < num_pools; pool += COUNT_THREADS) {
    const Pool p(m, pool);
    const int free = m.pools[2 * pool], missing = int(load_relaxed(field(m, NEED) + pool)) - free;
    const bool may = p.policy != NEVER_EVICT || (p.expire > 0 && *m.step >= m.pools[2 * pool + 1]);
    const bool evicts = !frozen && missing > 0 && may && p.size > 0;
    field(m, FREE)[pool] = free;
    field(m, WANTED)[pool] = evicts ? max(u32(missing), (p.size + 99) / 100) : 0;
    shared[pool] = evicts ? (p.size + 31) / 32 : 0;
    some |= evicts;
  }
  some = __syncthreads_or(some);
  sum_up(shared, num_pools);
  for (u32 pool = threadIdx.x; pool <= num_pools; pool += COUNT_THREADS) field(m, WORDS)[pool] = shared[pool];
  if (threadIdx.x == 0) m.plan[ANY] = some;
}

extern "C" __global__ void __launch_bounds__(32 * ASK_WARPS) ids_ask(Ids m) {
  __shared__ u32 all[ASK_WARPS][HELD_COUNTERS];
  const u32 lane = threadIdx.x % 32, num_counters = COUNTERS * u32(m.num_segments), chunk = blockIdx.x * ASK_WARPS + threadIdx.x / 32;
  u32* counters = all[threadIdx.x / 32];
  if (chunk >= m.chunks) return;
  bool some = false;  // of this chunk ask; most chunks have known ids alone
  const bool frozen = m.plan[FROZEN] != 0;
  constexpr u32 AHEAD = 4;
  const u32 begin = chunk * u32(m.chunk), end = begin + u32(m.chunk) < m.count ? begin + u32(m.chunk) : u32(m.count);
  for (u32 base = begin; base < end; base += 32 * AHEAD) {
    u32 refs[AHEAD];
    bool first[AHEAD];
#pragma unroll
    for (u32 a = 0; a < AHEAD; ++a) refs[a] = base + 32 * a + lane < end ? m.refs[base + 32 * a + lane] : 0;
#pragma unroll
    for (u32 a = 0; a < AHEAD; ++a) {
      first[a] = refs[a] != 0 && !frozen && m.first[refs[a] - 1] == u32(m.count) - (base + 32 * a + lane);
    }
#pragma unroll
    for (u32 a = 0; a < AHEAD; ++a) {
      const u32 i = base + 32 * a + lane;
      Asking asking = {NONE, false, 0};
      if (first[a]) {
        asking = ask(m, i, m.times[refs[a] - 1]);
        const int place = m.places[i];
        if (place >= 0) {
          m.before[i] = m.last[place];
          m.last[place] = *m.step;
        }
        m.asks[i] = asking.counter;
      }
      if (!__ballot_sync(FULL, asking.counter != NONE)) continue;
      if (!some) {
        for (u32 c = lane; c < num_counters; c += 32) counters[c] = 0;
        some = true;
        __syncwarp();
      }
      const u32 move = asking.moves ? asking.counter + MOVES * u32(m.num_segments) : NONE;
      const u32 same = __match_any_sync(FULL, asking.counter), moving = __match_any_sync(FULL, move);
      if (asking.counter != NONE) m.ranks[i] = counters[asking.counter] + __popc(same & lanes_below(lane));
      if (asking.moves) m.move_ranks[i] = counters[move] + __popc(moving & lanes_below(lane));
      __syncwarp();
      if (asking.counter != NONE && (same & lanes_below(lane)) == 0) counters[asking.counter] += __popc(same);
      if (asking.moves && (moving & lanes_below(lane)) == 0) counters[move] += __popc(moving);
      __syncwarp();
    }
  }
  if (!some) return;
  for (u32 c = lane; c < num_counters; c += 32) {
    if (counters[c] == 0) continue;
    m.chunk_counts[c * m.chunks + chunk] = counters[c];
    m.asked[c] = 1;
  }
}

// A block for each counter: the entries before each chunk. The last block plans.
extern "C" __global__ void __launch_bounds__(COUNT_THREADS) ids_count(Ids m) {
  __shared__ u32 shared[2 * MOST_SEGMENTS + 1];
  const u32 c = blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32, kind = c / u32(m.num_segments);
  u32* counts = m.chunk_counts + c * m.chunks;
  u32 before = 0;
  constexpr u32 EACH = 8, WARPS = COUNT_THREADS / 32;
  const u32 chunks = m.asked[c] != 0 ? u32(m.chunks) : 0;  // where none has asked, all are 0
  for (u32 base = 0; base < chunks; base += COUNT_THREADS * EACH) {
    u32 own[EACH], sum = 0;
#pragma unroll
    for (u32 e = 0; e < EACH; ++e) {
      const u32 chunk = base + threadIdx.x * EACH + e;
      own[e] = chunk < chunks ? counts[chunk] : 0;
      sum += own[e];
    }
    const u32 through = sum_through(sum);
    if (lane == 31) shared[warp] = through;
    sum_up(shared, WARPS);
    u32 at = before + shared[warp] + through - sum;
#pragma unroll
    for (u32 e = 0; e < EACH; ++e) {
      const u32 chunk = base + threadIdx.x * EACH + e;
      if (chunk < chunks) counts[chunk] = at;
      at += own[e];
    }
    before += shared[WARPS];
    __syncthreads();
  }
  if (threadIdx.x == 0 && kind <= WAITING) field(m, NEED)[c] = before;
  if (threadIdx.x == 0 && kind == BACK) field(m, RETURNED)[c % u32(m.num_segments)] = before;
  if (is_last(m.plan + ASK_TICKET)) plan_eviction(m, shared);
}
