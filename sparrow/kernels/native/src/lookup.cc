// The pooled lookup: each bag's rows, times their gains, summed in the order of the entries.
#include <algorithm>

#include "parallel.h"
#include "prefetch.h"
#include "sum_rows.h"

namespace sparrow {
namespace {

constexpr int64_t kRowsAhead = 16;  // entries between asking for a row and reading it
constexpr int64_t kPiecesPerThread = 16;
constexpr int64_t kSmallestPiece = 32;  // bags

// Activations above kPastCacheBytes bypass the caches. A reader then finds them in memory, where most of them would be by
// then anyway.
constexpr int64_t kPastCacheBytes = int64_t(10) << 20;

bool writes_past_cache(const LookupCall& call) {
  const bool aligned = reinterpret_cast<uintptr_t>(call.out) % 16 == 0 && call.dim % kLanes == 0;
  return aligned && call.num_bags * call.dim * int64_t(sizeof(float)) >= kPastCacheBytes;
}

template <class Type, bool kWithGains>
class TableRows {
  using Storage = typename Type::Storage;

 public:
  static constexpr bool kGains = kWithGains;

  // Rows are fetched ahead up to entry `last`.
  TableRows(const LookupCall& call, int64_t last)
      : table_(static_cast<const Storage*>(call.table)),
        num_rows_(static_cast<uint64_t>(call.num_rows)),
        dim_(call.dim),
        ids_(call.ids),
        gains_(call.gains),
        last_(last) {}

  const Storage* row(int64_t i) const {
    const auto id = static_cast<uint32_t>(ids_[i]);  // a negative id is a huge unsigned one
    return id < num_rows_ ? table_ + int64_t(id) * dim_ : nullptr;
  }
  float gain(int64_t i) const { return gains_[i]; }
  void fetch(int64_t i) const {
    if (const Storage* next = row(i)) prefetch<false>(next, dim_ * sizeof(Storage));
  }
  void fetch_ahead(int64_t i) const {
    if (i + kRowsAhead < last_) fetch(i + kRowsAhead);
  }

 private:
  const Storage* table_;
  uint64_t num_rows_;
  int64_t dim_;
  const int32_t* ids_;
  const float* gains_;
  int64_t last_;
};

// The first of a bag's entries. For any offsets, entries stay within [0, count).
int64_t bag_begin(const LookupCall& call, int64_t bag) {
  return call.offsets == nullptr ? bag : std::clamp<int64_t>(call.offsets[bag], 0, call.count);
}

template <class Type, bool kWithGains, Store kStore>
void pool_bags(const LookupCall& call, int64_t begin, int64_t end) {
  const int64_t first = bag_begin(call, begin), last = bag_begin(call, end);
  const TableRows<Type, kWithGains> rows(call, last);
  for (int64_t i = first; i < std::min(first + kRowsAhead, last); ++i) rows.fetch(i);
  for (int64_t bag = begin; bag < end; ++bag) {
    sum_rows<Type, kStore>(rows, bag_begin(call, bag), bag_begin(call, bag + 1), call.dim, call.out + bag * call.dim);
  }
  finish_stores<kStore>();
}

template <class Type>
void pool_all(const LookupCall& call, const Parallel& parallel) {
  const bool past_cache = writes_past_cache(call);
  const auto pool = call.gains != nullptr
                        ? (past_cache ? pool_bags<Type, true, Store::kPastCache> : pool_bags<Type, true, Store::kUsual>)
                        : (past_cache ? pool_bags<Type, false, Store::kPastCache> : pool_bags<Type, false, Store::kUsual>);
  const int64_t wanted = parallel.threads > 1 ? parallel.threads * kPiecesPerThread : 1;
  const int64_t pieces = std::clamp<int64_t>(call.num_bags / kSmallestPiece, 1, wanted);
  for_each(parallel, pieces, [&](int64_t piece) {
    pool(call, part_begin(call.num_bags, pieces, piece), part_begin(call.num_bags, pieces, piece + 1));
  });
}

}  // namespace

void lookup(const LookupCall& call, const Parallel& parallel) {
  if (call.num_bags == 0 || call.dim == 0) return;
  switch (call.type) {
    case TableType::kFloat32:
      return pool_all<Float32>(call, parallel);
    case TableType::kBfloat16:
      return pool_all<Bfloat16>(call, parallel);
    case TableType::kFloat16:
      return pool_all<Float16>(call, parallel);
  }
}

}  // namespace sparrow
