// Entries in the order of their rows. An entry is row << 32 | source; the entries of one row lie side by side: a segment.
DEVICE u32 row_of(u64 entry) { return static_cast<u32>(entry >> 32); }

struct Entries {
  const u64* entries;
  u32 n;
  MEMBER u32 row_at(u64 p) const { return p < n ? row_of(entries[p]) : NONE; }
};

// Where the segment begins that position `at` belongs to. All lanes of the warp call, with the same numbers.
// Probes go back 1, 2, 4, ... times 32 positions at once, then to 32 places of the interval that holds the first entry.
DEVICE u32 find_start(const Entries& all, u32 at, u32 lane) {
  const u32 row = row_of(all.entries[at]);
  const int probe = static_cast<int>(at) - (32 << (lane < 25 ? lane : 25));  // there are fewer than 2**30 entries
  const u32 inside = __ballot_sync(FULL, probe >= 0 && row_of(all.entries[probe >= 0 ? probe : 0]) == row);
  const int steps = __ffs(~inside) - 1;                              // probes 0 to steps - 1 hit the segment
  int last = static_cast<int>(at) - (steps == 0 ? 0 : 16 << steps);  // of the segment
  int before = static_cast<int>(at) - (32 << steps);                 // not of the segment
  if (before < -1) before = -1;
  while (last - before > 1) {
    const int width = (last - before + 31) / 32;
    const int p = before + width * (static_cast<int>(lane) + 1);
    const u32 hits = __ballot_sync(FULL, p >= last || row_of(all.entries[p < last ? p : last]) == row);
    const int misses = __ffs(hits) - 1;  // there is a hit: the last probe reaches `last`
    before += width * misses;
    if (before + width < last) last = before + width;
  }
  return static_cast<u32>(last);
}
