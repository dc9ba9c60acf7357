// A column of a Parquet row group as an Arrow column, straight from the bytes of its pages.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "arrow.h"
#include "hybrid.h"
#include "page_header.h"
#include "scratch.h"
#include "unpack.h"

extern "C" {

// The pages of a column, and its form. Mirrored by sparrow/kernels/feed/parquet.py: every field has 8 bytes.
struct EncodedColumn {
  const uint8_t* data;  // with SLACK behind it
  int64_t size;
  int64_t type;   // Arrow's letter: i I l L f g b u
  int64_t codec;  // 0: none, 1: Snappy
  int64_t values; // with the missing ones
  int64_t is_list;
  int64_t list_may_miss, entry_may_miss;
  int64_t each;   // the number of values of every list; 0: any
  int64_t least, most;  // integers outside do not fit the column's type; both 0: all do
};

}  // extern "C"

namespace sparrow {

// Decodes one column. All that is not as it should be, or not known here, makes `decode` return false.
class ColumnDecoder {
 public:
  ColumnDecoder(const EncodedColumn& from, int64_t rows, Scratch& scratch, Column& column)
      : from_(from), rows_(rows), scratch_(scratch), column_(column), leaf_(column.entries) {
    most_ = from.entry_may_miss + (from.is_list ? 1 + from.list_may_miss : 0);
    entry_level_ = most_ - static_cast<int>(from.entry_may_miss);
  }

  bool decode() {
    if (rows_ < 0 || !look()) return false;
    column_.is_list = from_.is_list;
    if (from_.is_list) {
      ends_ = scratch_.array<int32_t>(rows_ + 8);
      ends_[0] = 0;
      column_.ends = ends_;
    } else if (from_.values != rows_) {
      return false;
    }
    leaf_.type = all_in_dictionary_ ? 'i' : type() == 'b' ? 'C' : type();
    make_values();
    PageWalk walk = pages();
    while (walk.next()) {
      const bool is_words = walk.header.type == DICTIONARY_PAGE;
      if (!(is_words ? dictionary(walk.header, walk.body) : data(walk.header, walk.body))) return false;
    }
    if (from_.is_list) {
      if (row_ != rows_) return false;
      ends_[rows_] = static_cast<int32_t>(entries_);
      for (int64_t row = 0; from_.each > 0 && row < rows_; ++row) {
        if (ends_[row + 1] - ends_[row] != from_.each) return false;
      }
    }
    leaf_.length = entries_;
    if (is_narrow() && !(fits(words_.data, words_.length) && (all_in_dictionary_ || fits(values_, entries_)))) return false;
    if (all_in_dictionary_) {
      leaf_.words.push_back(words_);
      leaf_.is_checked = true;
    }
    return true;
  }

 private:
  char type() const { return static_cast<char>(from_.type); }
  PageWalk pages() const {
    const int64_t least = type() == 'b' ? 0 : type() == 'u' ? 4 : width();
    return PageWalk({from_.data, from_.size, from_.values, from_.codec, least});
  }
  bool is_narrow() const { return from_.least != from_.most; }

  // Whether integers fit the type of the column: the type of pages may have more bits.
  bool fits(const void* data, int64_t count) const {
    bool is_in = true;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t value = integer_at(type(), data, i);
      is_in &= value >= from_.least && value <= from_.most;
    }
    return is_in;
  }

  static bool is_place(int64_t encoding) { return encoding == PLAIN_DICTIONARY || encoding == RLE_DICTIONARY; }
  bool is_spans() const { return type() == 'u' && !all_in_dictionary_; }
  int64_t width() const { return type() == 'b' ? 1 : is_one_of(type(), "iIf") ? 4 : 8; }
  int64_t stride() const { return all_in_dictionary_ ? 4 : is_spans() ? static_cast<int64_t>(sizeof(Span)) : width(); }

  void make_values() {
    values_ = scratch_.array<uint8_t>((from_.values + 8) * stride());
    if (is_spans()) {
      leaf_.spans = reinterpret_cast<const Span*>(values_);
    } else {
      leaf_.data = values_;
    }
  }

  // Whether the pages are as the footer has them; finds out whether every value is a place in the dictionary.
  bool look() {
    if (from_.values < 0 || from_.values >= (int64_t{1} << 31) - 8) return false;
    PageWalk walk = pages();
    while (walk.next()) {
      if (walk.header.is_data()) all_in_dictionary_ &= walk.header.is_place();
    }
    all_in_dictionary_ &= walk.has_dictionary;
    return walk.problem == nullptr;
  }

  // The uncompressed bytes, `size` of them; null: damaged.
  const uint8_t* uncompressed(const uint8_t* in, int64_t compressed, int64_t size, bool is_compressed) {
    if (from_.codec == UNCOMPRESSED || !is_compressed) return in;
    uint8_t* out = scratch_.array<uint8_t>(size);
    return unsnap(in, compressed, out, size) ? out : nullptr;
  }

  bool dictionary(const PageHeader& header, const uint8_t* body) {
    const uint8_t* in = uncompressed(body, header.compressed, header.uncompressed, true);
    if (in == nullptr) return false;
    has_words_ = true;
    words_.type = type();
    words_.length = header.values;
    if (type() == 'u') {
      Span* spans = scratch_.array<Span>(header.values);
      words_.spans = spans;
      return texts(in, in + header.uncompressed, header.values, spans);
    }
    if (reinterpret_cast<uintptr_t>(in) % 8 != 0) {
      uint8_t* aligned = scratch_.array<uint8_t>(header.uncompressed);
      std::memcpy(aligned, in, header.uncompressed);
      in = aligned;
    }
    words_.data = in;
    return true;
  }

  static bool texts(const uint8_t* in, const uint8_t* end, int64_t count, Span* out) {
    for (int64_t i = 0; i < count; ++i) {
      uint32_t size;
      if (end - in < 4) return false;
      std::memcpy(&size, in, 4);
      in += 4;
      if (size > static_cast<uint64_t>(end - in)) return false;
      out[i] = {reinterpret_cast<const char*>(in), static_cast<int64_t>(size)};
      in += size;
    }
    return true;
  }

  bool data(const PageHeader& header, const uint8_t* body) {
    const int64_t count = header.values;
    const uint8_t* levels[2] = {nullptr, nullptr};  // repetition, definition
    const uint8_t* level_ends[2] = {nullptr, nullptr};
    const bool has[2] = {from_.is_list != 0, most_ > 0};
    const uint8_t *in, *in_end;
    if (header.type == DATA_PAGE) {
      in = uncompressed(body, header.compressed, header.uncompressed, true);
      if (in == nullptr) return false;
      in_end = in + header.uncompressed;
      for (int which = 0; which < 2; ++which) {
        if (!has[which]) continue;
        uint32_t size;
        if (header.level_encodings[1 - which] != RLE || in_end - in < 4) return false;
        std::memcpy(&size, in, 4);
        in += 4;
        if (size > static_cast<uint64_t>(in_end - in)) return false;
        levels[which] = in;
        level_ends[which] = in += size;
      }
    } else {
      const int64_t definition = header.level_bytes[0], repetition = header.level_bytes[1];
      levels[0] = body;
      level_ends[0] = levels[1] = body + repetition;
      level_ends[1] = levels[1] + definition;
      const int64_t rest = header.compressed - definition - repetition;
      const int64_t size = header.uncompressed - definition - repetition;
      in = rest == 0 && size == 0 ? level_ends[1] : uncompressed(level_ends[1], rest, size, header.is_compressed);
      if (in == nullptr) return false;
      in_end = in + size;
    }
    const int bits = most_ > 1 ? 2 : 1;
    Hybrid definitions(levels[1], level_ends[1], most_ == 0 ? 0 : bits);
    Hybrid repetitions(levels[0], level_ends[0], 1);
    if (most_ == 0 || definitions.is_run_of(most_, count)) {
      if (from_.is_list && !whole_lists(repetitions, count)) return false;
      if (!values(header.encoding, in, in_end, count)) return false;
      entries_ += count;
      return true;
    }
    uint8_t* defined = scratch_.array<uint8_t>(count + 8);
    if (!definitions.read(count, defined)) return false;
    const int64_t first = entries_;
    int64_t present = 0;
    if (!(from_.is_list ? lists(repetitions, defined, count, present) : single(defined, count, present))) return false;
    return spread(header.encoding, in, in_end, first, present);
  }

  // Lists of which none is missing or empty, and no entry is missing: a row begins at each level that is zero.
  bool whole_lists(Hybrid& repetitions, int64_t count) {
    const int64_t first = row_;
    int64_t at = entries_;
    const bool is_whole = repetitions.walk(
        count,
        [&](const uint8_t* bits, int64_t own) {
          for (int64_t done = 0; done < own; done += 64, bits += 8) {
            uint64_t begins;
            std::memcpy(&begins, bits, 8);
            begins = ~begins;
            if (own - done < 64) begins &= (uint64_t{1} << (own - done)) - 1;
            if (__builtin_popcountll(begins) > rows_ - row_) return false;
            for (; begins != 0; begins &= begins - 1) {
              ends_[row_++] = static_cast<int32_t>(at + done + __builtin_ctzll(begins));
            }
          }
          at += own;
          return true;
        },
        [&](uint32_t level, int64_t own) {
          if (level > 1 || (level == 0 && own > rows_ - row_)) return false;
          if (level == 0) {
            for (int64_t i = 0; i < own; ++i) ends_[row_ + i] = static_cast<int32_t>(at + i);
            row_ += own;
          }
          at += own;
          return true;
        });
    const bool begins_list = row_ > first && ends_[first] == entries_;
    if (!is_whole || (count > 0 && !begins_list && !is_in_list_)) return false;
    is_in_list_ |= count > 0;
    return true;
  }

  bool lists(Hybrid& repetitions, uint8_t* defined, int64_t count, int64_t& present) {
    uint8_t* repeated = scratch_.array<uint8_t>(count + 8);
    if (!repetitions.read(count, repeated)) return false;
    const Levels levels = count_levels(repeated, defined, count, entry_level_, most_);
    if (levels.highest > most_ || levels.begins > rows_ - row_) return false;
    const int64_t first_row = row_, first = entries_;
    int64_t row = row_, entry = entries_;
    bool is_wrong = false;
    for (int64_t i = 0; i < count; i += 64) {  // by row, not by entry
      const int64_t size = std::min<int64_t>(count - i, 64);
      uint64_t begins, empty;
      level_bits(repeated + i, defined + i, size, entry_level_, begins, empty);
      // A value that begins no row is an entry, and follows another entry.
      is_wrong |= (~begins & (empty | empty << 1 | !is_in_list_)) << (64 - size) != 0;
      is_in_list_ = !(empty >> (size - 1) & 1);
      const int64_t own = size - __builtin_popcountll(empty);
      for (; begins != 0; begins &= begins - 1) {
        const int at = __builtin_ctzll(begins);
        ends_[row++] = static_cast<int32_t>(entry + at - __builtin_popcountll(empty & ((uint64_t{1} << at) - 1)));
      }
      entry += own;
    }
    if (is_wrong) return false;
    row_ = row;
    entries_ = entry;
    present += entry - first - levels.missing;
    if (levels.missing > 0) {
      for (int64_t i = 0, at = first; i < count; at += defined[i++] >= entry_level_) {
        if (defined[i] >= entry_level_ && defined[i] < most_) clear(valid_, leaf_.valid, from_.values, at);
      }
    }
    if (from_.list_may_miss && levels.missing_lists > 0) {
      for (int64_t i = 0, at = first_row; i < count; at += repeated[i++] == 0) {
        if (repeated[i] == 0 && defined[i] == 0) clear(list_valid_, column_.valid, rows_, at);
      }
    }
    return true;
  }

  bool single(const uint8_t* defined, int64_t count, int64_t& present) {
    uint8_t highest = 0;
    int64_t own = 0;
    for (int64_t i = 0; i < count; ++i) {
      highest = std::max(highest, defined[i]);
      own += defined[i];
    }
    if (highest > 1) return false;
    present += own;
    for (int64_t i = 0; own < count && i < count;) {
      const int64_t at = entries_ + i;
      if (at % 8 != 0 || count - i < 8) {
        if (defined[i++] == 0) clear(valid_, leaf_.valid, from_.values, at);
        continue;
      }
      uint64_t eight;
      std::memcpy(&eight, defined + i, 8);
      full(valid_, leaf_.valid, from_.values);
      valid_[at >> 3] = static_cast<uint8_t>((eight * 0x0102040810204080u) >> 56);  // a bit of each byte
      i += 8;
    }
    entries_ += count;
    return true;
  }

  // Makes a mask in which nothing is missing, unless there is one.
  void full(uint8_t*& mask, const uint8_t*& shown, int64_t size) {
    if (mask != nullptr) return;
    shown = mask = scratch_.array<uint8_t>(size / 8 + 1);
    std::memset(mask, 255, size / 8 + 1);
  }

  // Marks an entry as missing.
  void clear(uint8_t*& mask, const uint8_t*& shown, int64_t size, int64_t at) {
    full(mask, shown, size);
    mask[at >> 3] &= static_cast<uint8_t>(~(1 << (at & 7)));
  }

  // Values of the entries from `first` on that are present, each to its own place.
  bool spread(int64_t encoding, const uint8_t* in, const uint8_t* in_end, int64_t first, int64_t present) {
    const int64_t last = entries_;
    entries_ = first;
    if (!values(encoding, in, in_end, present)) return false;
    entries_ = last;
    if (present == last - first) return true;
    switch (stride()) {
      case 1: return spread_to<uint8_t>(first, last, present);
      case 4: return spread_to<uint32_t>(first, last, present);
      case 8: return spread_to<uint64_t>(first, last, present);
      default: return spread_to<Span>(first, last, present);
    }
  }

  template <class T>
  bool spread_to(int64_t first, int64_t last, int64_t present) {
    T* out = reinterpret_cast<T*>(values_);
    int64_t from = first + present;
    for (int64_t i = last - 1; i >= first; --i) {
      const bool is_there = !leaf_.is_missing(i);
      from -= is_there;
      if constexpr (std::is_integral_v<T>) {  // without a branch, which would go either way
        out[i] = static_cast<T>(out[from] & -static_cast<T>(is_there));
      } else {
        out[i] = is_there ? out[from] : T{};
      }
    }
    return from == first;
  }

  // Whether the bytes of a page without values have a meaning all the same.
  bool is_known(int64_t encoding, const uint8_t* in, const uint8_t* in_end) const {
    return is_place(encoding) ? has_words_ && (in == in_end || *in <= 32) : encoding == PLAIN;
  }

  // `count` values, to the places from `entries_` on.
  bool values(int64_t encoding, const uint8_t* in, const uint8_t* in_end, int64_t count) {
    if (count == 0) return is_known(encoding, in, in_end);
    if (is_place(encoding)) return in < in_end && *in <= 32 && places(in + 1, in_end, *in, count);
    return encoding == PLAIN && plain(in, in_end, count);
  }

  bool places(const uint8_t* in, const uint8_t* in_end, int width, int64_t count) {
    Hybrid codes(in, in_end, width);
    int32_t some[AT_ONCE + 8];
    for (int64_t at = entries_, own; count > 0; count -= own, at += own) {
      own = std::min(count, AT_ONCE);
      int32_t* places = all_in_dictionary_ ? reinterpret_cast<int32_t*>(values_) + at : some;
      if (!codes.read(own, places) || largest(places, own) >= static_cast<uint64_t>(words_.length)) return false;
      if (!all_in_dictionary_) look_up(places, own, at);
    }
    return true;
  }

  bool plain(const uint8_t* in, const uint8_t* in_end, int64_t count) {
    if (type() == 'u') return texts(in, in_end, count, reinterpret_cast<Span*>(values_) + entries_);
    if (type() == 'b') {
      if ((count + 7) / 8 > in_end - in) return false;
      for (int64_t i = 0; i < count; ++i) values_[entries_ + i] = in[i >> 3] >> (i & 7) & 1;
      return true;
    }
    if (count * width() > in_end - in) return false;
    std::memcpy(values_ + entries_ * width(), in, count * width());
    return true;
  }

  // Writes the words at some places, to the entries from `first` on.
  void look_up(const int32_t* places, int64_t count, int64_t first) {
    switch (stride()) {
      case 4: return copy_words<uint32_t>(words_.data, places, count, first);
      case 8: return copy_words<uint64_t>(words_.data, places, count, first);
      default: return copy_words<Span>(words_.spans, places, count, first);
    }
  }

  template <class T>
  void copy_words(const void* words, const int32_t* places, int64_t count, int64_t first) {
    T* out = reinterpret_cast<T*>(values_) + first;
    for (int64_t i = 0; i < count; ++i) std::memcpy(out + i, static_cast<const T*>(words) + places[i], sizeof(T));
  }

  static constexpr int64_t AT_ONCE = 1024;  // places, which stay in the cache
  const EncodedColumn& from_;
  const int64_t rows_;
  Scratch& scratch_;
  Column& column_;
  Leaf& leaf_;
  int most_ = 0, entry_level_ = 0;
  bool all_in_dictionary_ = true;
  bool has_words_ = false;
  Leaf words_;
  uint8_t* values_ = nullptr;
  uint8_t* valid_ = nullptr;
  uint8_t* list_valid_ = nullptr;
  int32_t* ends_ = nullptr;
  int64_t entries_ = 0, row_ = 0;
  bool is_in_list_ = false;  // whether the last level was one of an entry: the next entry may belong to the same list
};

}  // namespace sparrow
