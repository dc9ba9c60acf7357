// Entries sorted by row: a stable radix sort, least digit first, on all threads. The result, and with it the order
// in which a row's gradients are summed, does not depend on the number of threads.
#pragma once

#include <cstdint>

#include "parallel.h"
#include "workspace.h"

namespace sparrow {

// One lookup of a row. `source` is the entry's number where there are gains, else its bag.
struct Entry {
  uint32_t row;
  uint32_t source;
};

struct SortedEntries {
  const Entry* data;
  int64_t count;
};

// The entries whose id is a row of the table, ascending by row, equal rows in the order they came.
SortedEntries sort_entries(const UpdateCall& call, const Parallel& parallel, Workspace& workspace);

}  // namespace sparrow
