// Entries sorted by row: a stable radix sort, least digit first, on all threads. The result, and with it the order
// in which a row's gradients are summed, does not depend on the number of threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "parallel.h"
#include "prefetch.h"
#include "workspace.h"

namespace sparrow {

// One lookup of a row, in one word: the row in the upper half, its source in the lower half. The source is the entry's
// number where there are gains, else its bag.
struct Entry {
  uint64_t word;

  uint32_t row() const { return static_cast<uint32_t>(word >> 32); }
  uint32_t source() const { return static_cast<uint32_t>(word); }
};

struct SortedEntries {
  const Entry* data;
  int64_t count;
};

constexpr int kMaxDigitBits = 12;  // counters of one digit stay near the processor
constexpr int64_t kSmallestPart = 4096;

inline int bit_width(uint64_t x) {
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

// The entries of the first pass: ids, without the ones that are not rows.
struct Ids {
  const int32_t* ids;
  const int32_t* sources;  // or null: the entry's number
  uint64_t num_rows;

  bool read(int64_t i, uint64_t* word) const {
    const auto row = static_cast<uint32_t>(ids[i]);  // a negative id is a huge unsigned one
    *word = uint64_t(row) << 32 | static_cast<uint32_t>(sources != nullptr ? sources[i] : i);
    return row < num_rows;
  }
};

// And afterwards: the entries as the pass before left them.
struct Words {
  const uint64_t* words;

  bool read(int64_t i, uint64_t* word) const {
    *word = words[i];
    return true;
  }
};

// One pass of the sort: moves the entries to `to`, ordered by the digit that begins at bit `shift`, stable.
template <class From>
int64_t move_by_digit(const Parallel& parallel, const From& source, int64_t count, int64_t parts, int shift, int bits,
                      uint32_t* all_counts, uint64_t* to) {
  const int64_t values = int64_t(1) << bits;
  const int64_t stride = values + kCacheLine / 4;  // parts do not share cache lines
  for_each(parallel, parts, [=](int64_t part) {
    const From from = source;
    uint32_t* __restrict counts = all_counts + part * stride;
    const uint64_t mask = values - 1;
    std::fill(counts, counts + values, 0u);
    const int64_t end = part_begin(count, parts, part + 1);
    uint64_t word;
    for (int64_t i = part_begin(count, parts, part); i < end; ++i) {
      if (from.read(i, &word)) ++counts[(word >> shift) & mask];
    }
  });
  uint32_t total = 0;
  for (int64_t value = 0; value < values; ++value) {
    for (int64_t part = 0; part < parts; ++part) total += std::exchange(all_counts[part * stride + value], total);
  }
  for_each(parallel, parts, [=](int64_t part) {
    const From from = source;
    uint32_t* __restrict counts = all_counts + part * stride;
    uint64_t* __restrict out = to;
    const uint64_t mask = values - 1;
    const int64_t end = part_begin(count, parts, part + 1);
    uint64_t word;
    for (int64_t i = part_begin(count, parts, part); i < end; ++i) {
      if (from.read(i, &word)) out[counts[(word >> shift) & mask]++] = word;
    }
  });
  return total;
}

// The entries whose id is a row of the table, ascending by row, equal rows in the order they came.
inline SortedEntries sort_entries(const UpdateCall& call, const Parallel& parallel, Workspace& workspace) {
  const Digits digits(call.num_rows, call.count);
  const int64_t parts = std::clamp<int64_t>(call.count / kSmallestPart, 1, parallel.threads);
  uint64_t* from = workspace.entries.reserve<uint64_t>(call.count);
  uint64_t* to = workspace.sorted.reserve<uint64_t>(call.count);
  uint32_t* counts = workspace.counts.reserve<uint32_t>(parts * ((int64_t(1) << digits.bits) + kCacheLine / 4));

  const Ids ids{call.ids, call.gains == nullptr ? call.bags : nullptr, static_cast<uint64_t>(call.num_rows)};
  const int64_t count = move_by_digit(parallel, ids, call.count, parts, 32, digits.bits, counts, to);
  for (int pass = 1; pass < digits.passes; ++pass) {
    std::swap(from, to);
    move_by_digit(parallel, Words{from}, count, parts, 32 + pass * digits.bits, digits.bits, counts, to);
  }
  return {reinterpret_cast<const Entry*>(to), count};
}

}  // namespace sparrow
