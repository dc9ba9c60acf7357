// The changes: ids leave the index, new ones come in, every entry gets its row.
constexpr int APPLY_THREADS = 256;

DEVICE u32 rank_of(const Ids& m, u32 i, u32 counter, const u32* ranks) {
  return m.chunk_counts[counter * m.chunks + i / u32(m.chunk)] + ranks[i];
}

DEVICE void add_fresh(const Ids& m, u32 at, u32 row, u64 id) {
  m.fresh_rows[at] = int(row);
  m.fresh_ids[at] = id;
}

// The row of the unknown id whose first entry is `lead`; that entry itself (`own`) makes the changes.
DEVICE int settle(const Ids& m, u32 lead, bool own, u32 times) {
  const int number = m.entry_segments[lead], place = m.places[lead];
  const u32 num_segments = u32(m.num_segments), counter = m.asks[lead];
  const Segment& s = m.segments[number];
  const bool lfu = s.policy >= LFU, waits = place >= int(m.num_rows);
  if (place >= 0 && !waits) {  // returned
    if (own) {
      m.counts[place] = lfu ? saturated(times, 0) : 0;
      const u32 rank = rank_of(m, lead, BACK * num_segments + number, m.ranks);
      add_fresh(m, field(m, FRESH_BEGIN)[number] + field(m, GIVEN)[number] + rank, place, m.keys[lead]);
    }
    return place;
  }
  const u32 rank = counter != NONE ? rank_of(m, lead, counter, m.ranks) : 0;
  const bool comes = counter != NONE && rank < field(m, GIVEN)[counter], admitted = comes && counter < num_segments;
  if (!own && !admitted) return s.unknown;
  const u32 seen = own && waits ? saturated(times, m.counts[place]) : times;
  if (own && waits && !admitted) m.counts[place] = seen;
  if (!comes) return s.unknown;
  const Pool p(m, counter);
  const u32 lot = field(m, LOT)[counter], position = p.begin + field(m, FREE)[counter] + lot - 1 - rank, taken = m.free[position];
  if (own) {
    if (rank >= lot) m.taken[lead] = int(taken), m.positions[lead] = position;
    const u64 id = m.keys[lead];
    const Key key(m, id, s);
    if (waits) {
      remove(m, key, place);
      clear(m, place);
    }
    insert(m, key, taken);
    m.ids[taken] = id;
    m.last[taken] = *m.step;
    m.counts[taken] = lfu || !admitted ? seen : 0;
    if (admitted) add_fresh(m, field(m, FRESH_BEGIN)[number] + rank, taken, id);
  }
  return admitted ? int(taken) : s.unknown;
}

extern "C" __global__ void __launch_bounds__(APPLY_THREADS) ids_apply(Ids m) {
  const u32 i = blockIdx.x * APPLY_THREADS + threadIdx.x, lane = threadIdx.x % 32;
  const bool here = i < m.count;
  const u32 ref = here ? m.refs[i] : 0;
  if (m.plan[REFUSED_CALL] != 0) {  // nothing happens: `last` is as it was
    if (here && m.before[i] != UNCHANGED) m.last[m.places[i]] = m.before[i];
    if (here) m.places[i] = -1;
    return;
  }
  const u32 leaving = m.plan[LEAVING];
  for (u32 k = i; k < leaving; k += gridDim.x * APPLY_THREADS) {
    const u32 place = m.left[k], segment = m.left_segments[k];
    remove(m, Key(m, m.left_ids[k], m.segments[segment & 0x7fffffffu]), place);
    if (segment >> 31 == 0) clear(m, place);
  }
  if (ref != 0) {
    const u32 lead = u32(m.count) - m.first[ref - 1];
    m.rows[i] = settle(m, lead, lead == i, m.times[ref - 1]);
  }
  // Known ids of segments that count: one that occurs often comes once from each warp.
  const int number = here ? m.entry_segments[i] : -1;
  const bool counted = number >= 0 && ref == 0 && m.segments[number].policy >= LFU;
  const u32 all = __ballot_sync(FULL, counted);
  if (!counted) return;
  const int place = m.places[i];
  const u32 peers = __match_any_sync(all, u64(u32(place)));
  if ((peers & lanes_below(lane)) != 0) return;
  const u32 more = __popc(peers);
  if (atomicAdd(m.counts + place, more) + more > MOST_COUNTED) atomicMin(m.counts + place, MOST_COUNTED);
}

// The state before a call, but for the index.
extern "C" __global__ void __launch_bounds__(APPLY_THREADS) ids_undo(Ids m) {
  const u32 i = blockIdx.x * APPLY_THREADS + threadIdx.x;
  if (*m.when == 0) return;
  if (i < m.count && m.taken[i] >= 0) {
    clear(m, u32(m.taken[i]));
    m.free[m.positions[i]] = m.taken[i];
  }
  if (i < m.count && m.places[i] >= 0) {  // entries of one id write the same
    m.ids[m.places[i]] = m.keys[i];
    m.counts[m.places[i]] = m.was[i];
    if (m.before[i] != UNCHANGED) m.last[m.places[i]] = m.before[i];
  }
  if (i < m.left_capacity && m.undo_left[i] >= 0) {
    const int* undo = m.undo_left + i;
    const int place = undo[0];
    m.last[place] = undo[m.left_capacity];
    m.counts[place] = u32(undo[2 * m.left_capacity]);
    m.ids[place] = u64(u32(undo[3 * m.left_capacity])) | u64(u32(undo[4 * m.left_capacity])) << 32;
  }
}

// Admitted ids give their waiting places back.
extern "C" __global__ void __launch_bounds__(APPLY_THREADS) ids_give_back(Ids m) {
  const u32 i = blockIdx.x * APPLY_THREADS + threadIdx.x;
  if (i >= m.count || m.plan[REFUSED_CALL] != 0) return;
  const u32 counter = m.asks[i], num_segments = u32(m.num_segments);
  if (counter >= num_segments || m.places[i] < int(m.num_rows)) return;  // it asked for no row, or did not wait
  if (rank_of(m, i, counter, m.ranks) >= field(m, GIVEN)[counter]) return;
  const u32 pool = num_segments + counter, after = field(m, FREE)[pool] + field(m, LOT)[pool] - field(m, GIVEN)[pool];
  m.free[Pool(m, pool).begin + after + rank_of(m, i, MOVES * num_segments + counter, m.move_ranks)] = m.places[i];
  atomicAdd(reinterpret_cast<u32*>(m.pools + 2 * pool), 1u);
}
