// `IdRunner`: ids, one or a bag for each row; the entries of a bag that stay are decided here.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "entries.h"
#include "row_map.h"
#include "runner.h"

namespace sparrow {

// The entries of a row that hold an id, or all, cut to the sequence's length and moved to the front; returns their number.
inline int64_t kept(const Step& step, bool is_single, int32_t* rows, int64_t length) {
  int64_t count = 0;
  const bool keeps_all = step.keeps_missing && !is_single;
  for (int64_t k = 0; k < length; ++k) {
    if (keeps_all || rows[k] >= 0) rows[count++] = rows[k];
  }
  if (step.max_length == 0 || count <= step.max_length) return count;
  if (step.keep_last) std::memmove(rows, rows + count - step.max_length, step.max_length * sizeof(int32_t));
  return step.max_length;
}

// The bags of `count` rows; a row without ids has the default, if there is one. False: the reference must look.
inline bool bags_of(const Step& step, const Flat& flat, int64_t count, int32_t* rows, int32_t* lengths,
                    std::vector<int32_t>& out) {
  out.clear();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t length = flat.length(i), own = kept(step, flat.is_single, rows, length);
    const bool has_default = length == 0 && step.default_row != NO_ROW;
    if (has_default && step.default_row == BAD_ROW) return false;
    out.insert(out.end(), rows, rows + own);
    if (has_default) out.push_back(static_cast<int32_t>(step.default_row));
    lengths[i] = static_cast<int32_t>(own + has_default);
    rows += length;
  }
  out.resize(out.size() + SPARE);
  return true;
}

struct Weights {
  const Flat& lists;
  const double* values;
  const uint8_t* states;
};

// Bags and their weights. `bad` is of the first row. False: the reference must look.
inline bool weighted_bags(const Step& step, const Flat& flat, const Weights& weights, int64_t count,
                          const int32_t* rows, uint8_t* bad, int32_t* lengths, std::vector<int32_t>& out,
                          std::vector<float>& out_weights) {
  int64_t id = 0, weight = 0;
  out.clear();
  out_weights.clear();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t length = flat.length(i), own_length = weights.lists.length(i);
    const size_t before = out.size();
    if (length != own_length) {
      bad[i] = 1;
    } else {
      for (int64_t k = 0; k < length; ++k) {
        if (weights.states[weight + k] != GOOD) bad[i] = 1;
        if (rows[id + k] < 0) continue;
        out.push_back(rows[id + k]);
        out_weights.push_back(static_cast<float>(weights.values[weight + k]));
      }
      if (length == 0 && !flat.is_single && step.default_row != NO_ROW) {
        if (step.default_row == BAD_ROW) return false;
        out.push_back(static_cast<int32_t>(step.default_row));
        out_weights.push_back(1.0f);
      }
    }
    lengths[i] = static_cast<int32_t>(out.size() - before);
    id += length;
    weight += own_length;
  }
  out.resize(out.size() + SPARE);
  out_weights.resize(out_weights.size() + SPARE);
  return true;
}

class IdRunner : public Runner {
 public:
  explicit IdRunner(const Work& work)
      : Runner(work), map_(step_), by_word_(work.scratch), weights_by_word_(work.scratch) {
    if (step_.weight_separator != nullptr) {
      weight_separator_ = {step_.weight_separator, static_cast<size_t>(step_.weight_separator_size)};
    }
  }

  bool run(int64_t begin, int64_t end) override {
    const Column& column = *columns_[0];
    const Leaf& leaf = column.entries;
    const bool is_plain = !column.is_list && leaf.words.empty() && leaf.valid == nullptr;
    if (is_plain && !step_.is_ragged && step_.mapping != VOCABULARY) {
      if (leaf.type == 'i') return plain<int32_t>(begin, end);
      if (leaf.type == 'l') return plain<int64_t>(begin, end);
    }
    if (is_by_word()) {
      if (!step_.is_ragged) return single_by_word(begin, end);
      if (column.is_list) return lists_by_word(begin, end);
    }
    if (!flattened(begin, end)) return false;
    const uint8_t seen = by_word_(flat_.entries, rows_.data(), states_.data(), map_);
    if (!without_states(seen, begin)) return false;
    if (step_.is_ragged) return pooled(begin, end);
    std::memcpy(out(), rows_.data(), flat_.entries.count * sizeof(int32_t));
    return true;
  }

 protected:
  // Finds the entries of a block of rows, and makes space for their rows. False: the reference must look.
  bool flattened(int64_t begin, int64_t end) {
    if (!flatten(*columns_[0], separator_, begin, end, flat_)) return false;
    if (!weight_separator_.empty() && !cut_weights(weight_separator_, flat_, after_)) return false;
    reserve(flat_.entries.count);
    return true;
  }

  // Replaces the rows of entries that are missing or bad, and marks bad rows. False: the reference must look.
  bool without_states(uint8_t seen, int64_t begin) {
    if (seen & UNSURE) return false;
    if (seen == GOOD) return true;
    if ((seen & MISSING) && step_.default_row == BAD_ROW) return false;
    if (seen & BAD) mark(begin);
    for (int64_t i = 0; i < flat_.entries.count; ++i) {
      if (states_[i] != GOOD) rows_[i] = states_[i] == MISSING ? static_cast<int32_t>(step_.default_row) : NO_ROW;
    }
    return true;
  }

  bool pooled(int64_t begin, int64_t end) { return step_.is_weighted ? weighted(begin, end) : bags(end - begin); }

  std::vector<uint8_t> states_;
  std::vector<int32_t> rows_;

 private:
  void reserve(int64_t count) {
    count = std::max(count, Spread<int32_t>::AT_ONCE) + SPARE;
    if (static_cast<int64_t>(states_.size()) >= count) return;
    states_.resize(count);
    rows_.resize(count);
  }

  // Lists whose every entry stays.
  bool lists_as_they_are(int64_t begin, int64_t end) {
    const Column& column = *columns_[0];
    bag_rows = rows_.data();
    int32_t* lengths = out();
    if (column.ends != nullptr && !column.is_wide) {
      const int32_t* ends = static_cast<const int32_t*>(column.ends) + column.offset + begin;
      for (int64_t i = 0; i < end - begin; ++i) lengths[i] = ends[i + 1] - ends[i];
      return true;
    }
    for (int64_t row = begin; row < end; ++row) {
      lengths[row - begin] = static_cast<int32_t>(column.start(row + 1) - column.start(row));
    }
    return true;
  }

  void set_lengths(int64_t begin, int64_t end) {
    const Column& column = *columns_[0];
    flat_.is_single = false;
    flat_.entries.count = column.start(end) - column.start(begin);
    flat_.lengths.resize(end - begin);
    for (int64_t row = begin; row < end; ++row) flat_.lengths[row - begin] = column.start(row + 1) - column.start(row);
  }

  // Integers, one per row and none missing.
  template <class T>
  bool plain(int64_t begin, int64_t end) {
    const Leaf& leaf = columns_[0]->entries;
    int32_t* to = out();
    if (map_.plain(static_cast<const T*>(leaf.data) + leaf.offset + begin, end - begin, to)) return true;
    for (int64_t i = 0; i < end - begin; ++i) {
      if (to[i] != BAD_ROW) continue;
      bad_[begin + i] = 1;
      to[i] = NO_ROW;
    }
    return true;
  }

  // Whether entries are places in a dictionary whose every word is good: each is mapped once, then looked up.
  bool is_by_word() {
    const Leaf& leaf = columns_[0]->entries;
    if (!has_words() || !separator_.empty() || !weight_separator_.empty() || step_.is_weighted) return false;
    if (leaf.valid != nullptr && step_.default_row == BAD_ROW) return false;
    if (!by_word_.is_ready()) {
      const Leaf& words = leaf.words[0];
      if (const int32_t* known = map_.as_they_are(words)) {
        by_word_.use(known);
        all_rows_ = true;
      } else {
        by_word_.prepare(words, map_);
        const int32_t* rows = by_word_.words();
        all_rows_ = are_all_rows(rows, words.length);
      }
    }
    return by_word_.seen() == GOOD;
  }

  bool single_by_word(int64_t begin, int64_t end) {
    const Leaf& leaf = columns_[0]->entries;
    int32_t* to = out();
    gather(by_word_.words(), places() + begin, end - begin, to);
    if (leaf.valid == nullptr) return true;
    const int32_t missing = static_cast<int32_t>(step_.default_row);
    for (int64_t i = 0; i < end - begin; ++i) to[i] = leaf.is_missing(begin + i) ? missing : to[i];
    return true;
  }

  bool lists_by_word(int64_t begin, int64_t end) {
    const Column& column = *columns_[0];
    const Leaf& leaf = column.entries;
    const int64_t first = column.start(begin), count = column.start(end) - first;
    reserve(count);
    gather(by_word_.words(), places() + first, count, rows_.data());
    if (leaf.valid == nullptr && (all_rows_ || step_.keeps_missing) && step_.max_length == 0 &&
        step_.default_row == NO_ROW) {
      return lists_as_they_are(begin, end);
    }
    set_lengths(begin, end);
    if (leaf.valid != nullptr) {
      const int32_t missing = static_cast<int32_t>(step_.default_row);
      for (int64_t i = 0; i < count; ++i) rows_[i] = leaf.is_missing(first + i) ? missing : rows_[i];
    }
    return bags(end - begin);
  }

  // Marks the rows that hold a bad entry.
  void mark(int64_t begin) {
    int64_t at = 0;
    const int64_t rows = flat_.is_single ? flat_.entries.count : static_cast<int64_t>(flat_.lengths.size());
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t k = flat_.length(row); k > 0; --k) {
        if (states_[at++] & BAD) bad_[begin + row] = 1;
      }
    }
  }

  bool bags(int64_t count) {
    const int64_t entries = flat_.is_single ? count : flat_.entries.count;
    const bool has_default = !flat_.is_single && step_.default_row != NO_ROW;
    if (step_.max_length == 0 && !has_default && are_all_rows(rows_.data(), entries)) {  // every entry stays
      int32_t* lengths = out();
      for (int64_t i = 0; i < count; ++i) lengths[i] = static_cast<int32_t>(flat_.length(i));
      bag_rows = rows_.data();
      return true;
    }
    if (!bags_of(step_, flat_, count, rows_.data(), out(), kept_rows_)) return false;
    bag_rows = kept_rows_.data();
    return true;
  }

  bool weighted(int64_t begin, int64_t end) {
    Flat own;
    const Flat* lists = &flat_;
    Entries entries;
    if (!weight_separator_.empty()) {
      entries.texts = after_.data();
      entries.count = flat_.entries.count;
    } else {
      if (!flatten(*columns_[1], separator_, begin, end, own)) return false;
      lists = &own;
      entries = own.entries;
    }
    weights_.resize(std::max<int64_t>(entries.count, 1));
    weight_states_.resize(std::max<int64_t>(entries.count, 1));
    const uint8_t seen = weights_by_word_(entries, weights_.data(), weight_states_.data(), numbers);
    if (seen & UNSURE) return false;
    const Weights weights{*lists, weights_.data(), weight_states_.data()};
    if (!weighted_bags(step_, flat_, weights, end - begin, rows_.data(), bad_ + begin, out(), kept_rows_, kept_weights_)) {
      return false;
    }
    bag_rows = kept_rows_.data();
    bag_weights = kept_weights_.data();
    return true;
  }

  RowMap map_;
  std::string_view weight_separator_;
  std::vector<Span> after_;
  std::vector<uint8_t> weight_states_;
  std::vector<int32_t> kept_rows_;
  std::vector<float> kept_weights_;
  std::vector<double> weights_;
  bool all_rows_ = false;  // whether every word of the dictionary has a row
  Spread<int32_t> by_word_;
  Spread<double> weights_by_word_;
};

}  // namespace sparrow
