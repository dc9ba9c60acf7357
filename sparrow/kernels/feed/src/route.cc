// Routing: which shard owns each id of one device's part of a batch, and the arrays that are exchanged.
// The layout follows sparrow/embedding/sharding/layout.py; NumPy does the same in sharding/routing.py.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>
#include <vector>

#include "versions.h"

namespace {

inline uint32_t mix32(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7FEB352Du;
  x = (x ^ (x >> 15)) * 0x846CA68Bu;
  return x ^ (x >> 16);
}

// Consecutive rows of a stack, from `first` on: in turned blocks over `count` shards from `shard` on, from the local row
// `local` on.
struct Span {
  uint32_t first, shard, count, local;
};

// Shard and local row of a row of the stack. With one span, division by its fixed count is a multiplication.
struct Layout {
  uint64_t num_rows;
  const Span *spans, *end;
  uint64_t inverse;  // of the first span: floor(2**64 / count) + 1: exact for 32-bit rows; 0 where count is 1

  Layout(int64_t num_rows, const int32_t* spans, int64_t num_spans)
      : num_rows(num_rows), spans(reinterpret_cast<const Span*>(spans)), end(this->spans + num_spans),
        inverse(this->spans->count == 1 ? 0 : ~uint64_t{0} / this->spans->count + 1) {}

  const Span& span(uint32_t row) const {
    if (end - spans == 1) return *spans;
    return *(std::upper_bound(spans, end, row, [](uint32_t row, const Span& span) { return row < span.first; }) - 1);
  }

  uint32_t block(const Span& span, uint32_t at) const {
    if (span.count == 1) return at;
    if (&span != spans) return at / span.count;
    return static_cast<uint32_t>(static_cast<unsigned __int128>(inverse) * at >> 64);
  }

  uint32_t local(uint32_t row) const {
    const Span& own = span(row);
    return own.local + block(own, row - own.first);
  }

  uint32_t owner(uint32_t row) const {
    const Span& own = span(row);
    const uint32_t at = row - own.first, number = block(own, at);
    const uint32_t turn = static_cast<uint32_t>(uint64_t{mix32(own.local + number)} * own.count >> 32);
    const uint32_t owner = at - number * own.count + turn;
    return own.shard + (owner >= own.count ? owner - own.count : owner);
  }
};

// An open hash table of rows and their places, empty between two calls.
struct Places {
  std::vector<uint64_t> slots;  // row << 32 | place; FREE: empty
  std::vector<uint32_t> used;
  static constexpr uint64_t FREE = ~uint64_t{0};

  uint32_t prepare(int64_t count) {
    size_t size = 16;
    while (size < static_cast<size_t>(2 * count)) size *= 2;
    if (slots.size() < size) slots.assign(size, FREE);
    used.clear();
    used.reserve(count);
    return static_cast<uint32_t>(slots.size() - 1);
  }

  void clear() {
    for (const uint32_t at : used) slots[at] = FREE;
  }
};

}  // namespace

// Owner of every entry (`shards`: an id to ignore), and by owner how many entries there are and how many sums of one bag.
// Entries of a bag follow one another; `bags` null: each entry is a bag.
SPARROW_API void sparrow_feed_route_pooled(const int32_t* ids, const int32_t* bags, int64_t count, int64_t num_rows,
                                           int64_t shards, const int32_t* spans, int64_t num_spans, int32_t* owners,
                                           int32_t* entries, int32_t* sums, int32_t* last) {
  const Layout layout(num_rows, spans, num_spans);
  for (int64_t o = 0; o < shards; ++o) entries[o] = sums[o] = 0, last[o] = -1;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t row = static_cast<uint32_t>(ids[i]);
    if (row >= layout.num_rows) {
      owners[i] = static_cast<int32_t>(shards);
      continue;
    }
    const uint32_t o = layout.owner(row);
    owners[i] = static_cast<int32_t>(o);
    ++entries[o];
    const int32_t bag = bags ? bags[i] : static_cast<int32_t>(i);
    sums[o] += last[o] != bag;
    last[o] = bag;
  }
}

// The arrays of the pooled exchange, for an agreed capacity of `most` entries and `capacity` sums for each owner.
// block (shards, width): rows (most); where `ragged`, parts (most) and starts (capacity); where `weighted`, gains (most).
// bag_of (shards, capacity): the bag of each sum. slots (shards * capacity, or num_bags where not ragged): which sums make up
// each bag, by offsets (num_bags + 1), with slot_bags (shards * capacity). counters: 3 * shards.
SPARROW_API void sparrow_feed_lay_out_pooled(const int32_t* ids, const int32_t* bags, const float* gains,
                                             int64_t count, const int32_t* owners, int64_t num_rows, int64_t shards,
                                             const int32_t* spans, int64_t num_spans, int64_t local_rows,
                                             int64_t num_bags, int64_t most, int64_t capacity, int64_t ragged,
                                             int64_t weighted, int32_t* block, int32_t* bag_of, int32_t* offsets,
                                             int32_t* slots, int32_t* slot_bags, int32_t* counters) {
  const Layout layout(num_rows, spans, num_spans);
  const int64_t width = most + (ragged ? most + capacity : 0) + (weighted ? most : 0);
  const int64_t gains_at = width - most;
  const int32_t none = static_cast<int32_t>(shards * capacity);
  int32_t *entries = counters, *sums = counters + shards, *last = counters + 2 * shards;
  for (int64_t o = 0; o < shards; ++o) entries[o] = sums[o] = 0, last[o] = -1;
  int64_t made = 0, bag_at = 0;
  if (ragged) offsets[0] = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int32_t o = owners[i], bag = bags ? bags[i] : static_cast<int32_t>(i);
    if (ragged) {
      while (bag_at < bag) offsets[++bag_at] = static_cast<int32_t>(made);
    }
    if (o >= shards) {
      if (!ragged) slots[i] = none;
      continue;
    }
    int32_t* line = block + o * width;
    const int32_t at = entries[o]++;
    line[at] = static_cast<int32_t>(layout.local(static_cast<uint32_t>(ids[i])));
    if (last[o] != bag) {
      last[o] = bag;
      const int32_t part = sums[o]++;
      const int32_t slot = static_cast<int32_t>(o * capacity + part);
      bag_of[slot] = bag;
      if (ragged) {
        line[2 * most + part] = at;
        slots[made] = slot;
        slot_bags[made] = bag;
      } else {
        slots[i] = slot;
      }
      ++made;
    }
    if (ragged) line[most + at] = sums[o] - 1;
    if (weighted) {
      const float gain = gains ? gains[i] : 1.0f;
      std::memcpy(line + gains_at + at, &gain, sizeof(gain));
    }
  }
  for (int64_t o = 0; o < shards; ++o) {
    int32_t* line = block + o * width;
    for (int64_t e = entries[o]; e < most; ++e) line[e] = static_cast<int32_t>(local_rows);
    if (weighted) std::memset(line + gains_at + entries[o], 0, (most - entries[o]) * sizeof(float));
    if (ragged) {
      for (int64_t e = entries[o]; e < most; ++e) line[most + e] = static_cast<int32_t>(capacity - 1);
      for (int64_t k = sums[o]; k < capacity; ++k) line[2 * most + k] = entries[o];
    }
    for (int64_t k = sums[o]; k < capacity; ++k) bag_of[o * capacity + k] = static_cast<int32_t>(num_bags);
  }
  if (ragged) {
    while (bag_at < num_bags) offsets[++bag_at] = static_cast<int32_t>(made);
    for (int64_t k = made; k < none; ++k) slots[k] = none, slot_bags[k] = static_cast<int32_t>(num_bags);
  }
}

// Owner of every entry (`shards`: an id to ignore), its row's place among the distinct rows of that owner, in the order
// in which they first appear, and how many there are by owner. 0: out of memory.
SPARROW_API int64_t sparrow_feed_route_rows(const int32_t* ids, int64_t count, int64_t num_rows, int64_t shards,
                                            const int32_t* spans, int64_t num_spans, int32_t* owners, int32_t* places,
                                            int32_t* counts) {
  static thread_local Places table;
  const Layout layout(num_rows, spans, num_spans);
  uint32_t mask;
  try {
    mask = table.prepare(count);
  } catch (const std::bad_alloc&) {
    return 0;
  }
  for (int64_t o = 0; o < shards; ++o) counts[o] = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (i + 8 < count) __builtin_prefetch(&table.slots[mix32(static_cast<uint32_t>(ids[i + 8])) & mask], 1);
    const uint32_t row = static_cast<uint32_t>(ids[i]);
    if (row >= layout.num_rows) {
      owners[i] = static_cast<int32_t>(shards), places[i] = 0;
      continue;
    }
    const uint32_t o = layout.owner(row);
    owners[i] = static_cast<int32_t>(o);
    uint32_t at = mix32(row) & mask;
    while (table.slots[at] != Places::FREE && table.slots[at] >> 32 != row) at = (at + 1) & mask;
    if (table.slots[at] == Places::FREE) {
      table.slots[at] = uint64_t{row} << 32 | static_cast<uint32_t>(counts[o]++);
      table.used.push_back(at);
    }
    places[i] = static_cast<int32_t>(table.slots[at] & 0xFFFFFFFFu);
  }
  table.clear();
  return 1;
}

// The arrays of the rows exchange, for an agreed capacity of `capacity` rows for each owner and `padded` entries.
// send (shards, capacity): rows that are asked for. slots (padded): the place of each entry's row. The entries again, sorted
// by slot: back_offsets (shards * capacity + 1), back_slots, back_bags, back_gains (padded). next: shards * capacity.
SPARROW_API void sparrow_feed_lay_out_rows(const int32_t* ids, const int32_t* bags, const float* gains, int64_t count,
                                           const int32_t* owners, const int32_t* places, int64_t num_rows,
                                           int64_t shards, const int32_t* spans, int64_t num_spans, int64_t local_rows,
                                           int64_t num_bags, int64_t padded, int64_t capacity, int64_t weighted,
                                           int32_t* send, int32_t* slots, int32_t* back_offsets, int32_t* back_slots,
                                           int32_t* back_bags, float* back_gains, int32_t* next) {
  const Layout layout(num_rows, spans, num_spans);
  const int64_t none = shards * capacity;
  for (int64_t k = 0; k < none; ++k) send[k] = static_cast<int32_t>(local_rows), next[k] = 0;
  int64_t real = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (owners[i] >= shards) {
      slots[i] = static_cast<int32_t>(none);
      continue;
    }
    const int64_t slot = owners[i] * capacity + places[i];
    send[slot] = static_cast<int32_t>(layout.local(static_cast<uint32_t>(ids[i])));
    slots[i] = static_cast<int32_t>(slot);
    ++next[slot];
    ++real;
  }
  for (int64_t i = count; i < padded; ++i) slots[i] = static_cast<int32_t>(none);
  int32_t total = 0;
  for (int64_t k = 0; k < none; ++k) {
    back_offsets[k] = total;
    total += next[k];
    next[k] = back_offsets[k];
  }
  back_offsets[none] = total;
  for (int64_t i = 0; i < count; ++i) {
    if (slots[i] == none) continue;
    const int32_t to = next[slots[i]]++;
    back_slots[to] = slots[i];
    back_bags[to] = bags ? bags[i] : static_cast<int32_t>(i);
    if (weighted) back_gains[to] = gains ? gains[i] : 1.0f;
  }
  for (int64_t i = real; i < padded; ++i) {
    back_slots[i] = static_cast<int32_t>(none);
    back_bags[i] = static_cast<int32_t>(num_bags);
    if (weighted) back_gains[i] = 0.0f;
  }
}
