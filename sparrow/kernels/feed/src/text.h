// Delimited text as columns of strings, a block of rows at a time. All that is not known here, and every malformed line,
// is left to the reference.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "arrow.h"
#include "room.h"
#include "text_index.h"
#include "tile.h"
#include "utf8.h"

extern "C" {

// Text, and how it is read. Mirrored by sparrow/kernels/feed/text.py: every field has 8 bytes.
struct EncodedText {
  const char* data;  // complete lines, with SLACK behind them
  int64_t size;
  sparrow::Counted counted;
  int64_t is_utf8;   // whether other bytes are UTF-8; if not, they are another encoding's
  const char* separator;
  int64_t separator_size;
  int64_t quote;           // -1: none
  int64_t breaks_in_quotes;  // whether line breaks in quotes belong to the string
  int64_t num_columns;     // of the file
  const int64_t* wanted;   // places of the wanted columns among them
  int64_t num_wanted;
  const sparrow::Span* missing;  // the strings that mean a missing value
  int64_t num_missing;
};

}  // extern "C"

namespace sparrow {

constexpr int64_t TEXT_ROWS = 256;  // rows of a block: their bytes, ends and strings stay in the processor's cache
static_assert(TEXT_ROWS <= BLOCK);

class TextBlocks {
 public:
  TextBlocks(const EncodedText& text, Room& room, std::vector<Column>& columns)
      : text_(text), room_(room), columns_(columns), spans_(text.num_wanted) {
    const int64_t most = TEXT_ROWS * text.num_columns + PIECE;
    found_.ends = room.array<uint32_t>(most + 32) + 16;  // and the end before the first one
    found_.breaks = room.array<int64_t>(most + 16);
    found_.begins_field = 1;
    found_.ends[-1] = UINT32_MAX;  // one before the first byte
    words_ = room.array<uint64_t>(text.num_wanted * STRIDE);
    sizes_ = room.array<uint8_t>(text.num_wanted * STRIDE);
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
    is_filtered_ = text.separator_size > 1;
    is_plain_ = !is_filtered_ && !text.counted.has_returns && !text.counted.has_quotes;
  }

  // Whether this code reads the text at all.
  bool is_known() const {
    if (text_.size >= int64_t{UINT32_MAX} - 64 || text_.separator_size < 1) return false;
    if (text_.size > 0 && text_.data[text_.size - 1] != '\n') return false;
    if (text_.size >= 3 && std::memcmp(text_.data, "\xEF\xBB\xBF", 3) == 0) return false;  // Arrow would skip it
    if (text_.separator[0] == static_cast<char>(text_.quote)) return false;
    // The reference splits at this byte, too, where it has to replace a longer separator.
    if (text_.separator_size > 1 && std::memchr(text_.data, '\x1f', text_.size) != nullptr) return false;
    return text_.counted.is_ascii || (text_.is_utf8 && sparrow::is_utf8(text_.data, text_.size));
  }

  // Reads the next rows, the first of which is the number `begin`. Returns their number; 0: there are no more; -1: the
  // reference must look.
  int64_t next(int64_t begin) {
    drop();
    while (found_.lines < TEXT_ROWS && at_ < text_.size) {
      if (!search()) return -1;
    }
    const int64_t rows = std::min(found_.lines, TEXT_ROWS);
    for (int64_t row = 0; row < rows; ++row) {
      if (found_.breaks[row] != (row + 1) * text_.num_columns - 1) return -1;  // another number of fields
    }
    if (rows == 0) return found_.count == 0 && close_ == 0 ? 0 : -1;
    rows_ = rows;
    for (Column& column : columns_) {
      column.entries.length = rows;
      column.entries.offset = -begin;
    }
    if (has_quotes()) {
      for (const int64_t i : short_) columns_[i].entries.shorts = nullptr;
      long_.insert(long_.end(), short_.begin(), short_.end());
      set_short({});
    }
    fill_shorts();
    for (const int64_t i : long_) fill_spans(i);
    return rows;
  }

 private:
  static constexpr int64_t PIECE = 4096;  // bytes that are searched at a time

  static constexpr int64_t STRIDE = TEXT_ROWS + 8;  // words from a column to the next one: not a power of two

  // Forgets the rows of the last block; the ends that follow them move to the front.
  void drop() {
    const int64_t used = rows_ * text_.num_columns;
    if (used == 0) return;
    found_.ends[-1] = found_.ends[used - 1];
    std::memmove(found_.ends, found_.ends + used, (found_.count - used) * sizeof(uint32_t));
    found_.count -= used;
    found_.lines -= rows_;
    for (int64_t i = 0; i < found_.lines; ++i) found_.breaks[i] = found_.breaks[i + rows_] - used;
    rows_ = 0;
  }

  bool search() {
    const int64_t to = std::min(at_ + PIECE, text_.size);
    const Found before = found_;
    // A row has one end more than there is room for: the line is malformed, or there are more columns than bytes.
    if (found_.count > TEXT_ROWS * text_.num_columns) return false;
    if (is_plain_) {
      find_plain_ends(text_.data, at_, to, text_.separator[0], found_);
    } else {
      find_ends(text_.data, at_, to, text_.separator[0], is_filtered_ ? -1 : static_cast<int>(text_.quote), found_);
    }
    if (found_.is_odd) return false;
    if (found_.is_quoted) {
      is_filtered_ = true;
      found_ = before;
      return search();
    }
    at_ = to;
    return !is_filtered_ || filter(before.count, before.lines);
  }

  // Leaves out the ends from `first` on that end no field: in quotes, or only the begin of a longer separator.
  bool filter(int64_t first, int64_t first_line) {
    int64_t kept = first, lines = first_line;
    for (int64_t i = first; i < found_.count; ++i) {
      const uint32_t end = found_.ends[i];
      const bool is_line = text_.data[end] == '\n';
      const uint32_t begin = field_begin(kept);
      if (!is_line && (end < begin || !is_separator(end))) continue;
      if (has_quotes() && text_.data[begin] == static_cast<char>(text_.quote)) {
        if (close_ <= begin && !find_close(begin)) return false;
        if (end < close_) {
          if (is_line && !text_.breaks_in_quotes) return false;
          continue;
        }
        const bool has_return = is_line && text_.data[end - 1] == '\r';
        if (end - has_return != close_ + 1) return false;  // characters behind the quotes
      }
      close_ = 0;
      if (is_line) found_.breaks[lines++] = kept;
      found_.ends[kept++] = end;
    }
    found_.count = kept;
    found_.lines = lines;
    return true;
  }

  bool has_quotes() const { return is_filtered_ && text_.quote >= 0; }

  // Where the field begins whose end has the place `i`.
  uint32_t field_begin(int64_t i) const {
    const uint32_t before = found_.ends[i - 1];
    const bool is_first = before == UINT32_MAX || text_.data[before] == '\n';
    return before + (is_first ? 1 : static_cast<uint32_t>(text_.separator_size));
  }

  bool is_separator(uint32_t at) const {
    return at + text_.separator_size <= text_.size &&
           std::memcmp(text_.data + at, text_.separator, text_.separator_size) == 0;
  }

  // Sets the place of the quote that closes the one at `open`.
  bool find_close(uint32_t open) {
    const char quote = static_cast<char>(text_.quote);
    for (int64_t at = open + 1; at < text_.size; at += 2) {
      const void* found = std::memchr(text_.data + at, quote, text_.size - at);
      if (found == nullptr) return false;
      at = static_cast<const char*>(found) - text_.data;
      if (text_.data[at + 1] != quote) {
        close_ = static_cast<uint32_t>(at);
        return true;
      }
    }
    return false;
  }

  uint32_t step_of(int64_t place) const { return place == 0 ? 1 : static_cast<uint32_t>(text_.separator_size); }

  // The strings of columns that had no long one yet.
  void fill_shorts() {
    const int64_t num_columns = text_.num_columns;
    const Fields fields{words_, sizes_, STRIDE};
    const uint32_t separator_size = static_cast<uint32_t>(text_.separator_size);
    while (!gather_fields(text_.data, found_.ends, rows_, num_columns, separator_size, runs_.data(),
                          static_cast<int64_t>(runs_.size()), fields)) {
      sort_out();
    }
    for (size_t k = 0; k < short_.size(); ++k) {
      Leaf& leaf = columns_[short_[k]].entries;
      uint64_t* words = words_ + k * STRIDE;
      uint8_t* sizes = sizes_ + k * STRIDE;
      leaf.shorts = words;
      leaf.sizes = sizes;
      if (found_.has_returns && text_.wanted[short_[k]] + 1 == num_columns) drop_returns(words, sizes);
      if (text_.num_missing > 1) drop_missing(words, sizes);
    }
  }

  // Moves the columns with a long string to the long ones.
  void sort_out() {
    std::vector<int64_t> still_short;
    for (const int64_t i : short_) {
      const int64_t place = text_.wanted[i];
      const uint32_t step = step_of(place), *ends = found_.ends + place;
      uint32_t longest = 0;
      for (int64_t row = 0; row < rows_; ++row) {
        longest = std::max(longest, ends[row * text_.num_columns] - ends[row * text_.num_columns - 1] - step);
      }
      if (longest <= 8) {
        still_short.push_back(i);
      } else {
        columns_[i].entries.shorts = nullptr;
        long_.push_back(i);
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
    if (spans_[i] == nullptr) spans_[i] = room_.array<Span>(TEXT_ROWS);
    columns_[i].entries.spans = spans_[i];
    const uint32_t step = step_of(place), *ends = found_.ends + place;
    for (int64_t row = 0; row < rows_; ++row, ends += text_.num_columns) {
      const uint32_t begin = ends[-1] + step;
      spans_[i][row] = string_of(begin, end_of(place, begin, ends[0]));
    }
  }

  uint32_t end_of(int64_t place, uint32_t begin, uint32_t end) const {
    const bool may_return = found_.has_returns && place + 1 == text_.num_columns && end > begin;
    return may_return && text_.data[end - 1] == '\r' ? end - 1 : end;
  }

  Span string_of(uint32_t begin, uint32_t end) {
    Span string{text_.data + begin, static_cast<int64_t>(end) - begin};
    const char quote = static_cast<char>(text_.quote);
    if (has_quotes() && string.size > 0 && string.data[0] == quote) {
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
    char* out = room_.array<char>(string.size);
    int64_t size = 0;
    for (int64_t i = 0; i < string.size; ++i) {
      out[size++] = string.data[i];
      if (string.data[i] == quote) ++i;  // the second one
    }
    return {out, size};
  }

  const EncodedText& text_;
  Room& room_;
  std::vector<Column>& columns_;
  std::vector<int64_t> short_, long_;  // the wanted columns, by whether a long string was seen
  std::vector<Span*> spans_;           // by wanted column
  uint64_t* words_;
  uint8_t* sizes_;
  std::vector<Run> runs_;  // of the short ones
  Found found_{};
  int64_t at_ = 0;      // the bytes that were searched
  int64_t rows_ = 0;    // of the current block
  uint32_t close_ = 0;  // the closing quote of the field that is open; 0: none is known
  bool is_plain_, is_filtered_;
};

}  // namespace sparrow
