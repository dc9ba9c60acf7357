// Delimited text as columns of strings, a block of rows at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "arrow.h"
#include "scratch.h"
#include "text_ends.h"
#include "text_index.h"

namespace sparrow {

class TextBlocks {
 public:
  TextBlocks(const EncodedText& text, Scratch& scratch, std::vector<Column>& columns)
      : text_(text), scratch_(scratch), ends_(text, scratch), columns_(columns), spans_(text.num_wanted) {
    words_ = scratch.array<uint64_t>(text.num_wanted * STRIDE);
    sizes_ = scratch.array<uint8_t>(text.num_wanted * STRIDE);
    bool empty_is_missing = false;
    for (int64_t i = 0; i < text.num_missing; ++i) empty_is_missing |= text.missing[i].size == 0;
    std::vector<int64_t> all(text.num_wanted);
    for (int64_t i = 0; i < text.num_wanted; ++i) {
      columns[i].entries.type = 'u';
      all[i] = i;
    }
    if (empty_is_missing) {
      set_short(std::move(all));
    } else {
      long_ = std::move(all);
    }
  }

  // Whether this code reads the text at all.
  bool is_known() const { return ends_.is_known(); }

  // Reads the next rows, the first of which is the number `begin`. Returns their number; 0: there are no more; -1: the
  // reference must look.
  int64_t next(int64_t begin) {
    rows_ = ends_.next();
    if (rows_ <= 0) return rows_;
    for (Column& column : columns_) {
      column.entries.length = rows_;
      column.entries.offset = -begin;
    }
    fill_shorts();
    for (const int64_t i : long_) fill_spans(i);
    return rows_;
  }

 private:
  static constexpr int64_t STRIDE = TEXT_ROWS + 8;  // words from a column to the next one: not a power of two

  uint32_t step_of(int64_t place) const { return place == 0 ? 1 : static_cast<uint32_t>(text_.separator_size); }

  // The strings of columns that had neither a long nor a quoted one yet.
  void fill_shorts() {
    const uint32_t separator_size = static_cast<uint32_t>(text_.separator_size);
    while (!gather_fields(text_.data, ends_.ends(), rows_, text_.num_columns, separator_size, runs_.data(),
                          static_cast<int64_t>(runs_.size()), {words_, sizes_, STRIDE})) {
      sort_out();
    }
    std::vector<int64_t> still_short;
    for (size_t k = 0; k < short_.size(); ++k) {
      Leaf& leaf = columns_[short_[k]].entries;
      uint64_t* words = words_ + k * STRIDE;
      uint8_t* sizes = sizes_ + k * STRIDE;
      leaf.shorts = words;
      leaf.sizes = sizes;
      if (ends_.has_quotes() && some_quoted(words)) {
        make_long(short_[k]);
        continue;
      }
      still_short.push_back(short_[k]);
      if (ends_.has_returns() && text_.wanted[short_[k]] + 1 == text_.num_columns) drop_returns(words, sizes);
      if (text_.num_missing > 1) drop_missing(words, sizes);
    }
    if (still_short.size() < short_.size()) set_short(std::move(still_short));
  }

  bool some_quoted(const uint64_t* words) const {
    bool some = false;
    for (int64_t row = 0; row < rows_; ++row) some |= static_cast<int64_t>(words[row] & 255) == text_.quote;
    return some;
  }

  void make_long(int64_t i) {
    columns_[i].entries.shorts = nullptr;
    long_.push_back(i);
  }

  // Moves the columns with a long string to the long ones.
  void sort_out() {
    std::vector<int64_t> still_short;
    for (const int64_t i : short_) {
      const int64_t place = text_.wanted[i];
      const uint32_t step = step_of(place), *ends = ends_.ends() + place;
      uint32_t longest = 0;
      for (int64_t row = 0; row < rows_; ++row) {
        longest = std::max(longest, ends[row * text_.num_columns] - ends[row * text_.num_columns - 1] - step);
      }
      if (longest <= 8) {
        still_short.push_back(i);
      } else {
        make_long(i);
      }
    }
    set_short(std::move(still_short));
  }

  void set_short(std::vector<int64_t> columns) {
    short_ = std::move(columns);
    std::stable_sort(short_.begin(), short_.end(),
                     [&](int64_t a, int64_t b) { return text_.wanted[a] < text_.wanted[b]; });
    runs_.clear();
    for (const int64_t i : short_) {
      const int64_t place = text_.wanted[i];
      if (runs_.empty() || place != runs_.back().first + runs_.back().count) {
        runs_.push_back({place, 1});
      } else {
        ++runs_.back().count;
      }
    }
  }

  // Cuts the carriage returns at the ends of strings in the last column.
  void drop_returns(uint64_t* words, uint8_t* sizes) const {
    for (int64_t row = 0; row < rows_; ++row) {
      const int shift = 8 * (sizes[row] - 1);
      if (sizes[row] == 0 || (words[row] >> shift & 255) != '\r') continue;
      words[row] &= (uint64_t{1} << shift) - 1;
      --sizes[row];
    }
  }

  // Makes the other strings that mean a missing value empty.
  void drop_missing(uint64_t* words, uint8_t* sizes) const {
    for (int64_t i = 0; i < text_.num_missing; ++i) {
      const Span& missing = text_.missing[i];
      if (missing.size == 0 || missing.size > 8) continue;
      uint64_t word = 0;
      std::memcpy(&word, missing.data, missing.size);
      for (int64_t row = 0; row < rows_; ++row) {
        if (words[row] == word && sizes[row] == missing.size) words[row] = sizes[row] = 0;
      }
    }
  }

  void fill_spans(int64_t i) {
    const int64_t place = text_.wanted[i];
    if (spans_[i] == nullptr) spans_[i] = scratch_.array<Span>(TEXT_ROWS);
    columns_[i].entries.spans = spans_[i];
    const uint32_t step = step_of(place), *ends = ends_.ends() + place;
    for (int64_t row = 0; row < rows_; ++row, ends += text_.num_columns) {
      const uint32_t begin = ends[-1] + step;
      spans_[i][row] = string_of(begin, end_of(place, begin, ends[0]));
    }
  }

  uint32_t end_of(int64_t place, uint32_t begin, uint32_t end) const {
    const bool may_return = ends_.has_returns() && place + 1 == text_.num_columns && end > begin;
    return may_return && text_.data[end - 1] == '\r' ? end - 1 : end;
  }

  Span string_of(uint32_t begin, uint32_t end) {
    Span string{text_.data + begin, static_cast<int64_t>(end) - begin};
    const char quote = static_cast<char>(text_.quote);
    if (ends_.has_quotes() && string.size > 0 && string.data[0] == quote) {
      string = {string.data + 1, string.size - 2};
      if (std::memchr(string.data, quote, string.size) != nullptr) string = with_single_quotes(string, quote);
    }
    for (int64_t i = 0; i < text_.num_missing; ++i) {
      const Span& word = text_.missing[i];
      if (word.size == string.size && std::memcmp(word.data, string.data, word.size) == 0) return {nullptr, 0};
    }
    return string;
  }

  Span with_single_quotes(Span string, char quote) {
    char* out = scratch_.array<char>(string.size);
    int64_t size = 0;
    for (int64_t i = 0; i < string.size; ++i) {
      out[size++] = string.data[i];
      if (string.data[i] == quote) ++i;  // the second one
    }
    return {out, size};
  }

  const EncodedText& text_;
  Scratch& scratch_;
  TextEnds ends_;
  std::vector<Column>& columns_;
  std::vector<int64_t> short_, long_;  // the wanted columns, by whether a long or quoted string was seen
  std::vector<Span*> spans_;           // by wanted column
  std::vector<Run> runs_;              // of the short ones
  uint64_t* words_;
  uint8_t* sizes_;
  int64_t rows_ = 0;  // of the current block
};

}  // namespace sparrow
