// Entries sorted by row: a stable radix sort, least digit first, on all threads. The result, and with it the order
// in which a row's gradients are summed, does not depend on the number of threads.
#pragma once

#include <cstdint>

#include "parallel.h"
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

// The entries whose id is a row of the table, ascending by row, equal rows in the order they came.
SortedEntries sort_entries(const UpdateCall& call, const Parallel& parallel, Workspace& workspace);

}  // namespace sparrow
