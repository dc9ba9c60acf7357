// `NumberRunner`: numbers, and the buckets that they fall into.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "runner.h"
#include "unpack.h"

namespace sparrow {

class NumberRunner : public Runner {
 public:
  explicit NumberRunner(const Work& work) : Runner(work), by_word_(work.scratch) {}

  bool run(int64_t begin, int64_t end) override {
    const Column& column = *columns_[0];
    const bool is_single = !column.is_list && separator_.empty() && step_.dim == 1;
    if (has_words() && is_single && one_by_word(begin, end)) return true;
    if (is_single && are_floats(column.entries) && copy_floats(begin, end)) return true;
    if (!flatten(column, separator_, begin, end, flat_)) return false;
    const int64_t count = flat_.entries.count, dim = step_.dim;
    values_.resize(std::max<int64_t>(count, 1));
    states_.resize(std::max<int64_t>(count, 1));
    const uint8_t seen = by_word_(flat_.entries, values_.data(), states_.data(), numbers);
    if (seen & UNSURE) return false;
    if (flat_.is_single && dim == 1) return single(begin, count, seen);
    const double* from = values_.data();
    const uint8_t* state = states_.data();
    for (int64_t row = begin; row < end; ++row) {
      const int64_t length = flat_.length(row - begin);
      const bool is_absent = length == 0 && is_missing(column, row);
      if (length != dim && !is_absent) {
        bad_[row] = 1;
        for (int64_t k = 0; k < dim; ++k) put(row, row - begin, k, 0.0, false);
      } else {
        for (int64_t k = 0; k < dim; ++k) {
          const uint8_t is = is_absent ? uint8_t{MISSING} : state[k];
          if ((is & BAD) || ((is & MISSING) && step_.is_required)) bad_[row] = 1;
          put(row, row - begin, k, is & MISSING ? step_.fill : from[k], is & MISSING);
        }
      }
      from += length;
      state += length;
    }
    return true;
  }

 private:
  static constexpr int64_t FEW = 64;  // boundaries

  // One number per row.
  bool single(int64_t begin, int64_t count, uint8_t seen) {
    double* values = values_.data();
    const uint8_t* states = states_.data();
    const uint8_t wrong = step_.is_required ? BAD | MISSING : BAD;
    if (seen & wrong) {
      for (int64_t i = 0; i < count; ++i) bad_[begin + i] |= (states[i] & wrong) != 0;
    }
    if (is_transformed() && step_.known != nullptr && !step_.is_weight) {
      look_up(begin, count, values, states);
      return true;
    }
    if (seen & MISSING) {
      const double fill = step_.fill;
      for (int64_t i = 0; i < count; ++i) values[i] = states[i] & MISSING ? fill : values[i];
    }
    if (!is_transformed() && step_.kind != BUCKETS && !step_.has_limit && !step_.is_weight) {
      int32_t* to = out();
      for (int64_t i = 0; i < count; ++i) to[i] = bits_of(static_cast<float>(values[i]));
    } else {
      for (int64_t i = 0; i < count; ++i) put(begin + i, i, 0, values[i], states[i] & MISSING);
    }
    return true;
  }

  // Transforms one number per row.
  void look_up(int64_t begin, int64_t count, const double* values, const uint8_t* states) {
    const uint64_t end = limit();
    int32_t places[BLOCK], all = 0;
    for (int64_t i = 0; i < count; ++i) {
      const int32_t place = place_of(values[i], states[i] & MISSING, end);
      places[i] = place & ~(place >> 31);
      all |= place;
    }
    gather(reinterpret_cast<const int32_t*>(step_.known), places, count, out());
    for (int64_t i = 0; all < 0 && i < count; ++i) {
      if (place_of(values[i], states[i] & MISSING, end) < 0) later(begin + i, values[i]);
    }
  }

  // The place of a number's transform among the known ones; -1: it has none. Without branches, which would go either way.
  static int32_t place_of(double value, bool is_missing, uint64_t limit) {
    const uint64_t bits = order_of(value), is_small = bits < limit, small = bits & -is_small;
    double number;
    std::memcpy(&number, &small, sizeof number);
    const int32_t whole = static_cast<int32_t>(number);
    const bool is_known = is_small & (order_of(static_cast<double>(whole)) == bits);
    return ((whole + 1) | (static_cast<int32_t>(is_known) - 1)) & (static_cast<int32_t>(is_missing) - 1);
  }

  uint64_t limit() const { return order_of(static_cast<double>(step_.num_known)); }

  // An integer that is in the order of numbers from 0 on; -0 and all below are larger.
  static uint64_t order_of(double value) {
    uint64_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
  }

  // One number per row, of a dictionary whose every word is good: each word is converted once.
  bool one_by_word(int64_t begin, int64_t end) {
    const Leaf& leaf = columns_[0]->entries;
    const Leaf& words = leaf.words[0];
    if (leaf.valid != nullptr && (is_transformed() || step_.is_required || words.length == 0)) return false;
    if (table_ == nullptr) look_at(words);
    if (by_word_.seen() != GOOD || (step_.is_weight && (has_negative_ || step_.fill < 0))) return false;
    if (is_transformed()) {
      for (int64_t row = begin; row < end; ++row) transform(row, row - begin, 0, by_word_.words()[places()[row]], false);
      return true;
    }
    int32_t* to = out();
    gather(table_, places() + begin, end - begin, to);
    if (leaf.valid == nullptr) return true;
    fill_missing(leaf.valid, leaf.offset + begin, end - begin, word_of(step_.fill), to);
    return true;
  }

  // Converts the words of the dictionary. Floats that stay as they are need no conversion.
  void look_at(const Leaf& words) {
    if (are_floats(words) && words.valid == nullptr) {
      table_ = static_cast<const int32_t*>(words.data) + words.offset;
      if (are_finite(table_, words.length)) return;
    }
    by_word_.prepare(words, numbers);
    const double* values = by_word_.words();
    words_.resize(std::max<int64_t>(words.length, 1));
    for (int64_t i = 0; i < words.length; ++i) {
      words_[i] = word_of(values[i]);
      has_negative_ |= values[i] < 0;
    }
    table_ = words_.data();
  }

  // Whether numbers are floats that become words as they are, where they are finite.
  bool are_floats(const Leaf& leaf) const {
    const bool is_plain = step_.kind == NUMBERS && !step_.has_limit && !step_.is_weight && !is_transformed();
    return is_plain && leaf.type == 'f' && leaf.words.empty() && leaf.data != nullptr;
  }

  // One number per row.
  bool copy_floats(int64_t begin, int64_t end) {
    const Leaf& leaf = columns_[0]->entries;
    const int32_t* from = static_cast<const int32_t*>(leaf.data) + leaf.offset + begin;
    if ((leaf.valid != nullptr && step_.is_required) || !are_finite(from, end - begin)) return false;
    std::memcpy(out(), from, (end - begin) * sizeof(int32_t));
    if (leaf.valid != nullptr) fill_missing(leaf.valid, leaf.offset + begin, end - begin, word_of(step_.fill), out());
    return true;
  }

  static bool is_missing(const Column& column, int64_t row) {
    if (column.is_list) return column.is_missing(row);
    if (column.entries.is_missing(row)) return true;
    if (column.entries.words.empty()) return column.entries.is_text() && column.entries.text(row).data == nullptr;
    const int64_t word = column.entries.integer(row);
    return word >= 0 && word < column.entries.words[0].length && column.entries.words[0].is_missing(word);
  }

  bool is_transformed() const { return later_.values != nullptr && step_.kind != BUCKETS; }

  // A number as a word of a row.
  int32_t word_of(double value) const {
    if (step_.kind == BUCKETS) {
      if (step_.num_boundaries <= FEW) {  // sooner than a search, whose branches go either way
        int64_t count = 0;
        for (int64_t i = 0; i < step_.num_boundaries; ++i) count += step_.boundaries[i] <= value;
        return static_cast<int32_t>(count);
      }
      const double* end = step_.boundaries + step_.num_boundaries;
      return static_cast<int32_t>(std::upper_bound(step_.boundaries, end, value) - step_.boundaries);
    }
    return bits_of(!step_.has_limit ? static_cast<float>(value) : value >= step_.limit ? 1.0f : 0.0f);
  }

  static int32_t bits_of(float number) {
    int32_t word;
    std::memcpy(&word, &number, sizeof word);
    return word;
  }

  // The result of NumPy's transform, where it is known; if not, NumPy transforms the number later.
  void transform(int64_t row, int64_t i, int64_t k, double value, bool is_missing) {
    const int32_t place = step_.known == nullptr ? -1 : place_of(value, is_missing, limit());
    if (place >= 0) {
      out(k)[i] = bits_of(step_.known[place]);
      return;
    }
    later(row * step_.dim + k, value);
  }

  void later(int64_t place, double value) {
    later_.values[*later_.count] = value;
    later_.places[(*later_.count)++] = place;
  }

  void put(int64_t row, int64_t i, int64_t k, double value, bool is_missing) {
    if (step_.is_weight && value < 0) bad_[row] = 1;
    if (is_transformed()) {
      transform(row, i, k, value, is_missing);
    } else {
      out(k)[i] = word_of(value);
    }
  }

  std::vector<double> values_;
  std::vector<uint8_t> states_;
  std::vector<int32_t> words_;
  const int32_t* table_ = nullptr;  // the words of a dictionary, converted
  bool has_negative_ = false;
  Spread<double> by_word_;
};

}  // namespace sparrow
