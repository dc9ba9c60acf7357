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

// Lists of rows that move: records in ascending order, so that those of one page of the host's memory come together, and the
// slot of each. At their end stand numbers past the last record.
struct Moves {
  const u32* records;
  const u32* slots;
  u32 count;
};

DEVICE u32 first_item() { return blockIdx.x * (SWAP_THREADS / LANES) + threadIdx.x / LANES; }
DEVICE u32 groups() { return gridDim.x * (SWAP_THREADS / LANES); }

// Rows leave the cache: the first `staged` for `staging`, where `swap_store` finds them, the others for their records. `left` has
// the address of the records, then the record of each row in `staging`.
extern "C" __global__ void __launch_bounds__(SWAP_THREADS) swap_leave(Cache cache, Moves gone, const u64* address, u32* staging, u32* left, u32 staged,
                                                                      u32 num_slots, u32 num_records) {
  u32* host = reinterpret_cast<u32*>(*address);
  const u32 lane = threadIdx.x % LANES;
  if (blockIdx.x == 0 && threadIdx.x == 0 && staged > 0) *reinterpret_cast<u64*>(left) = *address;
  for (u32 i = first_item(); i < gone.count || i < staged; i += groups()) {
    const u32 record = host != nullptr && i < gone.count ? gone.records[i] : NONE, slot = record < num_records ? gone.slots[i] : num_slots;
    const bool moves = slot < num_slots;
    if (lane == 0 && i < staged) left[2 + i] = moves ? record : NONE;
    if (!moves && record >= num_records && i >= staged) return;  // there are no more
    if (!moves) continue;
    u32* to = i < staged ? staging + u64(i) * RECORD : host + u64(record) * RECORD;
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
      const int chunk = e * LANES + lane;
      if (chunk >= CHUNKS) continue;
      u32 words[VECTOR];
      read_slot(cache, slot, chunk, words);
      write<CACHED, 4 * VECTOR>(to + chunk * VECTOR, words, 0);
    }
  }
}

// From `staging` to the records.
extern "C" __global__ void __launch_bounds__(SWAP_THREADS) swap_store(const u32* staging, const u32* left, u32 staged, u32 num_records) {
  u32* host = reinterpret_cast<u32*>(*reinterpret_cast<const u64*>(left));
  const u32 lane = threadIdx.x % LANES;
  for (u32 i = first_item(); i < staged; i += groups()) {
    const u32 record = left[2 + i];
    if (record >= num_records) continue;
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
      const int chunk = e * LANES + lane;
      if (chunk >= CHUNKS) continue;
      u32 words[VECTOR];
      read_fresh<4 * VECTOR>(words, staging + u64(i) * RECORD + chunk * VECTOR);
      write<CACHED, 4 * VECTOR>(host + u64(record) * RECORD + chunk * VECTOR, words, 0);
    }
  }
}

// Rows come into the cache.
extern "C" __global__ void __launch_bounds__(SWAP_THREADS) swap_come(Cache cache, Moves fresh, const u64* address, u32 num_slots, u32 num_records) {
  const u32* host = reinterpret_cast<const u32*>(*address);
  if (host == nullptr) return;
  const u32 lane = threadIdx.x % LANES;
  for (u32 i = first_item(); i < fresh.count; i += groups()) {
    const u32 record = fresh.records[i];
    if (record >= num_records) return;
    const u32 slot = fresh.slots[i];
    if (slot >= num_slots) continue;
    u32 words[EACH][VECTOR];
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
      const int chunk = e * LANES + lane;
      if (chunk < CHUNKS) read_fresh<4 * VECTOR>(words[e], host + u64(record) * RECORD + chunk * VECTOR);
    }
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
      const int chunk = e * LANES + lane;
      if (chunk < CHUNKS) write_slot(cache, slot, chunk, words[e]);
    }
  }
}

// The table's rows of some entries: from the cache, where they have a slot, else from their records; zeros where they have neither.
extern "C" __global__ void __launch_bounds__(SWAP_THREADS) swap_read(const u32* table, const u64* address, const int* rows, const u32* slots, u32* out,
                                                                     u32 count, u32 num_slots, u32 num_records) {
  const u32* host = reinterpret_cast<const u32*>(*address);
  const u32 lane = threadIdx.x % LANES;
  for (u32 i = first_item(); i < count; i += groups()) {
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
