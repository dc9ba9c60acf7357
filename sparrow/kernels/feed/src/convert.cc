// From columns to rows of 32-bit words: the conversions of sparrow/data/features, without the interpreter. Unusual values
// are left to the reference in NumPy: the answer is then ASK_REFERENCE, and nothing else counts.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "arrow.h"
#include "id_runner.h"
#include "key_runner.h"
#include "number_runner.h"
#include "parquet.h"
#include "pool.h"
#include "raw_runner.h"
#include "scratch.h"
#include "runner.h"
#include "step.h"
#include "tails.h"
#include "text.h"
#include "tile.h"
#include "versions.h"

namespace sparrow {

extern "C" {

// Where the rows go. Mirrored by sparrow/kernels/feed/conversion.py: every field has 8 bytes.
struct Target {
  int64_t rows;
  int32_t* words;    // (rows, width)
  int64_t width;
  uint8_t* bad;      // (rows,), set where a row cannot be used
  double** later;    // by step: the numbers that are yet to be transformed; or null
  int64_t** places;  // by step: their places
  int64_t* starts;   // (rows + 1,): where the tail of each row begins; null where there are no bags
  int64_t checks_labels;  // whether a label outside its range is for the reference to explain
  // Filled here:
  int64_t* num_later;  // by step: the number of these
  int32_t* tail;      // from the pool: the bags of each row, in the order of the steps; weights follow their ids
  int64_t tail_size;  // bytes
  int64_t decoding;   // nanoseconds
};

}  // extern "C"

namespace {

enum Answer : int64_t { ALL_GOOD = 0, SOME_BAD = 1, ASK_REFERENCE = 2 };

struct Released {  // the arrays are given back, however this ends
  ArrowArray* array;
  ArrowSchema* schema;
  ~Released() {
    if (array->release != nullptr) array->release(array);
    if (schema->release != nullptr) schema->release(schema);
  }
};

// Whether the labels of a block are in the range that their losses take.
bool are_in_range(const Step& step, const Tile& tile, int64_t rows) {
  const float most = static_cast<float>(step.most);
  bool is_in = true;
  for (int64_t k = 0; k < step.dim; ++k) {
    const float* labels = reinterpret_cast<const float*>(tile.column(step.word + k));
    for (int64_t i = 0; i < rows; ++i) {
      is_in &= labels[i] >= 0 && labels[i] <= most && (!step.are_integers || labels[i] == std::floor(labels[i]));
    }
  }
  return is_in;
}

std::unique_ptr<Runner> runner_of(const Work& work) {
  switch (work.step.kind) {
    case IDS:
      if (work.step.mapping == RAW) return std::make_unique<RawRunner>(work);
      return std::make_unique<IdRunner>(work);
    case CROSS: return std::make_unique<CrossRunner>(work);
    case KEY: return std::make_unique<KeyRunner>(work);
    default: return std::make_unique<NumberRunner>(work);
  }
}

// `next(begin)` returns the number of rows in the block that begins there, once the columns hold it; 0: there are no
// more; -1: the reference must look.
template <class Next>
int64_t convert(const Step* steps, int64_t num_steps, std::vector<Column>& columns,
                const std::vector<bool>& readable, Scratch& scratch, Target& target, Next&& next) {
  Tile tile(target.width, scratch);
  std::vector<std::unique_ptr<Runner>> runners;
  for (int64_t i = 0; i < num_steps; ++i) {
    for (int64_t k = 0; k < steps[i].num_columns; ++k) {
      if (!readable[steps[i].columns[k]]) return ASK_REFERENCE;
    }
    target.num_later[i] = 0;
    const Later later{target.later[i], target.places[i], target.num_later + i};
    runners.push_back(runner_of({steps[i], columns, tile, target.bad, later, scratch}));
  }
  Tails tails(runners, columns, target.starts);
  int64_t begin = 0;
  for (int64_t count; (count = next(begin)) != 0; begin += count) {
    const int64_t end = begin + count;
    if (count < 0 || end > target.rows) return ASK_REFERENCE;
    for (auto& runner : runners) {
      if (!runner->run(begin, end)) return ASK_REFERENCE;
    }
    for (int64_t i = 0; i < num_steps && target.checks_labels; ++i) {
      if (steps[i].has_range && !are_in_range(steps[i], tile, count)) return ASK_REFERENCE;
    }
    if (target.starts != nullptr) tails.add(begin, end);
    tile.write(end - begin, target.words + begin * target.width);
  }
  target.rows = begin;
  if (target.starts != nullptr) {
    target.starts[target.rows] = tails.used();
    target.tail_size = tails.size();
    target.tail = tails.release();
  }
  return std::find(target.bad, target.bad + target.rows, 1) == target.bad + target.rows ? ALL_GOOD : SOME_BAD;
}

// Blocks of columns that are there as a whole.
class Whole {
 public:
  Whole(const Target& target, const std::vector<Column>& columns) : rows_(target.rows) {
    int64_t words = target.rows * target.width;
    for (const Column& column : columns) words += column.is_list ? column.entries.length : 0;
    const int64_t bytes = words * static_cast<int64_t>(sizeof(int32_t)) / std::max<int64_t>(target.rows, 1);
    while (block_ > LEAST_BLOCK && block_ * bytes > BLOCK_BYTES) block_ /= 2;
  }

  int64_t operator()(int64_t begin) const { return std::min(block_, rows_ - begin); }

 private:
  int64_t rows_, block_ = BLOCK;
};

// Empty scratch memory of this thread.
Scratch& own_scratch() {
  thread_local Scratch scratch;
  scratch.reset();
  return scratch;
}

}  // namespace
}  // namespace sparrow

// Converts a record batch of Arrow, and gives it back.
SPARROW_API int64_t sparrow_feed_convert(const sparrow::Step* steps, int64_t num_steps, ArrowArray* array,
                                         ArrowSchema* schema, sparrow::Target* target) {
  using namespace sparrow;
  const Released released{array, schema};
  try {
    std::vector<Column> columns(schema->n_children);
    std::vector<bool> readable(schema->n_children);
    for (int64_t i = 0; i < schema->n_children; ++i) {
      readable[i] = read_column(*schema->children[i], *array->children[i], columns[i]);
    }
    if (array->offset != 0) return ASK_REFERENCE;
    return convert(steps, num_steps, columns, readable, own_scratch(), *target, Whole(*target, columns));
  } catch (const std::bad_alloc&) {
    return ASK_REFERENCE;
  }
}

// Decodes the columns of a Parquet row group, and converts them.
SPARROW_API int64_t sparrow_feed_decode(const sparrow::Step* steps, int64_t num_steps, const EncodedColumn* encoded,
                                        int64_t num_columns, sparrow::Target* target) {
  using namespace sparrow;
  Scratch& scratch = own_scratch();
  const auto began = std::chrono::steady_clock::now();
  try {
    std::vector<Column> columns(num_columns);
    for (int64_t i = 0; i < num_columns; ++i) {
      if (!ColumnDecoder(encoded[i], target->rows, scratch, columns[i]).decode()) return ASK_REFERENCE;
    }
    target->decoding = std::chrono::nanoseconds(std::chrono::steady_clock::now() - began).count();
    const std::vector<bool> readable(num_columns, true);
    return convert(steps, num_steps, columns, readable, scratch, *target, Whole(*target, columns));
  } catch (const std::bad_alloc&) {
    return ASK_REFERENCE;
  }
}

// Parses delimited text, and converts it. The rows of the target are the most that there may be; their number is set.
SPARROW_API int64_t sparrow_feed_parse(const sparrow::Step* steps, int64_t num_steps, const EncodedText* text,
                                       sparrow::Target* target) {
  using namespace sparrow;
  Scratch& scratch = own_scratch();
  int64_t parsing = 0;
  try {
    std::vector<Column> columns(text->num_wanted);
    TextBlocks blocks(*text, scratch, columns);
    if (!blocks.is_known()) return ASK_REFERENCE;
    const auto next = [&](int64_t begin) {
      const auto began = std::chrono::steady_clock::now();
      const int64_t rows = blocks.next(begin);
      parsing += std::chrono::nanoseconds(std::chrono::steady_clock::now() - began).count();
      return rows;
    };
    const std::vector<bool> readable(columns.size(), true);
    const int64_t answer = convert(steps, num_steps, columns, readable, scratch, *target, next);
    target->decoding = parsing;
    return answer;
  } catch (const std::bad_alloc&) {
    return ASK_REFERENCE;
  }
}
