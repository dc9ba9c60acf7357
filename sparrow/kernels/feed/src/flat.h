// The entries of a block of rows: of single values, of lists, or of strings with separators.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "arrow.h"
#include "entries.h"

namespace sparrow {

// The entries of a block of rows, and their number in each row.
struct Flat {
  Entries entries;
  bool is_single = true;  // one per row: `lengths` is empty
  std::vector<int64_t> lengths;
  std::vector<Span> texts;

  int64_t length(int64_t row) const { return is_single ? 1 : lengths[row]; }
};

inline Span text_of(const Leaf& leaf, int64_t i, bool& is_damaged) {
  if (leaf.words.empty()) return leaf.text(i);
  if (leaf.is_missing(i)) return {nullptr, 0};
  const int64_t word = leaf.integer(i);
  if (word < 0 || word >= leaf.words[0].length) {
    is_damaged = true;
    return {nullptr, 0};
  }
  return leaf.words[0].text(word);
}

inline bool holds_texts(const Leaf& leaf) { return leaf.words.empty() ? leaf.is_text() : leaf.words[0].is_text(); }

// False where the reference must look.
inline bool flatten(const Column& column, std::string_view separator, int64_t begin, int64_t end, Flat& flat) {
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
inline bool cut_weights(std::string_view separator, Flat& flat, std::vector<Span>& after) {
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

}  // namespace sparrow
