#include "sort.h"

#include <algorithm>
#include <utility>

#include "prefetch.h"

namespace sparrow {
namespace {

constexpr int kMaxDigitBits = 12;  // counters of one digit stay in the first-level cache

int bit_width(uint64_t x) {
  int width = 0;
  for (; x != 0; x >>= 1) ++width;
  return width;
}

// The same number of bits in every digit, few digits for many entries, small counters for few entries.
struct Digits {
  int passes;
  int bits;

  Digits(int64_t num_rows, int64_t count) {
    const int key_bits = std::max(1, bit_width(static_cast<uint64_t>(num_rows - 1)));
    const int limit = std::clamp(bit_width(static_cast<uint64_t>(count)), 6, kMaxDigitBits);
    passes = (key_bits + limit - 1) / limit;
    bits = (key_bits + passes - 1) / passes;
  }
};

// One pass of the sort: reads entries by `read(i, entry&)` (false: no entry) and moves them to `to`, stable.
template <class Read>
int64_t move_by_digit(const Parallel& parallel, int64_t count, int64_t parts, int shift, int bits, uint32_t* counts,
                      Entry* to, Read read) {
  const int64_t values = int64_t(1) << bits;
  const uint32_t mask = static_cast<uint32_t>(values - 1);
  const int64_t stride = values + kCacheLine / 4;  // parts do not share cache lines
  for_each(parallel, parts, [&](int64_t part) {
    uint32_t* here = counts + part * stride;
    std::fill(here, here + values, 0u);
    const int64_t end = part_begin(count, parts, part + 1);
    Entry entry;
    for (int64_t i = part_begin(count, parts, part); i < end; ++i) {
      if (read(i, entry)) ++here[(entry.row >> shift) & mask];
    }
  });
  uint32_t total = 0;
  for (int64_t value = 0; value < values; ++value) {
    for (int64_t part = 0; part < parts; ++part) {
      total += std::exchange(counts[part * stride + value], total);
    }
  }
  for_each(parallel, parts, [&](int64_t part) {
    uint32_t* here = counts + part * stride;
    const int64_t end = part_begin(count, parts, part + 1);
    Entry entry;
    for (int64_t i = part_begin(count, parts, part); i < end; ++i) {
      if (read(i, entry)) to[here[(entry.row >> shift) & mask]++] = entry;
    }
  });
  return total;
}

}  // namespace

SortedEntries sort_entries(const UpdateCall& call, const Parallel& parallel, Workspace& workspace) {
  const Digits digits(call.num_rows, call.count);
  const int64_t parts = call.count < 4096 ? 1 : parallel.threads;
  Entry* from = workspace.entries.reserve<Entry>(call.count);
  Entry* to = workspace.sorted.reserve<Entry>(call.count);
  uint32_t* counts = workspace.counts.reserve<uint32_t>(parts * ((int64_t(1) << digits.bits) + kCacheLine / 4));

  const auto num_rows = static_cast<uint64_t>(call.num_rows);
  const bool by_bag = call.gains == nullptr && call.bags != nullptr;
  int64_t count = move_by_digit(parallel, call.count, parts, 0, digits.bits, counts, to, [&](int64_t i, Entry& entry) {
    // A negative id is a huge unsigned one.
    entry = {static_cast<uint32_t>(call.ids[i]), static_cast<uint32_t>(by_bag ? call.bags[i] : i)};
    return entry.row < num_rows;
  });
  for (int pass = 1; pass < digits.passes; ++pass) {
    std::swap(from, to);
    move_by_digit(parallel, count, parts, pass * digits.bits, digits.bits, counts, to, [&](int64_t i, Entry& entry) {
      entry = from[i];
      return true;
    });
  }
  return {to, count};
}

}  // namespace sparrow
