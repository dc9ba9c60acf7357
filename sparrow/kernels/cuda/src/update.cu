// The fused update: sums the gradients of each touched row, steps the row, writes it back. No float atomics: every sum has
// one order, which depends on the row's own entries alone.
//   TABLE, GRADS  types of the table and of the gradients (types.cuh)      NE, NR  slots per element, slots per row
//   NS  hyper-parameters of a table    GAINS    entries have gains     STACKED  more than one table     LOGICAL  logical_rows is given
//   WARPS, MIN_BLOCKS  of the launch     TASK  chunks of a warp     ONES  rows of one entry that a group steps at a time
//   ROW_HINT  for the caches
//
// Positions are cut into chunks of 32; a warp takes TASK chunks. A segment of up to 32 entries is one piece of work. A longer
// one is cut into pieces of 32, counted from its own first entry. A piece belongs to the chunk in which it begins. Pieces of
// one entry, of two to four, and longer ones are worked off one kind after the other, each group of lanes with a piece (or
// ONES of one entry) in hand: everything that a piece needs from memory is asked for before the first number is used. Rows
// that fill a lane's registers have one kind of piece only.
//
// The sums of a cut segment meet in a tree: nodes of 32 pieces, of 32 * 32, and so on. The group that leaves the last
// sum of a node adds the node's sums in their order and goes up with the total; the group at the top steps the row.
constexpr u32 C = 32;
constexpr u32 POSITIONS = (TASK + 1) * C;
constexpr u32 FEW = 4;  // entries of a short piece
constexpr bool KINDS = E <= 16;

// The pieces of a warp. A piece is position | (length - 1) << 9 | is not the first of its segment << 14 | is cut << 15.
struct Work {
  u64 entries[POSITIONS];
#if GAINS
  float gains[POSITIONS];
#endif
  u32 starts[TASK];  // where the segment begins that covers a chunk's first position
  uint16_t ones[TASK * C], few[TASK * C / 2], many[KINDS ? TASK * C / 4 + TASK : TASK * C];
};
constexpr u32 LATER = 1u << 14, CUT = 1u << 15;
DEVICE u32 place_of(u32 piece) { return piece & 511; }
DEVICE u32 length_of(u32 piece) { return (piece >> 9 & 31) + 1; }

struct Slots {
  float* slot[NE + NR > 0 ? NE + NR : 1];  // as the rule names them; SLOT_E and SLOT_R give their numbers
};

extern "C" __global__ void __launch_bounds__(WARPS * 32, MIN_BLOCKS)
    update(const u64* __restrict__ entries, u32 n, u32 num_rows, const u32* __restrict__ bags, const float* __restrict__ gains,
           const Grad* __restrict__ grads, u32 num_bags, const float* __restrict__ hyper, const u32* __restrict__ seeds,
           const int32_t* __restrict__ first_rows, u32 num_tables, const int32_t* __restrict__ logical_rows, float* partials,
           u32* tickets, u32 num_sums, Row* table, Slots slots) {
  __shared__ Work works[WARPS];
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  Work& work = works[warp];
  const u32 slice = blockIdx.x % SLICES, base = (blockIdx.x / SLICES * WARPS + warp) * TASK * C;
  if (base >= n) return;
  const Inputs in{{entries, n}, partials + slice * DIM, tickets + slice * num_sums};
  State state;
  state.table = table;
#pragma unroll
  for (int s = 0; s < NE; ++s) state.e[s] = slots.slot[SLOT_E(s)];
#pragma unroll
  for (int s = 0; s < NR; ++s) state.r[s] = slots.slot[SLOT_R(s)];

  // ---- the pieces of this warp
  u32 num_ones = 0, num_few = 0, num_many = 0, first_row;
  {
    u64 entry[TASK + 1];
#pragma unroll
    for (int k = 0; k <= TASK; ++k) entry[k] = base + k * C + lane < n ? entries[base + k * C + lane] : ~0ull;
    const u32 previous = base > 0 ? row_of(entries[base - C + lane]) : NONE;
    first_row = __shfl_sync(FULL, row_of(entry[0]), 0);
    if (first_row >= num_rows) return;
    u32 start = base;  // of the segment that covers the chunk's first position
    const u32 others = __ballot_sync(FULL, previous != first_row);
    if (others != FULL) start = others ? base - __clz(others) : find_start(in.all, base - C, lane);
#pragma unroll
    for (int k = 0; k <= TASK; ++k) {
#if GAINS
      const bool there = base + k * C + lane < n;
      u32 source = static_cast<u32>(entry[k]);
      work.gains[k * C + lane] = there ? gains[source] : 0.0f;
      if (bags && there) source = bags[source];
      work.entries[k * C + lane] = entry[k] & ~0xffffffffull | source;
#else
      work.entries[k * C + lane] = entry[k];
#endif
    }
    u32 left = __shfl_sync(FULL, previous, 31);
#pragma unroll
    for (int k = 0; k < TASK; ++k) {
      const u32 row0 = row_of(entry[k]), row1 = row_of(entry[k + 1]), at = k * C + lane;
      const u32 above0 = __shfl_up_sync(FULL, row0, 1), above1 = __shfl_up_sync(FULL, row1, 1);
      const u32 last = __shfl_sync(FULL, row0, 31);
      const u32 heads = __ballot_sync(FULL, row0 != (lane == 0 ? left : above0));
      const u64 both = static_cast<u64>(__ballot_sync(FULL, row1 != (lane == 0 ? last : above1))) << 32 | heads;
      const u32 live = __ballot_sync(FULL, row0 < num_rows);
      // The piece of the covering segment that begins here, if one does.
      const u32 next_piece = (start - (base + k * C)) % C;
      const bool goes_on = !(heads & (2u << next_piece) - 1u);
      const u32 begin = (heads | (goes_on ? 1u << next_piece : 0u)) & live;
      const u64 later_heads = lane + 1 < 64 ? both >> (lane + 1) : 0;
      const u32 whole = later_heads ? __ffsll(later_heads) : 64 - lane;  // entries until the segment's end, or 33 and more
      const bool later = goes_on && lane == next_piece, cut = later || whole > C;
      const u32 length = whole > C ? C : whole;
      const bool is_begin = begin >> lane & 1;
      const bool one = KINDS && is_begin && length == 1 && !cut;
      const bool several = KINDS && is_begin && length > 1 && length <= FEW && !cut;
      const bool long_one = is_begin && !one && !several;
      const u32 all_ones = __ballot_sync(FULL, one), all_few = __ballot_sync(FULL, several), all_many = __ballot_sync(FULL, long_one);
      const u32 below = lanes_below(lane), piece = at | (length - 1) << 9 | (later ? LATER : 0) | (cut ? CUT : 0);
      if (one) work.ones[num_ones + __popc(all_ones & below)] = piece;
      if (several) work.few[num_few + __popc(all_few & below)] = piece;
      if (long_one) work.many[num_many + __popc(all_many & below)] = piece;
      if (lane == 0) work.starts[k] = start;
      num_ones += __popc(all_ones);
      num_few += __popc(all_few);
      num_many += __popc(all_many);
      left = last;
      if (heads) start = base + k * C + 31 - __clz(heads);
    }
  }
  __syncwarp();

  const u32 g = lane / L;
  const Group all{lane % L, FULL, slice}, own{lane % L, L == 32 ? FULL : ((1u << (L % 32)) - 1) << (g * L), slice};
  const u64 policy = make_policy<ROW_HINT>();
  const auto grad = [&](const u64& entry, int k, bool there) {
    const u32 bag = static_cast<u32>(entry);
    Pack<Grad, V> pack{};
    if (there && bag < num_bags && all.has(k)) pack = load<CACHED, V>(grads + bag * STRIDE + slice * DIM + all.offset(k), 0);
    return pack;
  };
  const auto gain_at = [&](u32 at) {
#if GAINS
    return work.gains[at];
#else
    return 1.0f;
#endif
  };
  // sum += gain * x, or sum = gain * x for the first.
  const auto add = [&](float (&sum)[E], const Pack<Grad, V> (&x)[K], float gain, bool first) {
#pragma unroll
    for (int j = 0; j < E; ++j) {
      const float value = Kept<GRADS>::get(number(x[j / V], j % V)), product = GAINS ? gain * value : value;
      sum[j] = first ? product : sum[j] + product;
    }
  };
  Tables first_table{first_rows, num_tables, 0, NONE};
  if (STACKED) {
    // The last table that begins at or before the first row.
    u32 before = 0;
    for (u32 t = 0; t < num_tables; t += 32) {
      before += __popc(__ballot_sync(FULL, t + lane < num_tables && static_cast<u32>(first_rows[t + lane]) <= first_row));
    }
    first_table.table = before - 1;
    first_table.limit = before < num_tables ? static_cast<u32>(first_rows[before]) : NONE;
  }
  const auto step = [&](RowValues& values, const float (&sum)[E], const Tables& tables, u32 row) {
    float scalars[NS];  // read again for every step: they stay in the first-level cache and take no registers meanwhile
#pragma unroll
    for (int s = 0; s < NS; ++s) scalars[s] = hyper[tables.table * NS + s];
    const int32_t index = LOGICAL ? logical_rows[row] : static_cast<int32_t>(row - (STACKED ? first_rows[tables.table] : 0));
    row_step(all, values.row, sum, values.e, values.r, scalars, seeds[tables.table], index);
  };

  // ---- long pieces, and pieces of cut segments
  if (num_many) {
    Tables tables = first_table;
    for (u32 i = 0; i < num_many; i += G) {
      const bool there = i + g < num_many;
      const u32 piece = work.many[there ? i + g : i];
      const u32 at = place_of(piece), length = there ? length_of(piece) : 0;
      const bool cut = piece & CUT;
      const u32 row = row_of(work.entries[at]);
      RowValues values;
      bool whole = there && !cut;
      if (whole) values.load(all, state, row, policy);
      float sum[E];
#pragma unroll
      for (int j = 0; j < E; ++j) sum[j] = 0;
#pragma unroll 1
      for (u32 done = 0; done < length; done += MANY) {
        Pack<Grad, V> x[MANY][K];
#pragma unroll
        for (u32 a = 0; a < MANY; ++a) {
          const bool valid = done + a < length;
          const u64 entry = work.entries[valid ? at + done + a : at];
#pragma unroll
          for (int k = 0; k < K; ++k) x[a][k] = grad(entry, k, valid);
        }
#pragma unroll
        for (u32 a = 0; a < MANY; ++a) add(sum, x[a], gain_at(done + a < length ? at + done + a : at), false);
      }
      if (there && cut) {
        const u32 start = piece & LATER ? work.starts[at / C] : base + at;
        whole = fold_up(own, in, row, start, (base + at - start) / C, sum);
        if (whole) values.load(all, state, row, policy);
      }
      __syncwarp();
      tables.advance(row);
      __syncwarp();
      step(values, sum, tables, row);
      if (whole) values.store(all, state, row, policy);
    }
  }

  // ---- pieces of two to four entries
  if (KINDS && num_few) {
    Tables tables = first_table;
    for (u32 i = 0; i < num_few; i += G) {
      const bool there = i + g < num_few;
      const u32 piece = work.few[there ? i + g : i];
      const u32 at = place_of(piece), length = length_of(piece);
      u64 entry[FEW];
#pragma unroll
      for (u32 a = 0; a < FEW; ++a) entry[a] = work.entries[a < length ? at + a : at];
      const u32 row = row_of(entry[0]);
      Pack<Grad, V> x[FEW][K];
#pragma unroll
      for (u32 a = 0; a < FEW; ++a)
#pragma unroll
        for (int k = 0; k < K; ++k) x[a][k] = grad(entry[a], k, there && a < length);
      RowValues values;
      if (there) values.load(all, state, row, policy);
      float sum[E];
#pragma unroll
      for (int j = 0; j < E; ++j) sum[j] = 0;
#pragma unroll
      for (u32 a = 0; a < FEW; ++a) add(sum, x[a], gain_at(a < length ? at + a : at), false);
      tables.advance(row);
      __syncwarp();
      step(values, sum, tables, row);
      if (there) values.store(all, state, row, policy);
    }
  }

  // ---- pieces of one entry
  if (KINDS && num_ones) {
    Tables tables = first_table;
    for (u32 i = 0; i < num_ones; i += G * ONES) {
      u32 rows[ONES];
      RowValues values[ONES];
      Pack<Grad, V> x[ONES][K];
      float gain[ONES];
#pragma unroll
      for (int a = 0; a < ONES; ++a) {
        const u32 which = i + a * G + g;
        const bool there = which < num_ones;
        const u32 at = place_of(work.ones[there ? which : i]);
        const u64 entry = work.entries[at];
        rows[a] = row_of(entry);
#pragma unroll
        for (int k = 0; k < K; ++k) x[a][k] = grad(entry, k, there);
        if (there) values[a].load(all, state, rows[a], policy);
        gain[a] = gain_at(at);
      }
#pragma unroll
      for (int a = 0; a < ONES; ++a) {
        float sum[E];
        add(sum, x[a], gain[a], true);
        const bool there = i + a * G + g < num_ones;
        if (there) tables.advance(rows[a]);
        __syncwarp();
        step(values[a], sum, tables, rows[a]);
        if (there) values[a].store(all, state, rows[a], policy);
      }
    }
  }
}
