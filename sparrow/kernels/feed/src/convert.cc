// From Arrow columns to rows of 32-bit words and ragged bags: the conversions of sparrow/data/features, without the
// interpreter. Unusual values are left to the reference in NumPy: the result is then UNSURE, and nothing else counts.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "arrow.h"
#include "entries.h"
#include "hash.h"

namespace sparrow {
namespace {

constexpr int64_t BLOCK = 256;  // rows that all columns are converted for before the next: their words stay in the cache
constexpr int32_t NO_ROW = -1, BAD_ROW = -3;

enum Kind : int64_t { IDS, NUMBERS, BUCKETS, CROSS, KEY };
enum Mapping : int64_t { NUMBERED, HASHED, VOCABULARY };
enum Answer : int64_t { ALL_GOOD = 0, SOME_BAD = 1, ASK_REFERENCE = 2 };

}  // namespace

extern "C" {

// One input of the model. Mirrored by sparrow/kernels/feed/plan.py: every field has 8 bytes.
struct Step {
  int64_t kind;
  const int64_t* columns;
  int64_t num_columns;
  int64_t word;           // where it begins in a row; -1: it is ragged
  int64_t mapping;        // the kind of ids
  int64_t size;           // rows that ids are numbered or hashed to
  int64_t unknown;        // the row of an unknown id: NO_ROW, BAD_ROW, or one of the table
  int64_t default_row;    // the row of a missing id; BAD_ROW: ask the reference
  int64_t as_integer;     // whether strings are read as integers before they are hashed
  const uint64_t* keys;   // the vocabulary's hash table
  const int32_t* positions;
  uint64_t mask;
  const char* separator;  // null: none
  int64_t separator_size;
  int64_t is_weighted;    // by the second column, or
  const char* weight_separator;
  int64_t weight_separator_size;
  int64_t max_length;     // the longest sequence; 0: not a sequence
  int64_t keep_last;
  int64_t keeps_missing;  // whether a missing id of a list keeps its place in the sequence
  int64_t dim;            // the count of numbers
  double fill;            // where a number is missing
  int64_t is_required;    // whether a missing number makes a bad row
  int64_t is_weight;      // whether a negative number makes a bad row
  int64_t has_limit;      // whether numbers become 1 from `limit` on, and 0 below
  double limit;
  const double* boundaries;
  int64_t num_boundaries;
};

}  // extern "C"

namespace {

struct Ragged {
  std::vector<int32_t> values;
  std::vector<int64_t> offsets{0};
  std::vector<float> weights;
  bool is_weighted = false;
};

// The entries of a block of rows, and their number in each row.
struct Flat {
  Entries entries;
  bool is_single = true;  // one per row: `lengths` is empty
  std::vector<int64_t> lengths;
  std::vector<Span> texts;

  int64_t length(int64_t row) const { return is_single ? 1 : lengths[row]; }
};

Span text_of(const Leaf& leaf, int64_t i, bool& is_damaged) {
  if (leaf.words.empty()) return leaf.text(i);
  if (leaf.is_missing(i)) return {nullptr, 0};
  const int64_t word = leaf.integer(i);
  if (word < 0 || word >= leaf.words[0].length) {
    is_damaged = true;
    return {nullptr, 0};
  }
  return leaf.words[0].text(word);
}

bool holds_texts(const Leaf& leaf) { return leaf.words.empty() ? leaf.is_text() : leaf.words[0].is_text(); }

// False where the reference must look.
bool flatten(const Column& column, std::string_view separator, int64_t begin, int64_t end, Flat& flat) {
  flat.entries = Entries{};
  flat.lengths.clear();
  flat.texts.clear();
  flat.entries.leaf = &column.entries;
  if (column.is_list) {
    flat.is_single = false;
    const int64_t first = column.start(begin), last = column.start(end);
    for (int64_t row = begin; row < end; ++row) {
      const int64_t length = column.start(row + 1) - column.start(row);
      if (length < 0 || (length > 0 && column.is_missing(row))) return false;
      flat.lengths.push_back(length);
    }
    if (first < 0 || last > column.entries.length) return false;
    flat.entries.begin = first;
    flat.entries.count = last - first;
    return true;
  }
  if (separator.empty() || !holds_texts(column.entries)) {
    flat.is_single = true;
    flat.entries.begin = begin;
    flat.entries.count = end - begin;
    return true;
  }
  flat.is_single = false;
  bool is_damaged = false;
  for (int64_t row = begin; row < end; ++row) {
    const Span text = text_of(column.entries, row, is_damaged);
    const size_t before = flat.texts.size();
    if (text.data != nullptr && text.size > 0) {
      std::string_view rest(text.data, text.size);
      for (size_t at; (at = rest.find(separator)) != std::string_view::npos; rest.remove_prefix(at + separator.size())) {
        flat.texts.push_back({rest.data(), static_cast<int64_t>(at)});
      }
      flat.texts.push_back({rest.data(), static_cast<int64_t>(rest.size())});
    }
    flat.lengths.push_back(flat.texts.size() - before);
  }
  flat.texts.push_back({nullptr, 0});  // so that there is an address, also without strings
  flat.entries.leaf = nullptr;
  flat.entries.texts = flat.texts.data();
  flat.entries.count = flat.texts.size() - 1;
  return !is_damaged;
}

// Turns the entries into the strings before the last separator, and fills `after` with the strings after it.
bool cut_weights(std::string_view separator, Flat& flat, std::vector<Span>& after) {
  std::vector<Span> before;
  after.clear();
  bool is_damaged = false;
  for (int64_t i = 0; i < flat.entries.count; ++i) {
    const Span text = flat.entries.texts != nullptr ? flat.entries.texts[i]
                                                    : text_of(*flat.entries.leaf, flat.entries.begin + i, is_damaged);
    const std::string_view whole(text.data == nullptr ? "" : text.data, text.size);
    const size_t at = text.data == nullptr ? std::string_view::npos : whole.rfind(separator);
    if (at == std::string_view::npos) {
      before.push_back(text);
      after.push_back({nullptr, 0});
    } else {
      before.push_back({text.data, static_cast<int64_t>(at)});
      const size_t next = at + separator.size();
      after.push_back({text.data + next, static_cast<int64_t>(whole.size() - next)});
    }
  }
  before.push_back({nullptr, 0});
  after.push_back({nullptr, 0});
  flat.texts = std::move(before);
  flat.entries.texts = flat.texts.data();
  flat.entries.leaf = nullptr;
  return !is_damaged;
}

class Runner {
 public:
  Runner(const Step& step, const std::vector<Column>& columns, int32_t* words, int64_t width, uint8_t* bad,
         double* doubles)
      : step_(step), words_(words), width_(width), bad_(bad), doubles_(doubles), modulo_(step.size) {
    for (int64_t i = 0; i < step.num_columns; ++i) columns_.push_back(&columns[step.columns[i]]);
    if (step.separator != nullptr) separator_ = {step.separator, static_cast<size_t>(step.separator_size)};
    if (step.weight_separator != nullptr) {
      weight_separator_ = {step.weight_separator, static_cast<size_t>(step.weight_separator_size)};
    }
    spread_keys_.resize(columns_.size());
    ragged.is_weighted = step.is_weighted;
  }

  Ragged ragged;

  // False: the reference must look.
  bool run(int64_t begin, int64_t end) {
    switch (step_.kind) {
      case IDS: return ids(begin, end);
      case CROSS: return cross(begin, end);
      case KEY: return key(begin, end);
      default: return number(begin, end);
    }
  }

 private:
  void reserve(int64_t count) {
    if (static_cast<int64_t>(states_.size()) >= count) return;
    states_.resize(count);
    integers_.resize(count);
    keys_.resize(count);
    rows_.resize(count);
    doubles_scratch_.resize(count);
  }

  int32_t* at(int64_t row) { return words_ + row * width_ + step_.word; }

  void put_float(int64_t row, int64_t k, float value) { std::memcpy(at(row) + k, &value, 4); }

  // Row numbers of entries, and states; a bad entry's row does not matter.
  uint8_t map(const Entries& entries, int32_t* rows, uint8_t* states) {
    uint8_t seen;
    if (step_.mapping == NUMBERED) {
      seen = integers(entries, integers_.data(), states);
      const uint64_t size = step_.size;
      bool all_known = true;
      for (int64_t i = 0; i < entries.count; ++i) {
        const bool known = static_cast<uint64_t>(integers_[i]) < size;
        all_known &= known;
        rows[i] = known ? static_cast<int32_t>(integers_[i]) : static_cast<int32_t>(step_.unknown);
      }
      return all_known ? seen : seen | unknown_are_bad(entries.count, rows, states);
    }
    seen = hashes(entries, step_.as_integer, keys_.data(), states);
    if (step_.mapping == HASHED) {
      for (int64_t i = 0; i < entries.count; ++i) rows[i] = static_cast<int32_t>(modulo_(keys_[i]));
      return seen;
    }
    const HashTable table{step_.keys, step_.positions, step_.mask};
    for (int64_t i = 0; i < entries.count; ++i) {
      const int32_t found = table.find(keys_[i]);
      rows[i] = found >= 0 ? found : static_cast<int32_t>(step_.unknown);
    }
    return seen | unknown_are_bad(entries.count, rows, states);
  }

  uint8_t unknown_are_bad(int64_t count, const int32_t* rows, uint8_t* states) {
    uint8_t seen = 0;
    if (step_.unknown != BAD_ROW) return seen;
    for (int64_t i = 0; i < count; ++i) {
      if (rows[i] == BAD_ROW && states[i] == GOOD) seen |= states[i] = BAD;
    }
    return seen;
  }

  // Integers that are row numbers, or are hashed to such, one per row and none missing: most columns are of this form.
  template <class T>
  bool plain_ids(int64_t begin, int64_t end) {
    const T* from = static_cast<const T*>(columns_[0]->entries.data) + columns_[0]->entries.offset;
    int32_t* to = at(begin);
    if (step_.mapping == HASHED) {
      for (int64_t row = begin; row < end; ++row, to += width_) {
        *to = static_cast<int32_t>(modulo_(mix64(static_cast<uint64_t>(static_cast<int64_t>(from[row])))));
      }
      return true;
    }
    const uint64_t size = step_.size;
    const int32_t unknown = static_cast<int32_t>(step_.unknown);
    bool all_known = true;
    for (int64_t row = begin; row < end; ++row, to += width_) {
      const bool known = static_cast<uint64_t>(static_cast<int64_t>(from[row])) < size;
      all_known &= known;
      *to = known ? static_cast<int32_t>(from[row]) : unknown;
    }
    if (all_known || unknown != BAD_ROW) return true;
    to = at(begin);
    for (int64_t row = begin; row < end; ++row, to += width_) {
      if (*to == BAD_ROW) {
        bad_[row] = 1;
        *to = NO_ROW;
      }
    }
    return true;
  }

  bool ids(int64_t begin, int64_t end) {
    const Column& column = *columns_[0];
    const Leaf& leaf = column.entries;
    const bool is_plain = !column.is_list && leaf.words.empty() && leaf.valid == nullptr && step_.max_length == 0;
    if (is_plain && step_.word >= 0 && step_.mapping != VOCABULARY) {
      if (leaf.type == 'i') return plain_ids<int32_t>(begin, end);
      if (leaf.type == 'l') return plain_ids<int64_t>(begin, end);
    }
    if (!flatten(*columns_[0], separator_, begin, end, flat_)) return false;
    if (!weight_separator_.empty() && !cut_weights(weight_separator_, flat_, after_)) return false;
    const int64_t count = flat_.entries.count;
    reserve(std::max(count, largest_dictionary()));
    const uint8_t seen = spread_rows_(flat_.entries, rows_.data(), states_.data(),
                                      [this](const Entries& e, int32_t* r, uint8_t* s) { return map(e, r, s); });
    if (seen & UNSURE) return false;
    if (seen) {
      if ((seen & MISSING) && step_.default_row == BAD_ROW) return false;
      mark(states_.data());
      for (int64_t i = 0; i < count; ++i) {
        if (states_[i] != GOOD) rows_[i] = states_[i] == MISSING ? static_cast<int32_t>(step_.default_row) : NO_ROW;
      }
    }
    if (step_.word < 0) return step_.is_weighted ? weighted_bags(begin, end) : bags(begin, end);
    for (int64_t i = 0; i < count; ++i) *at(begin + i) = rows_[i];
    return true;
  }

  int64_t largest_dictionary() const {
    int64_t largest = 0;
    for (const Column* column : columns_) {
      if (!column->entries.words.empty()) largest = std::max(largest, column->entries.words[0].length);
    }
    return largest;
  }

  // Marks the rows that hold a bad entry.
  void mark(const uint8_t* states) {
    int64_t at = 0;
    const int64_t rows = flat_.is_single ? flat_.entries.count : static_cast<int64_t>(flat_.lengths.size());
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t k = flat_.length(row); k > 0; --k) {
        if (states[at++] & BAD) bad_[first_ + row] = 1;
      }
    }
  }

  // The entries of a row that hold an id, or all, cut to the sequence's length and moved to the front; returns their number.
  int64_t kept(int32_t* rows, int64_t length) const {
    int64_t count = 0;
    const bool keeps_all = step_.keeps_missing && !flat_.is_single;
    for (int64_t k = 0; k < length; ++k) {
      if (keeps_all || rows[k] >= 0) rows[count++] = rows[k];
    }
    if (step_.max_length == 0 || count <= step_.max_length) return count;
    if (step_.keep_last) std::memmove(rows, rows + count - step_.max_length, step_.max_length * sizeof(int32_t));
    return step_.max_length;
  }

  bool bags(int64_t begin, int64_t end) {
    int32_t* from = rows_.data();
    for (int64_t row = begin; row < end; ++row) {
      const int64_t length = flat_.length(row - begin), count = kept(from, length);
      ragged.values.insert(ragged.values.end(), from, from + count);
      if (length == 0 && !flat_.is_single && step_.default_row != NO_ROW) {  // a row without ids has the default
        if (step_.default_row == BAD_ROW) return false;
        ragged.values.push_back(static_cast<int32_t>(step_.default_row));
      }
      ragged.offsets.push_back(ragged.values.size());
      from += length;
    }
    return true;
  }

  bool weighted_bags(int64_t begin, int64_t end) {
    Flat own;
    const Flat* weights = &flat_;
    Entries entries;
    if (!weight_separator_.empty()) {
      entries.texts = after_.data();
      entries.count = flat_.entries.count;
    } else {
      if (!flatten(*columns_[1], separator_, begin, end, own)) return false;
      weights = &own;
      entries = own.entries;
    }
    std::vector<double> numbers_of(std::max<int64_t>(entries.count, 1));
    std::vector<uint8_t> states(std::max<int64_t>(entries.count, 1));
    const uint8_t seen = spread_numbers_(entries, numbers_of.data(), states.data(), numbers);
    if (seen & UNSURE) return false;
    int64_t id = 0, weight = 0;
    for (int64_t row = begin; row < end; ++row) {
      const int64_t length = flat_.length(row - begin), own_length = weights->length(row - begin);
      if (length != own_length) {
        bad_[row] = 1;
      } else {
        for (int64_t k = 0; k < length; ++k) {
          if (states[weight + k] != GOOD) bad_[row] = 1;
          if (rows_[id + k] < 0) continue;
          ragged.values.push_back(rows_[id + k]);
          ragged.weights.push_back(static_cast<float>(numbers_of[weight + k]));
        }
        if (length == 0 && !flat_.is_single && step_.default_row != NO_ROW) {
          if (step_.default_row == BAD_ROW) return false;
          ragged.values.push_back(static_cast<int32_t>(step_.default_row));
          ragged.weights.push_back(1.0f);
        }
      }
      ragged.offsets.push_back(ragged.values.size());
      id += length;
      weight += own_length;
    }
    return true;
  }

  bool number(int64_t begin, int64_t end) {
    const Column& column = *columns_[0];
    if (!flatten(column, separator_, begin, end, flat_)) return false;
    const int64_t count = flat_.entries.count, dim = step_.dim;
    reserve(std::max(count, largest_dictionary()));
    const uint8_t seen = spread_numbers_(flat_.entries, doubles_scratch_.data(), states_.data(), numbers);
    if (seen & UNSURE) return false;
    const double* from = doubles_scratch_.data();
    const uint8_t* state = states_.data();
    for (int64_t row = begin; row < end; ++row) {
      const int64_t length = flat_.length(row - begin);
      const bool is_absent = length == 0 && is_missing(column, row);
      if (length != dim && !is_absent) {
        bad_[row] = 1;
        for (int64_t k = 0; k < dim; ++k) put_number(row, k, 0.0);
      } else {
        for (int64_t k = 0; k < dim; ++k) {
          const uint8_t is = is_absent ? uint8_t{MISSING} : state[k];
          if ((is & BAD) || ((is & MISSING) && step_.is_required)) bad_[row] = 1;
          put_number(row, k, is & MISSING ? step_.fill : from[k]);
        }
      }
      from += length;
      state += length;
    }
    return true;
  }

  static bool is_missing(const Column& column, int64_t row) {
    if (column.is_list) return column.is_missing(row);
    if (column.entries.is_missing(row)) return true;
    if (column.entries.words.empty()) return false;
    const int64_t word = column.entries.integer(row);
    return word >= 0 && word < column.entries.words[0].length && column.entries.words[0].is_missing(word);
  }

  void put_number(int64_t row, int64_t k, double value) {
    if (step_.kind == BUCKETS) {
      const double* end = step_.boundaries + step_.num_boundaries;
      *at(row) = static_cast<int32_t>(std::upper_bound(step_.boundaries, end, value) - step_.boundaries);
      return;
    }
    if (step_.is_weight && value < 0) bad_[row] = 1;
    if (doubles_ != nullptr) {
      doubles_[row * step_.dim + k] = value;
    } else if (step_.has_limit) {
      put_float(row, k, value >= step_.limit ? 1.0f : 0.0f);
    } else {
      put_float(row, k, static_cast<float>(value));
    }
  }

  uint8_t keys_of(size_t column, int64_t begin, int64_t end) {
    Entries entries;
    entries.leaf = &columns_[column]->entries;
    entries.begin = begin;
    entries.count = end - begin;
    return spread_keys_[column](entries, keys_.data(), states_.data(), [](const Entries& e, uint64_t* v, uint8_t* s) {
      return hashes(e, false, v, s);
    });
  }

  bool cross(int64_t begin, int64_t end) {
    reserve(BLOCK);
    uint64_t h[BLOCK];
    std::fill(h, h + (end - begin), mix64(step_.num_columns));
    for (size_t column = 0; column < columns_.size(); ++column) {
      const uint8_t seen = keys_of(column, begin, end);
      if (seen & UNSURE) return false;
      for (int64_t i = 0; i < end - begin; ++i) {
        if (states_[i] & BAD) bad_[begin + i] = 1;
        h[i] = mix64(h[i] ^ (states_[i] == MISSING ? 0 : keys_[i]));
      }
    }
    for (int64_t i = 0; i < end - begin; ++i) *at(begin + i) = static_cast<int32_t>(modulo_(h[i]));
    return true;
  }

  bool key(int64_t begin, int64_t end) {
    reserve(BLOCK);
    uint8_t seen;
    if (holds_texts(columns_[0]->entries)) {
      seen = keys_of(0, begin, end);
    } else {
      Entries entries;
      entries.leaf = &columns_[0]->entries;
      entries.begin = begin;
      entries.count = end - begin;
      seen = spread_integers_(entries, reinterpret_cast<int64_t*>(keys_.data()), states_.data(), integers);
    }
    if (seen & UNSURE) return false;
    for (int64_t i = 0; i < end - begin; ++i) {
      if (states_[i] != GOOD) bad_[begin + i] = 1;
      std::memcpy(at(begin + i), &keys_[i], 8);
    }
    return true;
  }

 public:
  int64_t first_ = 0;  // row of the block

 private:
  const Step& step_;
  int32_t* words_;
  int64_t width_;
  uint8_t* bad_;
  double* doubles_;
  Modulo modulo_;
  std::vector<const Column*> columns_;
  std::string_view separator_, weight_separator_;
  Flat flat_;
  std::vector<Span> after_;
  std::vector<uint8_t> states_;
  std::vector<int64_t> integers_;
  std::vector<uint64_t> keys_;
  std::vector<int32_t> rows_;
  std::vector<double> doubles_scratch_;
  Spread<int32_t> spread_rows_;
  Spread<double> spread_numbers_;
  Spread<int64_t> spread_integers_;
  std::vector<Spread<uint64_t>> spread_keys_;
};

struct Released {  // the arrays are given back, however this ends
  ArrowArray* array;
  ArrowSchema* schema;
  ~Released() {
    if (array->release != nullptr) array->release(array);
    if (schema->release != nullptr) schema->release(schema);
  }
};

}  // namespace

struct Bags {
  std::vector<Ragged> of_steps;
};

}  // namespace sparrow

extern "C" {

// Converts a record batch, and gives it back. `bad`: (rows,), set where a row cannot be used. `doubles`: by step, where
// numbers go that are yet to be transformed; or null. `bags` receives the ragged results, for sparrow_feed_bags.
__attribute__((visibility("default"))) int64_t sparrow_feed_convert(
    const sparrow::Step* steps, int64_t num_steps, ArrowArray* array, ArrowSchema* schema, int32_t* words,
    int64_t width, uint8_t* bad, double** doubles, sparrow::Bags** bags, int64_t* sizes) {
  using namespace sparrow;
  const Released released{array, schema};
  *bags = nullptr;
  try {
    std::vector<Column> columns(schema->n_children);
    std::vector<bool> readable(schema->n_children);
    for (int64_t i = 0; i < schema->n_children; ++i) {
      readable[i] = read_column(*schema->children[i], *array->children[i], columns[i]);
    }
    if (array->offset != 0) return ASK_REFERENCE;
    std::vector<std::unique_ptr<Runner>> runners;
    for (int64_t i = 0; i < num_steps; ++i) {
      for (int64_t k = 0; k < steps[i].num_columns; ++k) {
        if (!readable[steps[i].columns[k]]) return ASK_REFERENCE;
      }
      runners.push_back(std::make_unique<Runner>(steps[i], columns, words, width, bad, doubles[i]));
      if (steps[i].word < 0) runners.back()->ragged.offsets.reserve(array->length + 1);
      if (steps[i].word < 0 && columns[steps[i].columns[0]].is_list) {
        runners.back()->ragged.values.reserve(columns[steps[i].columns[0]].entries.length);
      }
    }
    for (int64_t begin = 0; begin < array->length; begin += BLOCK) {
      const int64_t end = std::min(begin + BLOCK, array->length);
      for (auto& runner : runners) {
        runner->first_ = begin;
        if (!runner->run(begin, end)) return ASK_REFERENCE;
      }
    }
    auto made = std::make_unique<Bags>();
    for (int64_t i = 0; i < num_steps; ++i) {
      sizes[i] = static_cast<int64_t>(runners[i]->ragged.values.size());
      made->of_steps.push_back(std::move(runners[i]->ragged));
    }
    *bags = made.release();
    return std::find(bad, bad + array->length, 1) == bad + array->length ? ALL_GOOD : SOME_BAD;
  } catch (const std::bad_alloc&) {
    return ASK_REFERENCE;
  }
}

// Copies the ragged results out, by step, where pointers are given, and frees them.
__attribute__((visibility("default"))) void sparrow_feed_bags(sparrow::Bags* bags, int32_t** values, int64_t** offsets,
                                                              float** weights) {
  for (size_t i = 0; i < bags->of_steps.size(); ++i) {
    const sparrow::Ragged& ragged = bags->of_steps[i];
    if (values[i] != nullptr) std::copy(ragged.values.begin(), ragged.values.end(), values[i]);
    if (offsets[i] != nullptr) std::copy(ragged.offsets.begin(), ragged.offsets.end(), offsets[i]);
    if (weights[i] != nullptr) std::copy(ragged.weights.begin(), ragged.weights.end(), weights[i]);
  }
  delete bags;
}

}  // extern "C"
