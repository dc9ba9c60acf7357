// Columns in memory, as Arrow's C data interface hands them over: https://arrow.apache.org/docs/format/CDataInterface.html
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

extern "C" {

struct ArrowSchema {
  const char* format;
  const char* name;
  const char* metadata;
  int64_t flags;
  int64_t n_children;
  ArrowSchema** children;
  ArrowSchema* dictionary;
  void (*release)(ArrowSchema*);
  void* private_data;
};

struct ArrowArray {
  int64_t length;
  int64_t null_count;
  int64_t offset;
  int64_t n_buffers;
  int64_t n_children;
  const void** buffers;
  ArrowArray** children;
  ArrowArray* dictionary;
  void (*release)(ArrowArray*);
  void* private_data;
};

}  // extern "C"

namespace sparrow {

inline bool is_one_of(char c, const char* set) { return c != '\0' && std::strchr(set, c) != nullptr; }

// The integer of one of Arrow's types at place i, widened; an unsigned one of 64 bits keeps its bits.
inline int64_t integer_at(char type, const void* data, int64_t i) {
  switch (type) {
    case 'c': return static_cast<const int8_t*>(data)[i];
    case 'C': return static_cast<const uint8_t*>(data)[i];
    case 's': return static_cast<const int16_t*>(data)[i];
    case 'S': return static_cast<const uint16_t*>(data)[i];
    case 'i': return static_cast<const int32_t*>(data)[i];
    case 'I': return static_cast<const uint32_t*>(data)[i];
    default: return static_cast<const int64_t*>(data)[i];
  }
}

// A text: missing where `data` is null.
struct Span {
  const char* data;
  int64_t size;
};

// An Arrow array without nesting. `type` is Arrow's own letter; a dictionary's words are held besides the indices.
struct Leaf {
  char type = 0;
  const uint8_t* valid = nullptr;  // a bit per entry; null: none is missing
  const void* data = nullptr;
  const void* offsets = nullptr;  // offsets of strings
  const Span* spans = nullptr;    // not null: the strings themselves
  const uint64_t* shorts = nullptr;  // not null: the strings, of at most eight bytes, each in a word; empty ones are missing
  const uint8_t* sizes = nullptr;    // their sizes
  int64_t offset = 0, length = 0;
  std::vector<Leaf> words;  // the words of a dictionary; at most one
  bool is_checked = false;  // whether every place in the dictionary is known to be one

  bool is_text() const { return is_one_of(type, "uU"); }
  bool is_missing(int64_t i) const {
    return valid != nullptr && !(valid[(offset + i) >> 3] >> ((offset + i) & 7) & 1);
  }
  int64_t integer(int64_t i) const { return integer_at(type, data, offset + i); }
  Span text(int64_t i) const {
    if (is_missing(i)) return {nullptr, 0};
    const int64_t at = offset + i;
    if (spans != nullptr) return spans[at];
    if (shorts != nullptr) return {sizes[at] == 0 ? nullptr : reinterpret_cast<const char*>(shorts + at), sizes[at]};
    const char* bytes = static_cast<const char*>(data);
    if (type == 'u') {
      const int32_t* ends = static_cast<const int32_t*>(offsets);
      return {bytes == nullptr ? "" : bytes + ends[at], ends[at + 1] - ends[at]};
    }
    const int64_t* ends = static_cast<const int64_t*>(offsets);
    return {bytes == nullptr ? "" : bytes + ends[at], ends[at + 1] - ends[at]};
  }
};

// False where the type is one that this code does not read.
inline bool read_leaf(const ArrowSchema& schema, const ArrowArray& array, Leaf& leaf) {
  const char* format = schema.format;
  if (format[0] == '\0' || format[1] != '\0' || !is_one_of(format[0], "cCsSiIlLbfguU")) return false;
  leaf.type = format[0];
  leaf.offset = array.offset;
  leaf.length = array.length;
  leaf.valid = array.null_count == 0 ? nullptr : static_cast<const uint8_t*>(array.buffers[0]);
  if (leaf.is_text()) {
    leaf.offsets = array.buffers[1];
    leaf.data = array.buffers[2];
    if (leaf.offsets == nullptr && array.length > 0) return false;
  } else {
    leaf.data = array.buffers[1];
  }
  if (schema.dictionary == nullptr) return true;
  leaf.words.resize(1);
  return schema.dictionary->dictionary == nullptr && read_leaf(*schema.dictionary, *array.dictionary, leaf.words[0]);
}

// A column: entries, and the lists that hold them, if any.
struct Column {
  Leaf entries;
  bool is_list = false;
  const uint8_t* valid = nullptr;  // the mask of lists
  int64_t offset = 0;
  const void* ends = nullptr;  // offsets of lists, 32 or 64 bits
  bool is_wide = false;
  int64_t each = 0;  // entries of every list, where it is the same for all

  bool is_missing(int64_t row) const {
    return valid != nullptr && !(valid[(offset + row) >> 3] >> ((offset + row) & 7) & 1);
  }
  int64_t start(int64_t row) const {
    if (ends == nullptr) return (offset + row) * each;
    return is_wide ? static_cast<const int64_t*>(ends)[offset + row] : static_cast<const int32_t*>(ends)[offset + row];
  }
};

inline bool read_column(const ArrowSchema& schema, const ArrowArray& array, Column& column) {
  const char* format = schema.format;
  if (format[0] != '+') return read_leaf(schema, array, column.entries);
  column.is_list = true;
  column.offset = array.offset;
  column.valid = array.null_count == 0 ? nullptr : static_cast<const uint8_t*>(array.buffers[0]);
  if (std::strncmp(format, "+w:", 3) == 0) {
    column.each = std::atoll(format + 3);
    if (column.valid != nullptr) return false;  // a missing list spans entries all the same
  } else if (format[1] == 'l' || format[1] == 'L') {
    column.is_wide = format[1] == 'L';
    column.ends = array.buffers[1];
    if (column.ends == nullptr && array.length > 0) return false;
  } else {
    return false;
  }
  return schema.n_children == 1 && read_leaf(*schema.children[0], *array.children[0], column.entries);
}

}  // namespace sparrow
