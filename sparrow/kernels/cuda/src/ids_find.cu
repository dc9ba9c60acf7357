// Looking for ids, and building the index.
constexpr int FIND_THREADS = 256;

extern "C" __global__ void __launch_bounds__(FIND_THREADS) ids_find(Ids m) {
  const u32 i = blockIdx.x * FIND_THREADS + threadIdx.x;
  const int number = i < m.count ? m.entry_segments[i] : -1;
  const Segment& s = m.segments[number < 0 ? 0 : number];
  const int place = search(m, number < 0 ? Key() : Key(m, m.keys[i], s), s, number >= 0);
  if (i >= m.count) return;
  if (number < 0) {
    m.rows[i] = int(m.num_rows);
    return;
  }
  const bool known = place >= 0 && place < int(m.num_rows) && !is_expired(s.expire, m.last[place], *m.step);
  m.rows[i] = known ? place : s.unknown;
}

// Both kernels of an index run in a few blocks that go over everything: a step that is not undone begins them, too.
extern "C" __global__ void __launch_bounds__(FIND_THREADS) ids_clear(Ids m) {
  if (m.when != nullptr && *m.when == 0) return;
  for (u64 i = u64(blockIdx.x) * FIND_THREADS + threadIdx.x; i < m.num_buckets * 32; i += u64(gridDim.x) * FIND_THREADS) {
    m.buckets[i / 32].words[i % 32] = i % 32 < PASSED ? EMPTY : 0;
  }
}

DEVICE u32 pool_of(const Ids& m, u32 place) {
  for (u32 number = 0; number < 2 * m.num_segments; ++number) {
    const Pool p(m, number);
    if (place - p.begin < p.size) return number;
  }
  return NONE;
}

extern "C" __global__ void __launch_bounds__(FIND_THREADS) ids_index(Ids m) {
  if (m.when != nullptr && *m.when == 0) return;
  for (u64 place = u64(blockIdx.x) * FIND_THREADS + threadIdx.x; place < m.num_places; place += u64(gridDim.x) * FIND_THREADS) {
    const u32 pool = m.last[place] < 0 ? NONE : pool_of(m, u32(place));
    if (pool != NONE) insert(m, Key(m, m.ids[place], m.segments[pool % m.num_segments]), u32(place));
  }
}

// The pair of an id in the set of unknown ids, and `times` more occurrences of it, the first of them entry i.
DEVICE u32 collect(const Ids& m, u64 id, int number, u32 i, u32 times) {
  const u32 mine = u32(m.count) - i, mask = u32(m.set_size) - 1;
  u32 at = u32(mix64(id + u32(number)) >> 20) & mask;
  for (;; at = (at + 1) & mask) {
    u32 held = load_relaxed(m.first + at);
    if (held == 0) held = atomicCAS(m.first + at, 0u, mine);
    if (held == 0) break;
    const u32 other = u32(m.count) - held;
    if (m.keys[other] == id && m.entry_segments[other] == number) {
      if (held < mine) atomicMax(m.first + at, mine);
      break;
    }
  }
  atomicAdd(m.times + at, times);
  return at;
}

// Finds every entry; known ids are used, the others collected. And fills the results with what they hold at the end.
extern "C" __global__ void __launch_bounds__(FIND_THREADS) ids_mark(Ids m) {
  const u32 i = blockIdx.x * FIND_THREADS + threadIdx.x, lane = threadIdx.x % 32;
  bool frozen = false;
  for (u32 s = threadIdx.x; s < m.num_segments; s += FIND_THREADS) frozen |= m.missing[s] > 0;
  frozen = __syncthreads_or(frozen);
  for (u64 k = i; k < m.gone_capacity; k += u64(gridDim.x) * FIND_THREADS) {
    m.gone_rows[k] = int(m.num_rows);
    m.gone_ids[k] = 0;
  }
  for (u64 k = i; k < m.left_capacity; k += u64(gridDim.x) * FIND_THREADS) m.undo_left[k] = -1;
  const int step = *m.step;
  const bool here = i < m.count;
  const int number = here ? m.entry_segments[i] : -1;
  const u64 id = here ? m.keys[i] : 0;
  const Segment& s = m.segments[number < 0 ? 0 : number];
  const int place = search(m, number < 0 ? Key() : Key(m, id, s), s, number >= 0);
  bool unknown = false;
  if (here) {
    m.fresh_rows[i] = int(m.num_rows);
    m.fresh_ids[i] = 0;
    int row = int(m.num_rows), before = UNCHANGED;
    if (number >= 0) {
      row = s.unknown;
      unknown = true;
      if (place >= 0 && place < int(m.num_rows)) {
        const int last = m.last[place];
        if (!is_expired(s.expire, last, step)) {
          unknown = false;
          row = place;
          if (last != step && !frozen) {  // several may come here: all of them have read the same, and can undo it
            before = last;
            m.last[place] = step;
          }
        }
      }
    }
    m.places[i] = place;
    m.rows[i] = row;
    m.before[i] = before;
    m.was[i] = place >= 0 && (place >= int(m.num_rows) || s.policy >= LFU) ? m.counts[place] : 0;
    m.taken[i] = -1;
    m.asks[i] = NONE;
  }
  // An id that occurs often comes once from each warp.
  const u32 all = __ballot_sync(FULL, unknown);
  u32 at = 0;
  if (unknown) {
    const u32 peers = __match_any_sync(all, id) & __match_any_sync(all, u64(u32(number)));
    const int first = __ffs(peers) - 1;
    if (int(lane) == first) at = collect(m, id, number, i, __popc(peers));
    at = __shfl_sync(peers, at, first);
  }
  if (here) m.refs[i] = unknown ? at + 1 : 0;
  if (i == 0) m.plan[FROZEN] = frozen;
}
