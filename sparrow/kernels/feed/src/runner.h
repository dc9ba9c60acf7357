// `Runner`: one conversion, a block of rows at a time.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "arrow.h"
#include "entries.h"
#include "scratch.h"
#include "step.h"
#include "tile.h"

namespace sparrow {

constexpr int64_t SPARE = 16;  // entries behind every block of bags, which may be read

// Numbers that NumPy transforms later, one after the other; of all rows.
struct Later {
  double* values;   // null: the step transforms none
  int64_t* places;  // row * dim + k, in ascending order
  int64_t* count;
};

// The input and output of a conversion. `bad` is of all rows, the tile of those of the block.
struct Work {
  const Step& step;
  std::vector<Column>& columns;
  Tile& tile;
  uint8_t* bad;
  Later later;
  Scratch& scratch;
};

class Runner {
 public:
  explicit Runner(const Work& work)
      : step_(work.step), tile_(work.tile), bad_(work.bad), later_(work.later) {
    for (int64_t i = 0; i < step_.num_columns; ++i) columns_.push_back(&work.columns[step_.columns[i]]);
    if (step_.separator != nullptr) separator_ = {step_.separator, static_cast<size_t>(step_.separator_size)};
  }
  virtual ~Runner() = default;
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  // Converts the rows from `begin` on, at most BLOCK. False: the reference must look.
  virtual bool run(int64_t begin, int64_t end) = 0;

  // The bags of the last block, one after the other.
  const int32_t* bag_rows = nullptr;
  const float* bag_weights = nullptr;

  const Step& step() const { return step_; }
  // Whether an id of a bag has two words.
  bool is_wide() const { return step_.mapping == RAW; }
  // The number of ids in each bag of the block.
  const int32_t* lengths() const { return tile_.column(step_.word); }

 protected:
  int32_t* out(int64_t k = 0) { return tile_.column(step_.word + k); }

  // Whether entries are places in a dictionary, of which every one is known to be in it.
  bool has_words() const { return columns_[0]->entries.is_checked; }
  const int32_t* places() const {
    const Leaf& leaf = columns_[0]->entries;
    return static_cast<const int32_t*>(leaf.data) + leaf.offset;
  }

  const Step& step_;
  Tile& tile_;
  uint8_t* bad_;
  Later later_;
  std::vector<Column*> columns_;
  std::string_view separator_;
  Flat flat_;
};

}  // namespace sparrow
