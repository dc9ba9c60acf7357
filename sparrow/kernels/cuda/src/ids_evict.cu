// The choice of who leaves: a histogram finds the bin where the last ones leave, the exact order decides in it.
constexpr u32 BINS = 2048 + 21 * 64, GROUP = 64, GROUPS = BINS / GROUP;
constexpr int EVICT_THREADS = 512, SELECT_THREADS = 1024;

// Numbers below 2,048 have a bin of their own, larger ones share it with those that agree in the first 7 bits.
constexpr u32 EXACT = 2048;
DEVICE u32 bin_of(u32 x) {
  if (x < EXACT) return x;
  const u32 exponent = 31 - __clz(x);
  return EXACT + (exponent - 11) * 64 + (x >> (exponent - 6) & 63);
}

// The bin of a float by its bits: 32 for each power of 2 between 2^-31 and 2^31, which a count divided by an age has.
DEVICE u32 bin_of_float(u32 bits) { return bits < 0x30000000u ? 0 : (bits - 0x30000000u) >> 18; }

DEVICE bool may_leave(const Pool& p, int last, int step) {
  return last >= 0 && last != step && (p.policy != NEVER_EVICT || is_expired(p.expire, last, step));
}
DEVICE u32 seldom(const Ids& m, const Pool& p, u32 place, int last, int step) {
  if (p.policy < LFU || is_expired(p.expire, last, step)) return 0;
  if (p.policy == LFU) return m.counts[place];
  return __float_as_uint(__fdiv_rn(float(m.counts[place]), float(u32(step) - u32(last) + 1)));  // in the order of the floats
}
DEVICE u32 bin(const Ids& m, const Pool& p, u32 place, int last, int step) {
  if (p.policy < LFU) return BINS - 1 - bin_of(u32(step) - u32(last));
  const u32 rank = seldom(m, p, place, last, step);
  return p.policy == LFU ? bin_of(rank) : bin_of_float(rank);
}

// Calls work(pool, first word, end) for the part of the evicting pools that belongs to this block; words of 32 places.
template <class Work>
DEVICE void for_part(const Ids& m, Work&& work) {
  const u32* words = field(m, WORDS);
  const u32 num_pools = 2 * u32(m.num_segments);
  const u64 total = words[num_pools];
  const u32 begin = u32(total * blockIdx.x / gridDim.x), end = u32(total * (blockIdx.x + 1) / gridDim.x);
  u32 low = 0, high = num_pools;  // the pool of word `begin`: the last one that begins there or before
  while (low + 1 < high) {
    const u32 middle = (low + high) / 2;
    if (words[middle] <= begin) {
      low = middle;
    } else {
      high = middle;
    }
  }
  for (u32 pool = low, at = begin; at < end; ++pool) {
    const u32 until = words[pool + 1] < end ? words[pool + 1] : end;
    if (until > at) work(pool, at - words[pool], until - words[pool]);
    at = until > at ? until : at;
  }
}

// Where the last ones of a pool leave; one warp. Of bin THRESHOLD leave REST, of those before all.
DEVICE void find_threshold(const Ids& m, u32 pool) {
  const u32 lane = threadIdx.x % 32;
  const u32* bins = m.bins + u64(pool) * (BINS + GROUPS);
  const u32 able = load_relaxed(field(m, ABLE) + pool), wanted = field(m, WANTED)[pool], lot = wanted < able ? wanted : able;
  u32 before = 0, at = 0;
  for (int level = 0; level < 2 && lot > 0; ++level) {  // groups, then the bins of one
    const u32* from = level == 0 ? bins + BINS : bins + at * GROUP;
    const u32 n = level == 0 ? GROUPS : GROUP;
    for (u32 base = 0; base < n; base += 32) {
      const u32 own = base + lane < n ? load_relaxed(from + base + lane) : 0;
      const u32 through = sum_through(own);
      const u32 reached = __ballot_sync(FULL, before + through >= lot);
      if (reached) {
        const int found = __ffs(reached) - 1;
        before += __shfl_sync(FULL, through - own, found);
        at = (level == 0 ? 0 : at * GROUP) + base + found;
        break;
      }
      before += __shfl_sync(FULL, through, 31);
    }
  }
  if (lane != 0) return;
  const u32 rest = lot - before, held = lot > 0 ? load_relaxed(bins + at) : 0;
  field(m, LOT)[pool] = lot;
  field(m, THRESHOLD)[pool] = rest == held ? at + 1 : at;
  field(m, REST)[pool] = rest == held ? 0 : rest;
  field(m, HELD)[pool] = rest == held ? 0 : held;
}

DEVICE void add_total(const Ids& m, u32 segment, Total which, u32 amount) { m.totals[segment * TOTALS + which] += amount; }

// What each pool gives, and whether the call is carried out; then the numbers of the state. All in one block.
DEVICE void decide(const Ids& m, u32* shared /* (2 * segments + 1,) */) {
  const u32 num_segments = u32(m.num_segments), num_pools = 2 * num_segments;
  bool refused = load_relaxed(m.plan + FROZEN) != 0;
  const bool frozen = refused;
  for (u32 pool = threadIdx.x; pool < num_pools; pool += EVICT_THREADS) {
    const Pool p(m, pool);
    const u32 need = field(m, NEED)[pool], can = field(m, FREE)[pool] + field(m, LOT)[pool], given = need < can ? need : can;
    field(m, GIVEN)[pool] = given;
    if (!p.waiting && p.policy != NEVER_EVICT && !frozen) {
      m.missing[pool] = int(need - given);
      refused |= need > given;
    }
  }
  refused = __syncthreads_or(refused);
  if (threadIdx.x == 0) m.plan[REFUSED_CALL] = refused;
  for (u32 pool = threadIdx.x; pool < num_pools; pool += EVICT_THREADS) shared[pool] = refused ? 0 : field(m, LOT)[pool];
  sum_up(shared, num_pools);
  for (u32 pool = threadIdx.x; pool <= num_pools; pool += EVICT_THREADS) field(m, LEFT_BEGIN)[pool] = shared[pool];
  for (u32 s = threadIdx.x; s < num_segments; s += EVICT_THREADS) m.gone_ends[s] = int(shared[s + 1]);
  if (threadIdx.x == 0) m.plan[LEAVING] = shared[num_pools];
  __syncthreads();
  for (u32 pool = threadIdx.x; pool < num_pools; pool += EVICT_THREADS) shared[pool] = field(m, HELD)[pool];
  sum_up(shared, num_pools);
  for (u32 pool = threadIdx.x; pool < num_pools; pool += EVICT_THREADS) {
    field(m, LIST)[pool] = shared[pool + 1] <= m.list_capacity ? shared[pool] : NONE;
  }
  __syncthreads();
  for (u32 s = threadIdx.x; s < num_segments; s += EVICT_THREADS) shared[s] = refused ? 0 : field(m, GIVEN)[s] + field(m, RETURNED)[s];
  sum_up(shared, num_segments);
  for (u32 s = threadIdx.x; s < num_segments; s += EVICT_THREADS) {
    field(m, FRESH_BEGIN)[s] = shared[s];
    m.fresh_ends[s] = int(shared[s + 1]);
  }
  if (refused) return;
  for (u32 pool = threadIdx.x; pool < num_pools; pool += EVICT_THREADS) {
    const Pool p(m, pool);
    const u32 need = field(m, NEED)[pool], given = field(m, GIVEN)[pool], lot = field(m, LOT)[pool], wanted = field(m, WANTED)[pool];
    m.pools[2 * pool] = int(field(m, FREE)[pool] + lot - given);
    if (p.policy == NEVER_EVICT && wanted > 0 && load_relaxed(field(m, ABLE) + pool) <= wanted) {
      const u32 oldest = u32(*m.step) - load_relaxed(field(m, OLDEST) + pool), until = oldest + u32(p.expire) + 1;
      m.pools[2 * pool + 1] = int(until < MOST_COUNTED ? until : MOST_COUNTED);
    }
    if (!p.waiting) {
      add_total(m, pool, ADMITTED, given);
      add_total(m, pool, EVICTED, lot);
      add_total(m, pool, EXPIRED, field(m, RETURNED)[pool]);
      add_total(m, pool, REFUSED, need - given);
    } else {
      add_total(m, pool - num_segments, FORGOTTEN, lot + need - given);
    }
  }
}

// Counts the ids that may leave by bins; the last block decides.
extern "C" __global__ void __launch_bounds__(EVICT_THREADS) ids_weigh(Ids m) {
  __shared__ u32 shared[BINS > 2 * MOST_SEGMENTS ? BINS + 1 : 2 * MOST_SEGMENTS + 1];
  __shared__ u32 sums[2];  // ids that may leave; the age of the oldest one that may not
  if (m.plan[ANY] == 0) {
    if (blockIdx.x == 0) decide(m, shared);
    return;
  }
  const int step = *m.step;
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  constexpr u32 WARPS = EVICT_THREADS / 32, AHEAD = 4;
  for_part(m, [&](u32 pool, u32 begin, u32 end) {
    const Pool p(m, pool);
    for (u32 b = threadIdx.x; b < BINS; b += EVICT_THREADS) shared[b] = 0;
    if (threadIdx.x < 2) sums[threadIdx.x] = 0;
    __syncthreads();
    u32 able = 0, oldest = 0;
    for (u32 base = begin + warp; base < end; base += WARPS * AHEAD) {
      int last[AHEAD];
#pragma unroll
      for (u32 a = 0; a < AHEAD; ++a) {
        const u32 offset = 32 * (base + WARPS * a) + lane;
        last[a] = base + WARPS * a < end && offset < p.size ? m.last[p.begin + offset] : -1;
      }
#pragma unroll
      for (u32 a = 0; a < AHEAD; ++a) {
        const u32 place = p.begin + 32 * (base + WARPS * a) + lane;
        if (may_leave(p, last[a], step)) {
          atomicAdd(shared + bin(m, p, place, last[a], step), 1u);
          ++able;
        } else if (last[a] >= 0) {
          oldest = max(oldest, u32(step - last[a]));
        }
      }
    }
#pragma unroll
    for (int d = 16; d > 0; d /= 2) {
      able += __shfl_xor_sync(FULL, able, d);
      oldest = max(oldest, __shfl_xor_sync(FULL, oldest, d));
    }
    if (lane == 0) atomicAdd(sums, able), atomicMax(sums + 1, oldest);
    __syncthreads();
    // A block sums before it adds to memory: many additions to one number wait for each other.
    u32* bins = m.bins + u64(pool) * (BINS + GROUPS);
    for (u32 group = warp; group < GROUPS; group += WARPS) {
      const u32 one = shared[group * GROUP + lane], two = shared[group * GROUP + 32 + lane];
      if (one != 0) atomicAdd(bins + group * GROUP + lane, one);
      if (two != 0) atomicAdd(bins + group * GROUP + 32 + lane, two);
      u32 sum = one + two;
#pragma unroll
      for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(FULL, sum, d);
      if (lane == 0 && sum != 0) atomicAdd(bins + BINS + group, sum);
    }
    if (threadIdx.x == 0) atomicAdd(field(m, ABLE) + pool, sums[0]), atomicMax(field(m, OLDEST) + pool, sums[1]);
    __syncthreads();
  });
  if (!is_last(m.plan + WEIGH_TICKET)) return;
  for (u32 pool = warp; pool < 2 * m.num_segments; pool += WARPS) {
    if (field(m, WANTED)[pool] > 0) find_threshold(m, pool);
  }
  __syncthreads();
  decide(m, shared);
}

// Bits for the ids that leave, and for those that may.
extern "C" __global__ void __launch_bounds__(EVICT_THREADS) ids_choose(Ids m) {
  if (m.plan[LEAVING] == 0) return;
  const int step = *m.step;
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  constexpr u32 WARPS = EVICT_THREADS / 32, AHEAD = 8;
  for_part(m, [&](u32 pool, u32 begin, u32 end) {
    const Pool p(m, pool);
    const u32 threshold = field(m, THRESHOLD)[pool], from = field(m, WORDS)[pool], list = field(m, LIST)[pool];
    const bool some = field(m, REST)[pool] > 0;
    if (field(m, LOT)[pool] == 0) return;
    for (u32 base = begin + warp; base < end; base += WARPS * AHEAD) {
      int last[AHEAD];
      u32 may[AHEAD], candidates = 0;
#pragma unroll
      for (u32 a = 0; a < AHEAD; ++a) {
        const u32 offset = 32 * (base + WARPS * a) + lane;
        last[a] = base + WARPS * a < end && offset < p.size ? m.last[p.begin + offset] : -1;
      }
#pragma unroll
      for (u32 a = 0; a < AHEAD; ++a) {
        const u32 word = base + WARPS * a, place = p.begin + 32 * word + lane;
        const u32 own = may_leave(p, last[a], step) ? bin(m, p, place, last[a], step) : BINS;
        const u32 leaves = __ballot_sync(FULL, own < threshold);
        may[a] = __ballot_sync(FULL, some && own == threshold);
        candidates += __popc(may[a]);
        if (lane == 0 && word < end) m.certain[from + word] = leaves;
        if (lane == 0 && word < end && list == NONE) m.candidates[from + word] = may[a];
      }
      if (list == NONE || candidates == 0) continue;
      u32 at = 0;
      if (lane == 0) at = atomicAdd(field(m, CURSOR) + pool, candidates);
      at = list + __shfl_sync(FULL, at, 0);
#pragma unroll
      for (u32 a = 0; a < AHEAD; ++a) {
        if (may[a] >> lane & 1) m.list[at + __popc(may[a] & lanes_below(lane))] = p.begin + 32 * (base + WARPS * a) + lane;
        at += __popc(may[a]);
      }
    }
  });
}

// The place of a candidate in the exact order: two numbers, the higher one first.
struct Order {
  u64 high, low;
  MEMBER Order(const Ids& m, const Pool& p, u32 place, int step) {
    const int last = m.last[place];
    high = u64(seldom(m, p, place, last, step)) << 32 | u32(last);
    low = mix64(m.ids[place]);
  }
};

// All candidates up to a number of leading bits: of `high` alone, or of `low` where `high` is `equal`.
struct Bound {
  bool in_low;
  u64 equal, prefix;
  int shift;
  MEMBER bool holds(const Order& o) const {
    if (!in_low) return o.high >> shift <= prefix;
    return o.high < equal || (o.high == equal && o.low >> shift <= prefix);
  }
};

// Calls work(place) for each candidate, all threads of the block together.
template <class Work>
DEVICE void for_candidates(const Ids& m, const Pool& p, u32 pool, Work&& work) {
  const u32 from = field(m, WORDS)[pool], words = field(m, WORDS)[pool + 1] - from, list = field(m, LIST)[pool];
  if (list != NONE) {
    for (u32 k = threadIdx.x; k < field(m, HELD)[pool]; k += SELECT_THREADS) work(m.list[list + k]);
    return;
  }
  constexpr u32 AHEAD = 4;
  for (u32 base = threadIdx.x; base < words; base += SELECT_THREADS * AHEAD) {
    u32 bits[AHEAD];
#pragma unroll
    for (u32 a = 0; a < AHEAD; ++a) bits[a] = base + a * SELECT_THREADS < words ? m.candidates[from + base + a * SELECT_THREADS] : 0;
#pragma unroll
    for (u32 a = 0; a < AHEAD; ++a) {
      for (u32 left = bits[a]; left != 0; left &= left - 1) work(p.begin + 32 * (base + a * SELECT_THREADS) + __ffs(left) - 1);
    }
  }
}

// The bound below which `rest` candidates are: digit by digit, until a digit's candidates all leave.
DEVICE Bound select(const Ids& m, const Pool& p, u32 pool, u32 threshold, u32 rest, int step) {
  __shared__ u32 counts[256];
  __shared__ u32 chosen[3];  // digit, candidates before it, candidates of it
  Bound bound = {false, 0, 0, 64};
  if (p.policy == LFU && threshold < EXACT) {
    bound.prefix = threshold, bound.shift = 32;
  } else if (p.policy < LFU) {
    const u32 age = BINS - 1 - threshold;
    if (age < EXACT) {
      bound = {true, u64(u32(step) - age), 0, 64};
    } else {
      bound.shift = 32;
    }
  }
  for (;;) {
    if (!bound.in_low && bound.shift == 0) bound = {true, bound.prefix, 0, 64};
    const int shift = bound.shift - 8;
    for (u32 d = threadIdx.x; d < 256; d += SELECT_THREADS) counts[d] = 0;
    __syncthreads();
    for_candidates(m, p, pool, [&](u32 place) {
      const Order o(m, p, place, step);
      const u64 number = bound.in_low ? o.low : o.high;
      const bool same = bound.shift == 64 || number >> bound.shift == bound.prefix;
      if (same && (!bound.in_low || o.high == bound.equal)) atomicAdd(counts + (number >> shift) % 256, 1u);
    });
    __syncthreads();
    if (threadIdx.x < 32) {
      u32 before = 0;
      for (u32 base = 0; base < 256; base += 32) {
        const u32 own = counts[base + threadIdx.x];
        const u32 through = sum_through(own);
        const u32 reached = __ballot_sync(FULL, before + through >= rest);
        if (reached) {
          if (int(threadIdx.x) == __ffs(reached) - 1) {
            chosen[0] = base + threadIdx.x;
            chosen[1] = before + through - own;
            chosen[2] = own;
          }
          break;
        }
        before += __shfl_sync(FULL, through, 31);
      }
    }
    __syncthreads();
    bound.prefix = bound.prefix << 8 | chosen[0];
    bound.shift = shift;
    rest -= chosen[1];
    if (rest == chosen[2] || (bound.in_low && shift == 0)) return bound;
    __syncthreads();
  }
}

// A block for each pool: the exact choice, and the lists of those who leave, ascending.
extern "C" __global__ void __launch_bounds__(SELECT_THREADS) ids_select(Ids m) {
  __shared__ u32 sums[SELECT_THREADS / 32 + 1];
  const u32 pool = blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (m.plan[LEAVING] == 0 || m.plan[REFUSED_CALL] != 0) return;
  const u32 lot = field(m, LOT)[pool], rest = field(m, REST)[pool], from = field(m, WORDS)[pool];
  if (lot == 0) return;
  const u32 words = field(m, WORDS)[pool + 1] - from, begin = field(m, LEFT_BEGIN)[pool], given = field(m, GIVEN)[pool];
  const Pool p(m, pool);
  const int step = *m.step;
  if (rest > 0) {
    const Bound bound = select(m, p, pool, field(m, THRESHOLD)[pool], rest, step);
    for_candidates(m, p, pool, [&](u32 place) {
      const u32 offset = place - p.begin;
      if (bound.holds(Order(m, p, place, step))) atomicOr(m.certain + from + offset / 32, 1u << offset % 32);
    });
    __threadfence();
    __syncthreads();
  }
  const u32 segment = p.waiting ? pool - u32(m.num_segments) : pool;
  int* top = m.free + p.begin + field(m, FREE)[pool] + lot;
  constexpr u32 EACH = 8;
  u32 done = 0;
  for (u32 base = 0; base < words; base += SELECT_THREADS * EACH) {
    const u32 first = base + threadIdx.x * EACH;
    u32 bits[EACH], sum = 0;
#pragma unroll
    for (u32 e = 0; e < EACH; ++e) {
      bits[e] = first + e < words ? load_relaxed(m.certain + from + first + e) : 0;
      sum += __popc(bits[e]);
    }
    const u32 through = sum_through(sum);
    if (lane == 31) sums[warp] = through;
    sum_up(sums, SELECT_THREADS / 32);
    u32 k = done + sums[warp] + through - sum;
#pragma unroll
    for (u32 e = 0; e < EACH; ++e) {
      for (u32 left = bits[e]; left != 0; left &= left - 1, ++k) {
        const u32 place = p.begin + 32 * (first + e) + __ffs(left) - 1;
        top[-1 - int(k)] = int(place);
        m.left[begin + k] = place;
        m.left_segments[begin + k] = segment | (k < given ? 1u << 31 : 0);  // the bit: a new id has the place already
      }
    }
    done += sums[SELECT_THREADS / 32];
    __syncthreads();
  }
  // Their ids, many at a time.
  constexpr u32 AHEAD = 4;
  for (u32 base = threadIdx.x; base < lot; base += SELECT_THREADS * AHEAD) {
    u32 places[AHEAD];
    u64 ids[AHEAD];
#pragma unroll
    for (u32 a = 0; a < AHEAD; ++a) places[a] = base + a * SELECT_THREADS < lot ? m.left[begin + base + a * SELECT_THREADS] : p.begin;
#pragma unroll
    for (u32 a = 0; a < AHEAD; ++a) ids[a] = m.ids[places[a]];
#pragma unroll
    for (u32 a = 0; a < AHEAD; ++a) {
      const u32 k = base + a * SELECT_THREADS;
      if (k >= lot) break;
      m.left_ids[begin + k] = ids[a];
      int* undo = m.undo_left + begin + k;
      undo[0] = int(places[a]);
      undo[m.left_capacity] = m.last[places[a]];
      undo[2 * m.left_capacity] = int(m.counts[places[a]]);
      undo[3 * m.left_capacity] = int(u32(ids[a]));
      undo[4 * m.left_capacity] = int(u32(ids[a] >> 32));
      if (p.waiting) continue;
      m.gone_rows[begin + k] = int(places[a]);
      m.gone_ids[begin + k] = ids[a];
    }
  }
}
