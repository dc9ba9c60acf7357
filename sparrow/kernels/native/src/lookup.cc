// The pooled lookup: each bag's rows, times their gains, summed in the order of the entries.
#include "lookup.h"

#include <algorithm>

#include "half.h"
#include "parallel.h"
#include "prefetch.h"

namespace sparrow {
namespace {

constexpr int64_t kRowsAhead = 12;  // entries between asking for a row and reading it
constexpr int64_t kPiecesPerThread = 16;
constexpr int64_t kSmallestPiece = 32;  // bags

template <class Type>
class Rows {
  using Storage = typename Type::Storage;

 public:
  explicit Rows(const LookupCall& call) : call_(call), table_(static_cast<const Storage*>(call.table)) {}

  // Bags [begin, end) into `out`.
  void pool(int64_t begin, int64_t end) const {
    const int64_t last = entries_end(end - 1);
    for (int64_t i = entries_begin(begin); i < std::min(entries_begin(begin) + kRowsAhead, last); ++i) fetch(i);
    for (int64_t bag = begin; bag < end; ++bag) {
      float* __restrict out = call_.out + bag * call_.dim;
      bool empty = true;
      const int64_t bag_end = entries_end(bag);
      for (int64_t i = entries_begin(bag); i < bag_end; ++i) {
        if (i + kRowsAhead < last) fetch(i + kRowsAhead);
        if (!in_range(i)) continue;
        const Storage* __restrict row = table_ + int64_t(call_.ids[i]) * call_.dim;
        if (call_.gains != nullptr) {
          empty ? add<true, true>(out, row, call_.gains[i]) : add<false, true>(out, row, call_.gains[i]);
        } else {
          empty ? add<true, false>(out, row, 1.0f) : add<false, false>(out, row, 1.0f);
        }
        empty = false;
      }
      if (empty) std::fill(out, out + call_.dim, 0.0f);
    }
  }

 private:
  template <bool kFirst, bool kGain>
  void add(float* __restrict out, const Storage* __restrict row, float gain) const {
    for (int32_t c = 0; c < call_.dim; ++c) {
      const float value = kGain ? gain * Type::load(row[c]) : Type::load(row[c]);
      out[c] = kFirst ? value : out[c] + value;
    }
  }

  bool in_range(int64_t i) const { return static_cast<uint32_t>(call_.ids[i]) < static_cast<uint64_t>(call_.num_rows); }

  void fetch(int64_t i) const {
    if (in_range(i)) prefetch<false>(table_ + int64_t(call_.ids[i]) * call_.dim, call_.dim * sizeof(Storage));
  }

  // Whatever the offsets hold, entries stay within [0, count).
  int64_t entries_begin(int64_t bag) const {
    return call_.offsets == nullptr ? bag : std::clamp<int64_t>(call_.offsets[bag], 0, call_.count);
  }
  int64_t entries_end(int64_t bag) const { return call_.offsets == nullptr ? bag + 1 : entries_begin(bag + 1); }

  const LookupCall& call_;
  const Storage* table_;
};

template <class Type>
void lookup_rows(const LookupCall& call, const Parallel& parallel) {
  const Rows<Type> rows(call);
  const int64_t wanted = parallel.threads > 1 ? parallel.threads * kPiecesPerThread : 1;
  const int64_t pieces = std::clamp<int64_t>(call.num_bags / kSmallestPiece, 1, wanted);
  for_each(parallel, pieces, [&](int64_t piece) {
    const int64_t begin = part_begin(call.num_bags, pieces, piece), end = part_begin(call.num_bags, pieces, piece + 1);
    if (begin < end) rows.pool(begin, end);
  });
}

}  // namespace

void lookup(const LookupCall& call, const Parallel& parallel) {
  if (call.num_bags == 0 || call.dim == 0) return;
  switch (call.type) {
    case TableType::kFloat32:
      return lookup_rows<Float32>(call, parallel);
    case TableType::kBfloat16:
      return lookup_rows<Bfloat16>(call, parallel);
    case TableType::kFloat16:
      return lookup_rows<Float16>(call, parallel);
  }
}

}  // namespace sparrow
