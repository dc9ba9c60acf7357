// The sums of cut segments (update.cu), joined in a tree inside the launch.
constexpr u32 MANY = E <= 4 ? 8 : E <= 8 ? 4 : E <= 32 ? 2 : 1;  // entries of a long piece that are on their way together

struct Inputs {
  Entries all;
  float* partials;  // sums of pieces, then of nodes, level by level: two places for each unit of positions
  u32* tickets;     // likewise, of this slice; zero before
};

// `sum` of piece `piece` of the segment of `row` that begins at `start`. True: it is now the sum of the whole segment.
DEVICE bool fold_up(const Group& group, const Inputs& in, u32 row, u32 start, u32 piece, float (&sum)[E]) {
  float* partials = in.partials;
  u32* tickets = in.tickets;
  const int base = __ffs(group.mask) - 1;  // the group's first lane in the warp
  for (u32 shift = 5;; shift += 5) {       // a member of this level has 1 << shift entries, the last one fewer
    // At most two segments long enough to be cut begin a member within one unit of 1 << shift positions: the last member of
    // one, and the first of another.
    const auto place = [&](u32 member) { return 2 * ((start >> shift) + member) + (member == 0 ? 1 : 0); };
    const auto is_member = [&](u32 member) { return in.all.row_at(start + (static_cast<u64>(member) << shift)) == row; };
    float* mine = partials + place(piece) * STRIDE;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      if (group.has(k)) store<CACHED>(mine + group.offset(k), make_pack<V>(sum + k * V), 0);
    }
    __threadfence();
    __syncwarp(group.mask);
    const u32 first = piece / 32 * 32;  // of the node's members
    u32 count = 0;
#pragma unroll
    for (int i = 0; i < 32 / L; ++i) count += __popc(__ballot_sync(group.mask, is_member(first + i * L + group.lane)) >> base);
    u32 arrived = 0;
    if (group.lane == 0) arrived = atomicAdd(&tickets[place(first)], 1u);
    arrived = __shfl_sync(group.mask, arrived, base);
    if (arrived != count - 1) return false;
    __threadfence();
#pragma unroll
    for (int j = 0; j < E; ++j) sum[j] = 0;
#pragma unroll 1
    for (u32 done = 0; done < count; done += MANY) {
      Pack<float, V> x[MANY][K];
#pragma unroll
      for (u32 a = 0; a < MANY; ++a) {
        const float* from = partials + place(first + done + a) * STRIDE;
#pragma unroll
        for (int k = 0; k < K; ++k) {
          x[a][k] = {};
          if (done + a < count && group.has(k)) x[a][k] = load_fresh<V>(from + group.offset(k));
        }
      }
#pragma unroll
      for (u32 a = 0; a < MANY; ++a)
#pragma unroll
        for (int j = 0; j < E; ++j) sum[j] += number(x[a][j / V], j % V);
    }
    if (first == 0 && !is_member(32)) return true;
    const u32 places = 2 * (((in.all.n - 1) >> shift) + 1);
    partials += places * STRIDE;
    tickets += places;
    piece /= 32;
  }
}
