// Rows between a cache on the device and records in pinned host memory. The host's memory takes them page by page: records in
// ascending order move up to twice as fast as in any order.
//   VECTOR        words of 4 bytes that a lane moves at once, 1, 2 or 4
//   TABLE_CHUNKS  of VECTOR words: a row of the table     SLOT_CHUNKS  a row of a slot with vectors     NE  their number
//   NR            slots with one number per row             RECORD  words of a record
constexpr int SWAP_THREADS = 256;
constexpr int VECTOR_CHUNKS = TABLE_CHUNKS + NE * SLOT_CHUNKS, CHUNKS = VECTOR_CHUNKS + (NR + VECTOR - 1) / VECTOR;
constexpr int LANES = CHUNKS > 16 ? 32 : CHUNKS > 8 ? 16 : CHUNKS > 4 ? 8 : CHUNKS > 2 ? 4 : CHUNKS > 1 ? 2 : 1;
constexpr int EACH = (CHUNKS + LANES - 1) / LANES;

struct Cache {
  u32* table;
  u32* vectors[NE > 0 ? NE : 1];
  u32* numbers[NR > 0 ? NR : 1];
};
DEVICE u32* chunk_of(const Cache& cache, u32 slot, int chunk) {
  if (chunk < TABLE_CHUNKS) return cache.table + (u64(slot) * TABLE_CHUNKS + chunk) * VECTOR;
  const int c = chunk - TABLE_CHUNKS;
  u32* from = cache.vectors[0];
#pragma unroll
  for (int k = 1; k < NE; ++k) from = c / (SLOT_CHUNKS > 0 ? SLOT_CHUNKS : 1) == k ? cache.vectors[k] : from;
  return from + (u64(slot) * SLOT_CHUNKS + c % (SLOT_CHUNKS > 0 ? SLOT_CHUNKS : 1)) * VECTOR;
}

DEVICE void read_slot(const Cache& cache, u32 slot, int chunk, u32* words) {
  if (chunk < VECTOR_CHUNKS) {
    read_fresh<4 * VECTOR>(words, chunk_of(cache, slot, chunk));
    return;
  }
#pragma unroll
  for (int j = 0; j < VECTOR; ++j) words[j] = 0;
#pragma unroll
  for (int k = 0; k < NR; ++k) {
    if (VECTOR_CHUNKS + k / VECTOR == chunk) words[k % VECTOR] = cache.numbers[k][slot];
  }
}

DEVICE void write_slot(const Cache& cache, u32 slot, int chunk, const u32* words) {
  if (chunk < VECTOR_CHUNKS) {
    write<CACHED, 4 * VECTOR>(chunk_of(cache, slot, chunk), words, 0);
    return;
  }
#pragma unroll
  for (int k = 0; k < NR; ++k) {
    if (VECTOR_CHUNKS + k / VECTOR == chunk) cache.numbers[k][slot] = words[k % VECTOR];
  }
}

// Rows that move: entries (record << 32 | slot) in ascending order, so that records of one page come together; those of rows that
// stay are past the last record, at the end. The first `staged` rows that leave wait in memory of the device, as records.
// (Pointers and numbers alternate: every field takes 8 bytes.)
struct Moves {
  const u64* entries;
  u32 count;
  const u64* address;  // of the first record, 0: no row moves
  u32 num_records;
  u32* staging;
  u32 staged;
};
DEVICE u32 slot_of(const Moves& moves, u32 i) { return u32(moves.entries[i]); }
DEVICE u32* record_of(const Moves& moves, u32 i) { return reinterpret_cast<u32*>(*moves.address) + u64(row_of(moves.entries[i])) * RECORD; }
DEVICE u32* staged(const Moves& moves, u32 i) { return moves.staging + u64(i) * RECORD; }

// The rows of a group of lanes, shared among `blocks` of the grid: the first one, and the distance from each to the next.
struct Share {
  u32 first, step;
};
DEVICE Share share(u32 blocks) {
  constexpr u32 GROUPS = SWAP_THREADS / LANES;
  return {blockIdx.x / (gridDim.x / blocks) * GROUPS + threadIdx.x / LANES, blocks * GROUPS};
}

// Moves the rows before `end`: `from(i, chunk, words)` reads, then `to(i, chunk, words)` writes all chunks
// of a row, so that several reads are under way.
template <class From, class To>
DEVICE void move(const Moves& moves, Share own, u32 end, From from, To to) {
  if (*moves.address == 0) return;
  const u32 lane = threadIdx.x % LANES;
  for (u32 i = own.first; i < moves.count && i < end; i += own.step) {
    if (row_of(moves.entries[i]) >= moves.num_records) return;
    u32 words[EACH][VECTOR];
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
      const int chunk = e * LANES + lane;
      if (chunk < CHUNKS) from(i, chunk, words[e]);
    }
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
      const int chunk = e * LANES + lane;
      if (chunk < CHUNKS) to(i, chunk, words[e]);
    }
  }
}

// Rows leave the cache: for the staging memory, or for their records.
extern "C" __global__ void __launch_bounds__(SWAP_THREADS) swap_leave(Cache cache, Moves gone) {
  move(
      gone, share(gridDim.x), gone.count, [&](u32 i, int chunk, u32* words) { read_slot(cache, slot_of(gone, i), chunk, words); },
      [&](u32 i, int chunk, const u32* words) {
        u32* to = i < gone.staged ? staged(gone, i) : record_of(gone, i);
        write<CACHED, 4 * VECTOR>(to + chunk * VECTOR, words, 0);
      });
}

// Even blocks store staged rows, odd ones bring others to the cache, so that the bus carries both ways. No row does both.
extern "C" __global__ void __launch_bounds__(SWAP_THREADS) swap_move(Cache cache, Moves gone, Moves fresh) {
  const Share own = share(gridDim.x / 2);
  if (blockIdx.x % 2 == 0) {
    move(
        gone, own, gone.staged, [&](u32 i, int chunk, u32* words) { read_fresh<4 * VECTOR>(words, staged(gone, i) + chunk * VECTOR); },
        [&](u32 i, int chunk, const u32* words) { write<CACHED, 4 * VECTOR>(record_of(gone, i) + chunk * VECTOR, words, 0); });
  } else {
    move(
        fresh, own, fresh.count, [&](u32 i, int chunk, u32* words) { read_fresh<4 * VECTOR>(words, record_of(fresh, i) + chunk * VECTOR); },
        [&](u32 i, int chunk, const u32* words) { write_slot(cache, slot_of(fresh, i), chunk, words); });
  }
}

// The table's rows of some entries: from the cache, where they have a slot, else from their records; zeros where they have neither.
extern "C" __global__ void __launch_bounds__(SWAP_THREADS) swap_read(const u32* table, const u64* address, const int* rows, const u32* slots, u32* out,
                                                                     u32 count, u32 num_slots, u32 num_records) {
  const u32* host = reinterpret_cast<const u32*>(*address);
  const u32 lane = threadIdx.x % LANES;
  const Share own = share(gridDim.x);
  for (u32 i = own.first; i < count; i += own.step) {
    const u32 slot = slots[i], row = u32(rows[i]);
    const u32* from = slot < num_slots ? table + u64(slot) * (TABLE_CHUNKS * VECTOR) : host != nullptr && row < num_records ? host + u64(row) * RECORD : nullptr;
    u32 words[EACH][VECTOR];
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
#pragma unroll
      for (int j = 0; j < VECTOR; ++j) words[e][j] = 0;
      const int chunk = e * LANES + lane;
      if (from != nullptr && chunk < TABLE_CHUNKS) read_fresh<4 * VECTOR>(words[e], from + chunk * VECTOR);
    }
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
      const int chunk = e * LANES + lane;
      if (chunk < TABLE_CHUNKS) write<CACHED, 4 * VECTOR>(out + u64(i) * (TABLE_CHUNKS * VECTOR) + chunk * VECTOR, words[e], 0);
    }
  }
}
