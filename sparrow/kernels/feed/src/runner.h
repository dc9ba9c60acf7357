// `Runner`: one conversion, a block of rows at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "arrow.h"
#include "entries.h"
#include "flat.h"
#include "hash.h"
#include "room.h"
#include "step.h"

namespace sparrow {

constexpr int64_t SPARE = 16;  // entries behind every block of bags, which may be read
constexpr int64_t BLOCK = 256;  // rows that all columns are converted for before the next: their words stay in the cache

class Runner {
 public:
  Runner(const Step& step, const std::vector<Column>& columns, int32_t* words, int64_t width, uint8_t* bad,
         double* doubles, Room& room)
      : step_(step), words_(words), width_(width), bad_(bad), doubles_(doubles), modulo_(step.size),
        spread_rows_(room), spread_numbers_(room), spread_integers_(room) {
    for (int64_t i = 0; i < step.num_columns; ++i) columns_.push_back(&columns[step.columns[i]]);
    if (step.separator != nullptr) separator_ = {step.separator, static_cast<size_t>(step.separator_size)};
    if (step.weight_separator != nullptr) {
      weight_separator_ = {step.weight_separator, static_cast<size_t>(step.weight_separator_size)};
    }
    spread_keys_.assign(columns_.size(), Spread<uint64_t>(room));
  }

  // The bags of the last block, one after the other; their lengths are in the rows.
  const int32_t* bag_rows = nullptr;
  const float* bag_weights = nullptr;

  const Step& step() const { return step_; }

  // False: the reference must look.
  bool run(int64_t begin, int64_t end) {
    first_ = begin;
    switch (step_.kind) {
      case IDS: return ids(begin, end);
      case CROSS: return cross(begin, end);
      case KEY: return key(begin, end);
      default: return number(begin, end);
    }
  }

 private:
  void reserve(int64_t count) {
    count = std::max(count, Spread<int32_t>::AT_ONCE) + SPARE;
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
      if (numbered<int32_t>('i', entries, rows) || numbered<int64_t>('l', entries, rows)) {
        std::memset(states, GOOD, entries.count);
        return GOOD;
      }
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

  // Integers of which none is missing, and all are row numbers. False: some are not, or the type is another.
  template <class T>
  bool numbered(char type, const Entries& entries, int32_t* rows) const {
    if (entries.texts != nullptr || entries.leaf->type != type || entries.leaf->valid != nullptr) return false;
    const T* from = static_cast<const T*>(entries.leaf->data) + entries.leaf->offset + entries.begin;
    bool all_known = true;
    for (int64_t i = 0; i < entries.count; ++i) {
      all_known &= static_cast<uint64_t>(static_cast<int64_t>(from[i])) < static_cast<uint64_t>(step_.size);
      rows[i] = static_cast<int32_t>(from[i]);
    }
    return all_known;
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

  auto mapper() {
    return [this](const Entries& e, int32_t* r, uint8_t* s) { return map(e, r, s); };
  }

  // Whether entries are places in a dictionary whose every word is good: each is mapped once, then looked up.
  bool is_by_word() {
    const Leaf& leaf = columns_[0]->entries;
    if (!leaf.is_checked || !separator_.empty() || !weight_separator_.empty() || step_.is_weighted) return false;
    if (leaf.valid != nullptr && step_.default_row == BAD_ROW) return false;
    if (!spread_rows_.is_ready()) {
      reserve(0);
      spread_rows_.prepare(leaf.words[0], mapper());
      const int32_t* rows = spread_rows_.words();
      all_rows_ = std::all_of(rows, rows + leaf.words[0].length, [](int32_t row) { return row >= 0; });
    }
    return spread_rows_.seen() == GOOD;
  }

  bool single_by_word(int64_t begin, int64_t end) {
    const Leaf& leaf = columns_[0]->entries;
    const int32_t* places = static_cast<const int32_t*>(leaf.data) + leaf.offset;
    const int32_t* rows = spread_rows_.words();
    const int32_t missing = static_cast<int32_t>(step_.default_row);
    int32_t* to = at(begin);
    if (leaf.valid == nullptr) {
      for (int64_t row = begin; row < end; ++row, to += width_) *to = rows[places[row]];
    } else {
      for (int64_t row = begin; row < end; ++row, to += width_) *to = leaf.is_missing(row) ? missing : rows[places[row]];
    }
    return true;
  }

  bool lists_by_word(int64_t begin, int64_t end) {
    const Column& column = *columns_[0];
    const Leaf& leaf = column.entries;
    const int64_t first = column.start(begin), count = column.start(end) - first;
    const int32_t* places = static_cast<const int32_t*>(leaf.data) + leaf.offset + first;
    const int32_t* rows = spread_rows_.words();
    reserve(count);
    flat_.is_single = false;
    flat_.lengths.resize(end - begin);
    for (int64_t row = begin; row < end; ++row) flat_.lengths[row - begin] = column.start(row + 1) - column.start(row);
    if (leaf.valid == nullptr) {
      for (int64_t i = 0; i < count; ++i) rows_[i] = rows[places[i]];
      if ((all_rows_ || step_.keeps_missing) && step_.max_length == 0 && step_.default_row == NO_ROW) {
        bag_rows = rows_.data();
        for (int64_t row = begin; row < end; ++row) *at(row) = static_cast<int32_t>(flat_.lengths[row - begin]);
        return true;
      }
    } else {
      const int32_t missing = static_cast<int32_t>(step_.default_row);
      for (int64_t i = 0; i < count; ++i) rows_[i] = leaf.is_missing(first + i) ? missing : rows[places[i]];
    }
    return bags(begin, end);
  }

  bool ids(int64_t begin, int64_t end) {
    const Column& column = *columns_[0];
    const Leaf& leaf = column.entries;
    const bool is_plain = !column.is_list && leaf.words.empty() && leaf.valid == nullptr;
    if (is_plain && !step_.is_ragged && step_.mapping != VOCABULARY) {
      if (leaf.type == 'i') return plain_ids<int32_t>(begin, end);
      if (leaf.type == 'l') return plain_ids<int64_t>(begin, end);
    }
    if (is_by_word()) {
      if (!step_.is_ragged) return single_by_word(begin, end);
      if (column.is_list) return lists_by_word(begin, end);
    }
    if (!flatten(*columns_[0], separator_, begin, end, flat_)) return false;
    if (!weight_separator_.empty() && !cut_weights(weight_separator_, flat_, after_)) return false;
    const int64_t count = flat_.entries.count;
    reserve(count);
    const uint8_t seen = spread_rows_(flat_.entries, rows_.data(), states_.data(), mapper());
    if (seen & UNSURE) return false;
    if (seen) {
      if ((seen & MISSING) && step_.default_row == BAD_ROW) return false;
      mark(states_.data());
      for (int64_t i = 0; i < count; ++i) {
        if (states_[i] != GOOD) rows_[i] = states_[i] == MISSING ? static_cast<int32_t>(step_.default_row) : NO_ROW;
      }
    }
    if (step_.is_ragged) return step_.is_weighted ? weighted_bags(begin, end) : bags(begin, end);
    for (int64_t i = 0; i < count; ++i) *at(begin + i) = rows_[i];
    return true;
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
    if (!flat_.is_single && step_.default_row != NO_ROW) return bags_with_default(begin, end);
    int32_t* from = rows_.data();
    int32_t* to = from;
    for (int64_t row = begin; row < end; ++row) {
      const int64_t length = flat_.length(row - begin), count = kept(from, length);
      std::memmove(to, from, count * sizeof(int32_t));
      *at(row) = static_cast<int32_t>(count);
      to += count;
      from += length;
    }
    bag_rows = rows_.data();
    return true;
  }

  // A row without ids has the default.
  bool bags_with_default(int64_t begin, int64_t end) {
    int32_t* from = rows_.data();
    kept_rows_.clear();
    for (int64_t row = begin; row < end; ++row) {
      const int64_t length = flat_.length(row - begin), count = kept(from, length);
      kept_rows_.insert(kept_rows_.end(), from, from + count);
      if (length == 0) {
        if (step_.default_row == BAD_ROW) return false;
        kept_rows_.push_back(static_cast<int32_t>(step_.default_row));
      }
      *at(row) = static_cast<int32_t>(length == 0 ? 1 : count);
      from += length;
    }
    kept_rows_.resize(kept_rows_.size() + SPARE);
    bag_rows = kept_rows_.data();
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
    kept_rows_.clear();
    kept_weights_.clear();
    for (int64_t row = begin; row < end; ++row) {
      const int64_t length = flat_.length(row - begin), own_length = weights->length(row - begin);
      const size_t before = kept_rows_.size();
      if (length != own_length) {
        bad_[row] = 1;
      } else {
        for (int64_t k = 0; k < length; ++k) {
          if (states[weight + k] != GOOD) bad_[row] = 1;
          if (rows_[id + k] < 0) continue;
          kept_rows_.push_back(rows_[id + k]);
          kept_weights_.push_back(static_cast<float>(numbers_of[weight + k]));
        }
        if (length == 0 && !flat_.is_single && step_.default_row != NO_ROW) {
          if (step_.default_row == BAD_ROW) return false;
          kept_rows_.push_back(static_cast<int32_t>(step_.default_row));
          kept_weights_.push_back(1.0f);
        }
      }
      *at(row) = static_cast<int32_t>(kept_rows_.size() - before);
      id += length;
      weight += own_length;
    }
    kept_rows_.resize(kept_rows_.size() + SPARE);
    kept_weights_.resize(kept_weights_.size() + SPARE);
    bag_rows = kept_rows_.data();
    bag_weights = kept_weights_.data();
    return true;
  }

  // One number per row, of a dictionary whose every word is good: most labels.
  bool number_by_word(int64_t begin, int64_t end) {
    const Leaf& leaf = columns_[0]->entries;
    if (!spread_numbers_.is_ready()) spread_numbers_.prepare(leaf.words[0], numbers);
    if (spread_numbers_.seen() != GOOD) return false;
    const int32_t* places = static_cast<const int32_t*>(leaf.data) + leaf.offset;
    for (int64_t row = begin; row < end; ++row) put_number(row, 0, spread_numbers_.words()[places[row]]);
    return true;
  }

  bool number(int64_t begin, int64_t end) {
    const Column& column = *columns_[0];
    if (column.entries.is_checked && !column.is_list && column.entries.valid == nullptr && separator_.empty() &&
        step_.dim == 1 && number_by_word(begin, end)) {
      return true;
    }
    if (!flatten(column, separator_, begin, end, flat_)) return false;
    const int64_t count = flat_.entries.count, dim = step_.dim;
    reserve(count);
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

  const Step& step_;
  int64_t first_ = 0;  // row of the block
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
  std::vector<int32_t> rows_, kept_rows_;
  std::vector<float> kept_weights_;
  bool all_rows_ = false;  // whether every word of the dictionary has a row
  std::vector<double> doubles_scratch_;
  Spread<int32_t> spread_rows_;
  Spread<double> spread_numbers_;
  Spread<int64_t> spread_integers_;
  std::vector<Spread<uint64_t>> spread_keys_;
};

}  // namespace sparrow
