// The map from 64-bit ids to rows; sparrow/kernels/ids/types.py has the definition, and the meaning of the arrays.
constexpr u32 EMPTY = 0xffffffffu;
constexpr u64 EMPTY_PAIR = ~u64(0);
constexpr int WAYS = 15;
constexpr u32 MOST_COUNTED = 0x7fffffffu;
constexpr int UNCHANGED = -2;  // instead of what `last` was
enum Policy { NEVER_EVICT = 0, LRU = 1, LFU = 2, DISTANCE_LFU = 3 };
enum Total { ADMITTED, EVICTED, EXPIRED, REFUSED, FORGOTTEN, TOTALS };

struct Segment {
  int begin, end, waiting_begin, waiting_end, unknown, admit, policy, expire;
  u64 chance, seed, salt, unused;
};

struct Bucket {
  u32 words[32];  // 15 pairs of place and tag; the number of keys that passed over
  MEMBER u64* pair(int way) { return reinterpret_cast<u64*>(words) + way; }
};
constexpr int PASSED = 2 * WAYS;

// All that the kernels of a call work on; ids.py fills it in this order.
struct Ids {
  const Segment* segments;
  const u64* keys;            // (count,) the ids of the batch
  const int* entry_segments;  // (count,)
  const int* step;
  // The state.
  u64* ids;
  int* last;
  u32* counts;
  int* free;
  int* pools;
  u64* totals;
  int* missing;
  Bucket* buckets;
  // The results.
  int* rows;
  int* fresh_rows;
  u64* fresh_ids;
  int* fresh_ends;
  int* gone_rows;
  u64* gone_ids;
  int* gone_ends;
  // To undo the call, by entry: its place, `last` and the count there before, the free place that its id got, where that was.
  int* places;
  int* before;
  u32* was;
  int* taken;
  u32* positions;
  int* undo_left;  // (5, left_capacity)
  const int* when;  // whether to undo
  u32* refs;  // by entry: 1 + its pair in the set of unknown ids, or 0
  // By first entry of an unknown id: the counter that it is counted by, its ranks in the chunk.
  u32* asks;
  u32* ranks;
  u32* move_ranks;
  // The set of unknown ids: count - the first entry of an id, 0 where there is none; its occurrences.
  u32* first;
  u32* times;
  u32* chunk_counts;  // (4 * segments, chunks)
  u32* asked;         // (4 * segments,) whether any chunk has counted there
  u32* plan;
  u32* bins;        // (pools, BINS + GROUPS)
  u32* certain;     // a bit for each place of the pools that evict: it leaves
  u32* candidates;  // it may leave
  u32* list;        // the places that may leave, where there are few
  // The ids that leave.
  u32* left;
  u32* left_segments;
  u64* left_ids;
  u64 count, num_segments, num_rows, num_places, num_buckets, set_size, gone_capacity, left_capacity, chunks, chunk, list_capacity;
};

DEVICE u64 mix64(u64 x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}

DEVICE bool is_expired(int expire, int last, int step) { return expire > 0 && last >= 0 && step - last > expire; }

DEVICE bool belongs(const Segment& s, int place) {
  return (place >= s.begin && place < s.end) || (place >= s.waiting_begin && place < s.waiting_end);
}

struct Key {
  u64 id;
  u32 home, tag;
  MEMBER Key() : id(0), home(0), tag(0) {}
  MEMBER Key(const Ids& m, u64 id, const Segment& s) : id(id) {
    const u64 hash = mix64(id ^ s.salt);
    home = u32((hash >> 32) * m.num_buckets >> 32);
    tag = u32(hash);
  }
};

DEVICE u32 next_bucket(const Ids& m, u32 bucket) { return bucket + 1 == m.num_buckets ? 0 : bucket + 1; }

// The place of each lane's id, or -1; all lanes of a warp call, `wanted` those with an id. For kernels that do not change
// the index. Eight lanes read a bucket together: a line of memory in one request.
DEVICE int search(const Ids& m, const Key& key, const Segment& s, bool wanted) {
  const u32 lane = threadIdx.x % 32, group = lane / 8, part = lane % 8, mine = lane % 4 * 8;
  u32 at = key.home;
  int found = -1;
  u64 probes = 0;
  for (u32 searching = __ballot_sync(FULL, wanted); searching != 0; searching = __ballot_sync(FULL, wanted)) {
    u32 words[8][4];
#pragma unroll
    for (int r = 0; r < 8; ++r) {  // the buckets of lanes 4 * r to 4 * r + 3
      const u32 bucket = __shfl_sync(FULL, at, 4 * r + group);
      if (searching >> (4 * r + group) & 1) read_constant<16>(words[r], m.buckets[bucket].words + 4 * part);
    }
    u32 place = EMPTY, fitting = 0, passed = 0;
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      const u32 tag = __shfl_sync(FULL, key.tag, 4 * r + group);
      const bool here = searching >> (4 * r + group) & 1;
      const bool one = here && words[r][1] == tag && words[r][0] != EMPTY;
      const bool two = here && part < 7 && words[r][3] == tag && words[r][2] != EMPTY;
      const u32 ones = __ballot_sync(FULL, one) >> mine & 255, twos = __ballot_sync(FULL, two) >> mine & 255, fits = ones | twos;
      const u32 held = __shfl_sync(FULL, two ? words[r][2] : words[r][0], mine + (fits ? __ffs(fits) - 1 : 0));
      const u32 over = __shfl_sync(FULL, words[r][2], mine + 7);
      if (lane / 4 == r) {
        place = fits ? held : EMPTY;
        fitting = __popc(ones) + __popc(twos);
        passed = over;
      }
    }
    if (!wanted) continue;
    if (fitting != 0 && m.ids[place] == key.id && belongs(s, int(place))) found = int(place);
    if (fitting > 1 && found < 0) {  // ids of one hash
      const u32* line = m.buckets[at].words;
      for (int way = 0; way < WAYS; ++way) {
        const u32 other = line[2 * way];
        if (line[2 * way + 1] == key.tag && other != EMPTY && m.ids[other] == key.id && belongs(s, int(other))) found = int(other);
      }
    }
    wanted = found < 0 && passed != 0 && ++probes < m.num_buckets;
    at = next_bucket(m, at);
  }
  return found;
}

// As other threads have left it.
DEVICE void read_bucket(const Bucket& bucket, u32* words) {
#pragma unroll
  for (int i = 0; i < 8; ++i) read_fresh<16>(words + 4 * i, bucket.words + 4 * i);
}

DEVICE void insert(const Ids& m, const Key& key, u32 place) {
  const u64 pair = u64(key.tag) << 32 | place;
  for (u32 at = key.home;; at = next_bucket(m, at)) {
    Bucket& bucket = m.buckets[at];
    u32 words[32], empty = 0;
    read_bucket(bucket, words);
#pragma unroll
    for (int way = 0; way < WAYS; ++way) empty |= u32(words[2 * way] == EMPTY) << way;
    for (; empty != 0; empty &= empty - 1) {
      if (atomicCAS(bucket.pair(__ffs(empty) - 1), EMPTY_PAIR, pair) == EMPTY_PAIR) return;
    }
    atomicAdd(bucket.words + PASSED, 1u);
  }
}

// Takes out a place that is there. A new id may have entered the same place in the same bucket by now: under its own tag.
DEVICE void remove(const Ids& m, const Key& key, u32 place) {
  u32 at = key.home;
  for (u64 probes = 0; probes < m.num_buckets; ++probes, at = next_bucket(m, at)) {
    Bucket& bucket = m.buckets[at];
    u32 words[32], fits = 0;
    read_bucket(bucket, words);
#pragma unroll
    for (int way = 0; way < WAYS; ++way) fits |= u32(words[2 * way] == place && words[2 * way + 1] == key.tag) << way;
    if (fits != 0) {
      atomicExch(bucket.pair(__ffs(fits) - 1), EMPTY_PAIR);
      return;
    }
    atomicAdd(bucket.words + PASSED, 0xffffffffu);
  }
}

DEVICE void clear(const Ids& m, u32 place) {
  m.ids[place] = 0;
  m.last[place] = -1;
  m.counts[place] = 0;
}

DEVICE u32 saturated(u32 a, u32 b) { return a + b > MOST_COUNTED ? MOST_COUNTED : a + b; }

// The plan of a call: some numbers, then fields with one number by pool, and one more where they are sums.
enum PlanNumber { ANY, REFUSED_CALL, FROZEN, ASK_TICKET, WEIGH_TICKET, LEAVING, PLAN_NUMBERS = 16 };
enum PlanField { NEED, FREE, WANTED, ABLE, OLDEST, THRESHOLD, REST, LOT, GIVEN, WORDS, LEFT_BEGIN, RETURNED, FRESH_BEGIN, HELD, LIST, CURSOR, PLAN_FIELDS };
DEVICE u32* field(const Ids& m, PlanField f) { return m.plan + PLAN_NUMBERS + u64(f) * (2 * m.num_segments + 1); }

struct Pool {
  u32 begin, size;
  int policy, expire;
  bool waiting;
  MEMBER Pool(const Ids& m, u32 number) {
    waiting = number >= m.num_segments;
    const Segment& s = m.segments[waiting ? number - m.num_segments : number];
    begin = waiting ? s.waiting_begin : s.begin;
    size = (waiting ? s.waiting_end : s.end) - begin;
    policy = waiting ? int(LRU) : s.policy;
    expire = waiting ? 0 : s.expire;
  }
};

// In shared memory: exclusive sums over `n` numbers, n + 1 of them, by the first warp. All threads of the block call.
DEVICE void sum_up(u32* numbers, u32 n) {
  __syncthreads();
  if (threadIdx.x < 32) {
    const u32 lane = threadIdx.x;
    u32 before = 0;
    for (u32 base = 0; base < n; base += 32) {
      const u32 own = base + lane < n ? numbers[base + lane] : 0;
      const u32 through = sum_through(own);
      if (base + lane < n) numbers[base + lane] = before + through - own;
      before += __shfl_sync(FULL, through, 31);
    }
    if (lane == 0) numbers[n] = before;
  }
  __syncthreads();
}

// Whether this block is the last one to come here. All threads of the block call.
DEVICE bool is_last(u32* ticket) {
  __shared__ u32 mine;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) mine = atomicAdd(ticket, 1u);
  __syncthreads();
  const bool last = mine + 1 == gridDim.x;
  __threadfence();
  return last;
}
