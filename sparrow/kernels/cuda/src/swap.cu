// Rows between a cache on the device and records in pinned host memory, both ways in one launch: reads and writes of the
// host's memory have their own halves of the bus.
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
struct Changes {
  const u32* rows;
  const u32* ids;  // low and high words; the record is the low one
  const u32* ends;
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

// The segment of item i: the number of segments that end at i or before.
DEVICE u32 segment_of(const u32* ends, u32 num_segments, u32 i) {
  u32 low = 0, high = num_segments;
  while (low < high) {
    const u32 middle = (low + high) / 2;
    if (ends[middle] <= i) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}
DEVICE u32 begin_of(const u32* ends, u32 segment) { return segment == 0 ? 0 : ends[segment - 1]; }

// The k-th fresh row of a segment is its k-th gone row, as long as there are any: one group of lanes moves both.
extern "C" __global__ void __launch_bounds__(SWAP_THREADS) swap(Cache cache, Changes fresh, Changes gone, const u64* address, u32 num_segments,
                                                                u32 num_slots, u32 num_records) {
  u32* host = reinterpret_cast<u32*>(*address);
  if (host == nullptr) return;
  const u32 lane = threadIdx.x % LANES, coming = fresh.ends[num_segments - 1], going = gone.ends[num_segments - 1];
  const u32 groups = gridDim.x * (SWAP_THREADS / LANES);
  for (u32 item = blockIdx.x * (SWAP_THREADS / LANES) + threadIdx.x / LANES; item < coming + going; item += groups) {
    const bool comes = item < coming;
    const Changes& mine = comes ? fresh : gone;
    const Changes& other = comes ? gone : fresh;
    const u32 i = comes ? item : item - coming, segment = segment_of(mine.ends, num_segments, i);
    const u32 rank = i - begin_of(mine.ends, segment), begin = begin_of(other.ends, segment);
    const bool both = rank < other.ends[segment] - begin;
    if (!comes && both) continue;  // its fresh row has seen to it
    const u32 slot = mine.rows[i];
    const u32 away = !comes ? gone.ids[2 * i] : both ? gone.ids[2 * (begin + rank)] : NONE;
    const u32 from = comes ? fresh.ids[2 * i] : NONE;
    if (slot >= num_slots) continue;
    u32 words[EACH][VECTOR], old[EACH][VECTOR];
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
      const int chunk = e * LANES + lane;
      if (from < num_records && chunk < CHUNKS) read_fresh<4 * VECTOR>(words[e], host + u64(from) * RECORD + chunk * VECTOR);
    }
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
      const int chunk = e * LANES + lane;
      if (away < num_records && chunk < CHUNKS) read_slot(cache, slot, chunk, old[e]);
    }
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
      const int chunk = e * LANES + lane;
      if (chunk >= CHUNKS) continue;
      if (away < num_records) write<CACHED, 4 * VECTOR>(host + u64(away) * RECORD + chunk * VECTOR, old[e], 0);
      if (from < num_records) write_slot(cache, slot, chunk, words[e]);
    }
  }
}

// The table's rows of some entries: from the cache, where they have a slot, else from their records; zeros where they have neither.
extern "C" __global__ void __launch_bounds__(SWAP_THREADS) swap_read(const u32* table, const u64* address, const int* rows, const u32* slots, u32* out,
                                                                     u32 count, u32 num_slots, u32 num_records) {
  const u32* host = reinterpret_cast<const u32*>(*address);
  const u32 lane = threadIdx.x % LANES, groups = gridDim.x * (SWAP_THREADS / LANES);
  for (u32 i = blockIdx.x * (SWAP_THREADS / LANES) + threadIdx.x / LANES; i < count; i += groups) {
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
