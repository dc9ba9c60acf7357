// The fused update: sort the entries by row, sum each row's gradients, apply the row step once, in place.
#include <algorithm>

#include "sort.h"
#include "sum_rows.h"

namespace sparrow {
namespace {

constexpr int64_t kRowsAhead = 12;     // entries between asking for a row and updating it
constexpr int64_t kGradsAhead = 8;     // the same for a bag's gradient
constexpr int64_t kPiecesPerThread = 16;
constexpr int64_t kSmallestPiece = 64;  // entries

// The work of one thread on a piece of the sorted entries.
class Piece {
 public:
  Piece(const UpdateCall& call, const Entry* entries, int64_t begin, int64_t end, float* memory)
      : call_(call), entries_(entries), begin_(begin), end_(end), sum_(memory), scratch_(memory + scratch_stride(call.dim)) {}

  // Numbers of float that `memory` must hold.
  static int64_t memory(const UpdateCall& call) { return (1 + call.buffers) * scratch_stride(call.dim); }

  void run() {
    for (int64_t i = begin_; i < std::min(begin_ + kRowsAhead, end_); ++i) prefetch_row(i);
    for (int64_t i = begin_; i < std::min(begin_ + kGradsAhead, end_); ++i) prefetch_grad(i);
    for (int64_t first = begin_; first < end_;) {
      const uint32_t row = entries_[first].row();
      int64_t last = first;
      for (; last < end_ && entries_[last].row() == row; ++last) {
        if (last + kRowsAhead < end_) prefetch_row(last + kRowsAhead);
        if (last + kGradsAhead < end_) prefetch_grad(last + kGradsAhead);
      }
      apply(row, sum(first, last));
      first = last;
    }
  }

 private:
  void prefetch_row(int64_t i) const {
    const int64_t row = entries_[i].row();
    if (i > begin_ && entries_[i - 1].row() == row) return;
    prefetch<true>(call_.table + row * call_.row_bytes, call_.row_bytes);
    for (int32_t k = 0; k < call_.num_slots; ++k) {
      const int64_t width = call_.slot_widths[k];
      prefetch<true>(call_.slots[k] + row * width, width * sizeof(float));
    }
    if (call_.logical_rows != nullptr) prefetch<false>(call_.logical_rows + row, sizeof(int32_t));
  }

  void prefetch_grad(int64_t i) const {
    if (const float* grad = bag_grad(entries_[i])) prefetch<false>(grad, call_.dim * sizeof(float));
  }

  // The gradient of the entry's bag; null for a bag that does not exist.
  const float* bag_grad(const Entry& entry) const {
    int64_t bag = entry.source();
    if (call_.gains != nullptr && call_.bags != nullptr) bag = static_cast<uint32_t>(call_.bags[bag]);
    return bag < call_.num_bags ? call_.bag_grads + bag * call_.dim : nullptr;
  }

  // A row's entries, as `sum_rows` reads them.
  template <bool kWithGains>
  struct Grads {
    static constexpr bool kGains = kWithGains;
    const Piece& piece;

    const float* row(int64_t i) const { return piece.bag_grad(piece.entries_[i]); }
    float gain(int64_t i) const { return piece.call_.gains[piece.entries_[i].source()]; }
    void fetch_ahead(int64_t) const {}  // the walk over the entries has done it
  };

  // The row's gradient: its entries' in the order they came, one after the other.
  const float* sum(int64_t first, int64_t last) {
    if (call_.gains != nullptr) {
      sum_rows<Float32>(Grads<true>{*this}, first, last, call_.dim, sum_);
      return sum_;
    }
    if (last - first == 1) {
      if (const float* only = bag_grad(entries_[first])) return only;
    }
    sum_rows<Float32>(Grads<false>{*this}, first, last, call_.dim, sum_);
    return sum_;
  }

  void apply(int64_t row, const float* grad) {
    while (table_ + 1 < call_.num_tables && call_.first_rows[table_ + 1] <= row) ++table_;  // rows ascend
    float* slots[kMaxSlots];
    for (int32_t k = 0; k < call_.num_slots; ++k) slots[k] = call_.slots[k] + row * call_.slot_widths[k];
    const auto index = call_.logical_rows != nullptr ? call_.logical_rows[row]
                                                     : static_cast<int32_t>(row - call_.first_rows[table_]);
    call_.step({call_.table + row * call_.row_bytes, grad, slots, call_.scalars + int64_t(table_) * call_.num_scalars,
                call_.seeds[table_], index, call_.dim, scratch_});
  }

  const UpdateCall& call_;
  const Entry* entries_;
  const int64_t begin_, end_;
  float* sum_;
  float* scratch_;
  int32_t table_ = 0;
};

}  // namespace

void update(const UpdateCall& call, const Parallel& parallel) {
  if (call.count == 0 || call.num_rows == 0 || call.dim == 0) return;
  WorkspaceLease lease;
  Workspace& workspace = *lease;
  const SortedEntries sorted = sort_entries(call, parallel, workspace);
  if (sorted.count == 0) return;

  const int64_t wanted = parallel.threads > 1 ? parallel.threads * kPiecesPerThread : 1;
  const int64_t pieces = std::clamp<int64_t>(sorted.count / kSmallestPiece, 1, wanted);
  const int64_t memory = Piece::memory(call);
  float* scratch = workspace.threads.reserve<float>(pieces * memory);

  // A piece begins where a row begins: the first entry of the row that is nearest after an equal cut.
  auto boundary = [&](int64_t piece) {
    if (piece == 0 || piece == pieces) return piece == 0 ? int64_t(0) : sorted.count;
    const Entry* cut = sorted.data + part_begin(sorted.count, pieces, piece);
    return std::upper_bound(cut, sorted.data + sorted.count, (cut - 1)->row(),
                            [](uint32_t row, const Entry& entry) { return row < entry.row(); }) -
           sorted.data;
  };
  for_each(parallel, pieces, [&](int64_t piece) {
    const int64_t begin = boundary(piece), end = boundary(piece + 1);
    if (begin < end) Piece(call, sorted.data, begin, end, scratch + piece * memory).run();
  });
}

}  // namespace sparrow
