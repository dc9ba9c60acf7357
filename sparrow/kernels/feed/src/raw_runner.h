// `RawRunner`: ids of dynamic tables, 64 bits each. A single one has two words, and a bit where there is one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "id_runner.h"
#include "key_runner.h"

namespace sparrow {

class RawRunner : public IdRunner {
 public:
  explicit RawRunner(const Work& work) : IdRunner(work), read_(work.scratch) {}

  bool run(int64_t begin, int64_t end) override {
    const Column& column = *columns_[0];
    const Leaf& leaf = column.entries;
    if (!step_.is_ragged && leaf.type == 'l' && leaf.words.empty() && leaf.valid == nullptr && !column.is_list) {
      return singles(static_cast<const int64_t*>(leaf.data) + leaf.offset + begin, nullptr, end - begin);
    }
    if (!flattened(begin, end)) return false;
    const int64_t count = flat_.entries.count;
    if (static_cast<int64_t>(ids_.size()) < count + 1) ids_.resize(count + 1);
    ids_[0] = step_.raw_default;
    const uint8_t seen = read_(flat_.entries, step_.as_integer, ids_.data() + 1, states_.data());
    for (int64_t i = 0; i < count; ++i) rows_[i] = static_cast<int32_t>(i + 1);  // places of ids, instead of rows
    if (!without_states(seen, begin)) return false;
    if (step_.is_ragged) return bags_of_ids(seen, begin, end);
    if (seen == GOOD) return singles(ids_.data() + 1, nullptr, count);
    for (int64_t i = 0; i < count; ++i) {
      states_[i] = rows_[i] >= 0;
      ids_[i + 1] = rows_[i] >= 0 ? ids_[rows_[i]] : 0;
    }
    return singles(ids_.data() + 1, states_.data(), count);
  }

 private:
  // `there`: 1 where there is an id; null: everywhere.
  bool singles(const int64_t* ids, const uint8_t* there, int64_t count) {
    int32_t *low = out(0), *high = out(1);
    for (int64_t i = 0; i < count; ++i) low[i] = static_cast<int32_t>(ids[i]);
    for (int64_t i = 0; i < count; ++i) high[i] = static_cast<int32_t>(ids[i] >> 32);
    set_bits(there, count);
    return true;
  }

  // Other steps have the other bits of these words.
  void set_bits(const uint8_t* there, int64_t count) {
    if (there == nullptr && count <= set_) return;
    uint32_t* bits = reinterpret_cast<uint32_t*>(tile_.column(step_.there / 32));
    const uint32_t own = uint32_t{1} << step_.there % 32;
    for (int64_t i = 0; i < count; ++i) bits[i] = there == nullptr || there[i] ? bits[i] | own : bits[i] & ~own;
    set_ = there == nullptr ? count : 0;
  }

  // Bags of places, and then of the ids there.
  bool bags_of_ids(uint8_t seen, int64_t begin, int64_t end) {
    // Every number may be an id: none can stand for one that is missing, and keeps its place.
    if (step_.keeps_missing && !flat_.is_single && (seen & MISSING) && step_.default_row == NO_ROW) return false;
    if (!pooled(begin, end)) return false;
    int64_t count = 0;
    for (int64_t row = 0; row < end - begin; ++row) count += lengths()[row];
    if (static_cast<int64_t>(kept_.size()) < count + SPARE) kept_.resize(count + SPARE);
    for (int64_t i = 0; i < count; ++i) kept_[i] = ids_[std::max(bag_rows[i], 0)];  // of a bad row: any
    bag_rows = reinterpret_cast<const int32_t*>(kept_.data());
    return true;
  }

  int64_t set_ = 0;  // rows of the tile from the first on whose bit was set by an earlier block
  std::vector<int64_t> ids_, kept_;  // of the entries, behind the default; and of the bags
  Keys read_;
};

}  // namespace sparrow
