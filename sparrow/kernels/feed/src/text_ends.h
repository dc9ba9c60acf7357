// The ends of the fields of delimited text, a block of rows at a time. All that is not known here, and every malformed
// line, is left to the reference.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "arrow.h"
#include "scratch.h"
#include "text_index.h"
#include "tile.h"

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

// Whether bytes are UTF-8, as Python's strict decoder has it: neither surrogates nor longer forms than needed.
inline bool is_utf8(const char* data, int64_t size) {
  const auto* at = reinterpret_cast<const unsigned char*>(data);
  const unsigned char* const end = at + size;
  const auto continues = [](unsigned char byte) { return (byte & 0xC0) == 0x80; };
  while (at < end) {
    if (end - at >= 8) {
      uint64_t eight;
      std::memcpy(&eight, at, 8);
      if ((eight & 0x8080808080808080) == 0) {
        at += 8;
        continue;
      }
    }
    const unsigned char lead = *at;
    if (lead < 0x80) {
      ++at;
      continue;
    }
    const int64_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (lead < 0xC2 || lead > 0xF4 || end - at < length) return false;
    for (int64_t i = 1; i < length; ++i) {
      if (!continues(at[i])) return false;
    }
    const bool is_long = (lead == 0xE0 && at[1] < 0xA0) || (lead == 0xF0 && at[1] < 0x90);
    const bool is_surrogate = lead == 0xED && at[1] > 0x9F, is_beyond = lead == 0xF4 && at[1] > 0x8F;
    if (is_long || is_surrogate || is_beyond) return false;
    at += length;
  }
  return true;
}

class TextEnds {
 public:
  TextEnds(const EncodedText& text, Scratch& scratch) : text_(text), is_filtered_(text.separator_size > 1) {
    const int64_t most = TEXT_ROWS * text.num_columns + PIECE;
    found_.ends = scratch.array<uint32_t>(most + 32) + 16;  // and the end before the first one
    found_.breaks = scratch.array<int64_t>(most + 16);
    found_.begins_field = 1;
    found_.ends[-1] = UINT32_MAX;  // one before the first byte
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

  // Finds the ends of the next rows. Returns the number of these; 0: there are no more; -1: the reference must look.
  int64_t next() {
    drop();
    while (found_.lines < TEXT_ROWS && at_ < text_.size) {
      if (!search()) return -1;
    }
    rows_ = std::min(found_.lines, TEXT_ROWS);
    for (int64_t row = 0; row < rows_; ++row) {
      if (found_.breaks[row] != (row + 1) * text_.num_columns - 1) return -1;  // another number of fields
    }
    return rows_ == 0 && (found_.count != 0 || close_ != 0) ? -1 : rows_;
  }

  // The ends of the rows, and before them the end of the row that precedes them.
  const uint32_t* ends() const { return found_.ends; }
  // Whether a field so far begins with a quote.
  bool has_quotes() const { return is_filtered_ && text_.quote >= 0; }
  // Whether a line so far ends with a carriage return and a line break.
  bool has_returns() const { return found_.has_returns; }

 private:
  static constexpr int64_t PIECE = 4096;  // bytes that are searched at a time

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
    // More ends than the rows may have: one of them has too many fields.
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

  const EncodedText& text_;
  Found found_{};
  int64_t at_ = 0;      // the bytes that were searched
  int64_t rows_ = 0;    // of the current block
  uint32_t close_ = 0;  // the closing quote of the field that is open; 0: none is known
  bool is_filtered_;    // whether some of the ends that were found end no field
  bool is_plain_;
};

}  // namespace sparrow
