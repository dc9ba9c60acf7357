// `Fixed`: a stack whose every field has a number of places in each example. A shorter bag leaves the rest to the spare
// row, which reads zeros. Offsets and the bag of each entry are then the same for every batch, and are not written again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "filling.h"

namespace sparrow {

class Fixed {
 public:
  Fixed(const Filling& how, const Packed& stack) : how_(how), stack_(stack), from_(how.num_columns) {
    for (int64_t f = 0; f < stack.num_fields; ++f) {
      const Field& field = stack.fields[f];
      first_.push_back(places());
      starts_.insert(starts_.end(), field.places, static_cast<int32_t>(field.start));
      limits_.insert(limits_.end(), field.places, static_cast<uint32_t>(field.limit));
      errors_.insert(errors_.end(), field.places, field.ignores ? 0 : -1);
    }
    find_runs();
  }

  int64_t places() const { return static_cast<int64_t>(starts_.size()); }

  // False: an id is outside its table, or a bag is too long.
  inline __attribute__((always_inline)) bool fill(const Piece& piece, int64_t known, int32_t* buffer) {
    const int64_t count = places();
    int32_t* batch = buffer + piece.slot * how_.slot_words;
    int32_t* out = batch + stack_.ids + piece.at * count;
    float* gains = stack_.gains < 0 ? nullptr : reinterpret_cast<float*>(batch + stack_.gains) + piece.at * count;
    int32_t* raw = stack_.raw < 0 ? nullptr : batch + stack_.raw + 2 * piece.at * count;
    for (int64_t i = 0; i < piece.count; ++i) {
      prefetch(how_, piece, i, known);
      prefetch_tail(piece, i, known);
      int64_t row;
      const int32_t* words = row_of(how_, piece, i, row);
      const int32_t* tail = piece.tail + piece.starts[row];
      if (!(is_usual(words) ? usual(words, tail, out) : unusual(words, tail, out, gains, raw))) return false;
      out += count;
      if (gains != nullptr) gains += count;
      if (raw != nullptr) raw += 2 * count;
    }
    return true;
  }

 private:
  // Ids that follow each other in the tail, or in the row, and in the batch.
  struct Run {
    bool is_in_tail;
    int64_t from, count, to;
  };

  // Finds the runs of examples whose every bag has as many ids as it has places. There are none where other columns of
  // any length stand between, gains are to be computed, or ids are raw.
  void find_runs() {
    lengths_.assign(how_.num_columns, -1);
    for (int64_t s = 0; s < how_.num_stacks; ++s) {
      const Packed& other = how_.stacks[s];
      for (int64_t f = 0; f < (other.is_fixed() ? other.num_fields : 0); ++f) {
        if (other.fields[f].bag >= 0) lengths_[other.fields[f].bag] = static_cast<int32_t>(other.fields[f].places);
      }
    }
    std::vector<int64_t> begins;
    int64_t at = 0;
    has_runs_ = stack_.gains < 0 && stack_.raw < 0 && how_.num_columns > 0;
    for (int64_t c = 0; c < how_.num_columns; ++c) {
      has_runs_ &= lengths_[c] >= 0 && how_.columns[3 * c] == how_.columns[0] + c;
      begins.push_back(at);
      at += lengths_[c] * how_.columns[3 * c + 1];
    }
    for (int64_t f = 0; f < stack_.num_fields && has_runs_; ++f) {
      const Field& field = stack_.fields[f];
      const Run run{field.bag >= 0, field.bag >= 0 ? begins[field.bag] : field.word, field.places, first_[f]};
      Run* last = runs_.empty() ? nullptr : &runs_.back();
      if (last != nullptr && last->is_in_tail == run.is_in_tail && last->from + last->count == run.from) {
        last->count += run.count;
      } else {
        runs_.push_back(run);
      }
    }
  }

  inline __attribute__((always_inline)) bool is_usual(const int32_t* words) const {
    if (!has_runs_) return false;
    const int32_t *own = words + how_.columns[0], *usual = lengths_.data();
    int32_t differs = 0;
    for (int64_t c = 0; c < how_.num_columns; ++c) differs |= own[c] ^ usual[c];
    return differs == 0;
  }

  // Rows of the stack for ids, from a place on. True: all are in their tables, or may be outside.
  inline __attribute__((always_inline)) bool put(const int32_t* __restrict ids, int64_t count, int64_t place,
                                                 int32_t* __restrict out) const {
    const int32_t *starts = starts_.data() + place, *errors = errors_.data() + place;
    const uint32_t* limits = limits_.data() + place;
    const int32_t spare = static_cast<int32_t>(stack_.spare);
    int32_t* to = out + place;
    int32_t wrong = 0, is_out;
    for (int64_t k = 0; k < count; ++k) {
      to[k] = row_or_spare(ids[k], starts[k], limits[k], spare, is_out);
      wrong |= is_out & errors[k];
    }
    return wrong == 0;
  }

  inline __attribute__((always_inline)) bool usual(const int32_t* words, const int32_t* tail, int32_t* out) const {
    bool is_right = true;
    for (const Run& run : runs_) {
      is_right &= put(run.is_in_tail ? tail + run.from : words + run.from, run.count, run.to, out);
    }
    return is_right;
  }

  bool unusual(const int32_t* words, const int32_t* tail, int32_t* out, float* gains, int32_t* raw) {
    find_bags(how_, words, tail, from_.data());
    bool is_right = true;
    for (int64_t f = 0; f < stack_.num_fields; ++f) {
      const Field& field = stack_.fields[f];
      const bool is_bag = field.bag >= 0;
      const int32_t* ids = is_bag ? from_[field.bag] : words + field.word;
      const int64_t length = is_bag ? words[field.word] : 1, place = first_[f];
      if (length > field.places) return false;
      if (raw != nullptr) {
        const int64_t own = is_bag || is_there(field, words) ? field.start : stack_.spare;
        std::fill(out + place, out + place + length, static_cast<int32_t>(own));
        std::memcpy(raw + 2 * place, ids, 2 * length * sizeof(int32_t));
        std::fill(raw + 2 * (place + length), raw + 2 * (place + field.places), 0);
      } else {
        is_right &= put(ids, length, place, out);
      }
      std::fill(out + place + length, out + place + field.places, static_cast<int32_t>(stack_.spare));
      if (gains == nullptr) continue;
      const bool is_weighted = is_bag && how_.columns[3 * field.bag + 2];
      const int32_t* behind = ids + (raw == nullptr ? length : 2 * length);
      const float* weights = is_weighted ? reinterpret_cast<const float*>(behind) : nullptr;
      is_right &= put_gains(is_bag ? field.combiner : SUM, field.limit, length, weights, gains + place,
                            [&](int64_t k) { return raw == nullptr ? static_cast<int64_t>(ids[k]) : 0; });
      std::fill(gains + place + length, gains + place + field.places, 0.0f);
    }
    return is_right;
  }

  const Filling& how_;
  const Packed& stack_;
  std::vector<int64_t> first_;  // the first place of each field
  std::vector<int32_t> starts_, errors_;  // by place
  std::vector<uint32_t> limits_;
  std::vector<int32_t> lengths_;  // of the bags of each column, usually
  std::vector<Run> runs_;
  bool has_runs_ = false;
  std::vector<const int32_t*> from_;  // the bags of an example, by column
};

}  // namespace sparrow
