// `Tails`: the bags of all rows, row by row.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "pool.h"
#include "runner.h"

namespace sparrow {

// The bags of one step in a block: their lengths, their ids one after the other, their weights or null, and whether an
// id has two words.
struct Bags {
  const int32_t* lengths;
  const int32_t* rows;
  const float* weights;
  bool is_wide;
};

// Writes the bags of `rows` rows, and where those of each begin, `used` words being there before; returns the words that
// are there then. Up to SPARE words of any value are written behind: in tile.cc.
int64_t write_tails(Bags* bags, int64_t count, int64_t rows, int32_t* words, int64_t used, int64_t* starts);

class Tails {
 public:
  Tails(std::vector<std::unique_ptr<Runner>>& runners, const std::vector<Column>& columns, int64_t* starts)
      : starts_(starts) {
    int64_t entries = 0;
    for (auto& runner : runners) {
      if (!runner->step().is_ragged) continue;
      steps_.push_back(runner.get());
      const Column& column = columns[runner->step().columns[0]];
      entries += column.entries.length * (1 + runner->step().is_weighted + runner->is_wide());
    }
    bags_.resize(steps_.size());
    if (!steps_.empty()) memory_.grown(entries + 2 * SPARE, 0);  // as many as there usually are
  }

  // The block of rows that the runners have converted last.
  void add(int64_t begin, int64_t end) {
    int64_t count = 0;
    for (size_t i = 0; i < steps_.size(); ++i) {
      const Runner& runner = *steps_[i];
      const bool is_weighted = runner.step().is_weighted;
      bags_[i] = {runner.lengths(), runner.bag_rows, is_weighted ? runner.bag_weights : nullptr, runner.is_wide()};
      int64_t own = 0;
      for (int64_t row = 0; row < end - begin; ++row) own += bags_[i].lengths[row];
      count += own * (1 + is_weighted + runner.is_wide());
    }
    int32_t* words = memory_.grown(used_ + count + 2 * SPARE, used_);
    used_ = write_tails(bags_.data(), bags_.size(), end - begin, words, used_, starts_ + begin);
  }

  int64_t used() const { return used_; }
  int64_t size() const { return memory_.size(); }  // bytes
  int32_t* release() { return memory_.release(); }

 private:
  int64_t* starts_;
  std::vector<Runner*> steps_;
  std::vector<Bags> bags_;
  Pooled memory_;
  int64_t used_ = 0;
};

}  // namespace sparrow
