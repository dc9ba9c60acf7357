// Entries of a column as integers, numbers, or 64-bit keys, a block at a time, each with a state; and those of rows that
// hold single values, lists, or strings with separators.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "arrow.h"
#include "hash.h"
#include "scratch.h"
#include "shorts.h"

namespace sparrow {

// UNSURE: whether it is good is for the reference to decide, such as a number written in an unusual way.
enum State : uint8_t { GOOD = 0, MISSING = 1, BAD = 2, UNSURE = 4 };

// Entries to read: of an array from `begin` on, or strings that were cut out of others.
struct Entries {
  const Leaf* leaf = nullptr;
  int64_t begin = 0, count = 0;
  const Span* texts = nullptr;  // not null: these, and no leaf

  bool is_text() const { return texts != nullptr || leaf->is_text(); }
  Span text(int64_t i) const { return texts != nullptr ? texts[i] : leaf->text(begin + i); }
  bool is_short() const { return texts == nullptr && leaf->shorts != nullptr; }
  const uint64_t* shorts() const { return leaf->shorts + leaf->offset + begin; }
  const uint8_t* sizes() const { return leaf->sizes + leaf->offset + begin; }
};

// The string without the spaces around it.
inline Span trimmed(Span text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t'; };
  while (text.size > 0 && is_space(text.data[text.size - 1])) --text.size;
  for (; text.size > 0 && is_space(text.data[0]); --text.size) ++text.data;
  return text;
}

inline State parse_integer(Span text, int64_t& value) {
  value = 0;
  text = trimmed(text);
  if (text.data == nullptr || text.size == 0) return MISSING;
  const bool is_negative = text.data[0] == '-';
  if (text.size - is_negative > 18 || text.size == is_negative) return UNSURE;
  int64_t number = 0;
  for (int64_t i = is_negative; i < text.size; ++i) {
    const unsigned digit = static_cast<unsigned char>(text.data[i]) - '0';
    if (digit > 9) return UNSURE;
    number = number * 10 + digit;
  }
  value = is_negative ? -number : number;
  return GOOD;
}

// A number such as -12.75 of at most 15 digits: they and the power of ten are exact, so their quotient is rounded once.
// False: it has another form.
inline bool parse_decimal(Span text, double& value) {
  static constexpr double POWERS[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14};
  const bool is_negative = text.data[0] == '-';
  const char *const begin = text.data + is_negative, *const end = text.data + text.size, *point = nullptr;
  if (end - begin > 16) return false;
  int64_t digits = 0;
  for (const char* at = begin; at < end; ++at) {
    const unsigned digit = static_cast<unsigned char>(*at) - '0';
    if (digit <= 9) {
      digits = digits * 10 + digit;
    } else if (*at == '.' && point == nullptr) {
      point = at;
    } else {
      return false;
    }
  }
  if (point == nullptr || point == begin || point + 1 == end) return false;
  value = static_cast<double>(digits) / POWERS[end - point - 1];
  if (is_negative) value = -value;
  return true;
}

inline State parse_number(Span text, double& value) {
  value = 0;
  text = trimmed(text);
  if (text.data == nullptr || text.size == 0) return MISSING;
  int64_t whole;
  if (text.size <= 15 && parse_integer(text, whole) == GOOD) {
    value = text.data[0] == '-' ? -static_cast<double>(-whole) : static_cast<double>(whole);  // "-0" is a number too
    return GOOD;
  }
  if (parse_decimal(text, value)) return GOOD;
  for (int64_t i = 0; i < text.size; ++i) {
    if (!is_one_of(text.data[i], "0123456789.eE+-")) return UNSURE;
  }
  const auto read = std::from_chars(text.data, text.data + text.size, value);
  if (read.ec != std::errc() || read.ptr != text.data + text.size || !std::isfinite(value)) return UNSURE;
  return GOOD;
}

inline State whole_number(double number, int64_t& value) {
  value = 0;
  if (std::isnan(number)) return MISSING;
  if (number != std::floor(number) || std::abs(number) > 9007199254740992.0) return BAD;
  value = static_cast<int64_t>(number);
  return GOOD;
}

inline State finite_number(double number, double& value) {
  value = std::isfinite(number) ? number : 0.0;
  return std::isfinite(number) ? GOOD : std::isnan(number) ? MISSING : BAD;
}

inline bool bit_at(const void* data, int64_t i) { return static_cast<const uint8_t*>(data)[i >> 3] >> (i & 7) & 1; }

// Calls put(i, State, value) for entries that are integers or become such.
template <class T, class Put>
void each_plain(const Leaf& leaf, int64_t begin, int64_t count, Put&& put) {
  const T* data = static_cast<const T*>(leaf.data) + leaf.offset + begin;
  if (leaf.valid == nullptr) {
    for (int64_t i = 0; i < count; ++i) put(i, GOOD, data[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) {
      const bool missing = leaf.is_missing(begin + i);
      put(i, missing ? MISSING : GOOD, missing ? T{0} : data[i]);
    }
  }
}

template <class Put>
void each_stored(const Entries& entries, Put&& put) {
  const Leaf& leaf = *entries.leaf;
  const int64_t begin = entries.begin, count = entries.count;
  switch (leaf.type) {
    case 'c': return each_plain<int8_t>(leaf, begin, count, put);
    case 'C': return each_plain<uint8_t>(leaf, begin, count, put);
    case 's': return each_plain<int16_t>(leaf, begin, count, put);
    case 'S': return each_plain<uint16_t>(leaf, begin, count, put);
    case 'i': return each_plain<int32_t>(leaf, begin, count, put);
    case 'I': return each_plain<uint32_t>(leaf, begin, count, put);
    case 'l': return each_plain<int64_t>(leaf, begin, count, put);
    case 'L': return each_plain<uint64_t>(leaf, begin, count, put);
    case 'f': return each_plain<float>(leaf, begin, count, put);
    case 'g': return each_plain<double>(leaf, begin, count, put);
    default:
      for (int64_t i = 0; i < count; ++i) {
        const bool missing = leaf.is_missing(begin + i);
        put(i, missing ? MISSING : GOOD, static_cast<uint8_t>(!missing && bit_at(leaf.data, leaf.offset + begin + i)));
      }
  }
}

// The states of strings of which the empty ones are missing.
inline uint8_t states_of(const uint8_t* sizes, int64_t count, uint8_t* states) {
  uint8_t seen = 0;
  for (int64_t i = 0; i < count; ++i) seen |= states[i] = sizes[i] == 0 ? MISSING : GOOD;
  return seen;
}

// Strings in words, as integers; `parse(string, value)` reads the ones that hold more than digits.
template <class T, class Parse>
uint8_t parse_words(const Entries& entries, T* values, uint8_t* states, Parse&& parse) {
  constexpr int64_t AT_ONCE = 256;
  int64_t whole[AT_ONCE];
  uint8_t odd[AT_ONCE], seen = 0;
  for (int64_t first = 0; first < entries.count; first += AT_ONCE) {
    const int64_t count = std::min(AT_ONCE, entries.count - first);
    const bool some_odd = parse_shorts(entries.shorts() + first, entries.sizes() + first, count, whole, odd);
    seen |= states_of(entries.sizes() + first, count, states + first);
    for (int64_t i = 0; i < count; ++i) values[first + i] = static_cast<T>(whole[i]);
    for (int64_t i = 0; some_odd && i < count; ++i) {
      if (odd[i]) seen |= states[first + i] = parse(entries.text(first + i), values[first + i]);
    }
  }
  return seen;
}

// Each function below fills values[0, count) and states[0, count), and returns all states that occur, joined.

// `parse` reads strings, and `of_float` numbers with a fraction; others are cast.
template <class T, class Parse, class OfFloat>
uint8_t parsed(const Entries& entries, T* values, uint8_t* states, Parse&& parse, OfFloat&& of_float) {
  uint8_t seen = 0;
  if (entries.is_short()) return parse_words(entries, values, states, parse);
  if (entries.is_text()) {
    for (int64_t i = 0; i < entries.count; ++i) seen |= states[i] = parse(entries.text(i), values[i]);
    return seen;
  }
  each_stored(entries, [&](int64_t i, State state, auto value) {
    if constexpr (std::is_floating_point_v<decltype(value)>) {
      if (state == GOOD) state = of_float(static_cast<double>(value), values[i]);
      else values[i] = 0;
    } else {
      values[i] = static_cast<T>(value);
    }
    seen |= states[i] = state;
  });
  return seen;
}

inline uint8_t integers(const Entries& entries, int64_t* values, uint8_t* states) {
  return parsed(entries, values, states, parse_integer, whole_number);
}

inline uint8_t numbers(const Entries& entries, double* values, uint8_t* states) {
  return parsed(entries, values, states, parse_number, finite_number);
}

inline uint8_t hashes(const Entries& entries, bool as_integer, uint64_t* values, uint8_t* states) {
  uint8_t seen = 0;
  if (entries.is_short() && !as_integer) {
    hash_shorts(entries.shorts(), entries.sizes(), entries.count, values);
    return states_of(entries.sizes(), entries.count, states);
  }
  if (entries.is_text() && !as_integer) {
    for (int64_t i = 0; i < entries.count; ++i) {
      const Span text = entries.text(i);
      const State state = text.data == nullptr || text.size == 0 ? MISSING : GOOD;
      values[i] = state == GOOD ? hash_text(text) : 0;
      seen |= states[i] = state;
    }
    return seen;
  }
  static_assert(sizeof(int64_t) == sizeof(uint64_t));
  seen = integers(entries, reinterpret_cast<int64_t*>(values), states);
  for (int64_t i = 0; i < entries.count; ++i) values[i] = mix64(values[i]);
  return seen;
}

// Runs `convert(entries, values, states)` on the distinct words of a dictionary once, and spreads the results.
template <class T>
class Spread {
 public:
  static constexpr int64_t AT_ONCE = 512;  // words in one call

  explicit Spread(Scratch& scratch) : scratch_(&scratch) {}

  bool is_ready() const { return words_ != nullptr; }
  uint8_t seen() const { return seen_; }  // the states of all words, joined
  const T* words() const { return words_; }

  // Takes results that are known, all of them good.
  void use(const T* words) { words_ = words; }

  template <class Convert>
  void prepare(const Leaf& words, Convert&& convert) {
    T* made = scratch_->array<T>(words.length);
    states_ = scratch_->array<uint8_t>(words.length);
    words_ = made;
    Entries some;
    some.leaf = &words;
    for (; some.begin < words.length; some.begin += AT_ONCE) {
      some.count = std::min(AT_ONCE, words.length - some.begin);
      seen_ |= convert(some, made + some.begin, states_ + some.begin);
    }
  }

  template <class Convert>
  uint8_t operator()(const Entries& entries, T* values, uint8_t* states, Convert&& convert) {
    if (entries.texts != nullptr || entries.leaf->words.empty()) return convert(entries, values, states);
    const Leaf& leaf = *entries.leaf;
    const int64_t words = leaf.words[0].length;
    if (!is_ready()) prepare(leaf.words[0], convert);
    if (leaf.is_checked && words > 0) return checked(leaf, entries.begin, entries.count, values, states);
    uint8_t seen = 0;
    for (int64_t i = 0; i < entries.count; ++i) {
      if (leaf.is_missing(entries.begin + i)) {
        values[i] = T{0};
        seen |= states[i] = MISSING;
        continue;
      }
      const int64_t word = leaf.integer(entries.begin + i);
      if (word < 0 || word >= words) {  // damaged
        values[i] = T{0};
        seen |= states[i] = UNSURE;
        continue;
      }
      values[i] = words_[word];
      seen |= states[i] = states_ == nullptr ? uint8_t{GOOD} : states_[word];
    }
    return seen;
  }

 private:
  // Places that are known to be in the dictionary; the place of a missing entry is any. Without branches.
  uint8_t checked(const Leaf& leaf, int64_t begin, int64_t count, T* values, uint8_t* states) const {
    const int32_t* places = static_cast<const int32_t*>(leaf.data) + leaf.offset + begin;
    uint8_t seen = 0;
    for (int64_t i = 0; i < count; ++i) {
      const uint8_t missing = leaf.is_missing(begin + i) ? MISSING : GOOD;
      const uint8_t state = missing | (states_ == nullptr ? uint8_t{GOOD} : states_[places[i]]);
      const T value = words_[places[i]];
      values[i] = missing ? T{0} : value;
      seen |= states[i] = missing ? missing : state;
    }
    return seen;
  }

  Scratch* scratch_;
  uint8_t seen_ = GOOD;
  const T* words_ = nullptr;
  uint8_t* states_ = nullptr;  // null: all are good
};

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
