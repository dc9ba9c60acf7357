// Batches from columns: the ids of each feature by themselves, instead of in the rows of a block.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "filling.h"

namespace sparrow {

extern "C" {

// The ids of one feature. Mirrored by sparrow/kernels/feed/filling.py: every field has 8 bytes.
struct Column {
  const void* ids;
  int64_t is_wide;         // 64 bits, else 32
  int64_t stride;          // from one id to the next, in ids
  int64_t count;           // of ids
  const int64_t* offsets;  // of bags; null: one id each
  const float* weights;    // or null
  const uint8_t* there;    // 0 where an id is missing; null: none is
};

}  // extern "C"

// Writes the stacks one after the other. A stack that `follows` goes on in the arrays of the one before.
class Columns {
 public:
  Columns(const Packed& stack, int32_t* batch)
      : stack_(stack), spare_(static_cast<int32_t>(stack.spare)), to_(stack, batch) {}

  // One id for each example; none behind the last.
  bool single(const Column* columns) const {
    constexpr int64_t BLOCK = 64;  // examples that stay in the cache while one feature after the other is written
    int32_t wrong = 0;
    for (int64_t begin = 0; begin < stack_.examples; begin += BLOCK) {
      const int64_t end = std::min(begin + BLOCK, stack_.examples);
      for (int64_t f = 0; f < stack_.num_fields; ++f) {
        const Column& own = columns[f];
        wrong |= own.is_wide ? single<int64_t>(f, own, begin, end) : single<int32_t>(f, own, begin, end);
      }
    }
    return wrong == 0;
  }

  // Bags of any length, from an entry and a bag on, which are counted on. False: the reference must look.
  bool bags(const Column* columns, int64_t& entry, int64_t& bag) const {
    bool is_right = true;
    if (bag == 0) to_.offsets[0] = static_cast<int32_t>(stack_.first);
    for (int64_t b = 0; b < stack_.examples; ++b) {
      for (int64_t f = 0; f < stack_.num_fields; ++f) {
        const Column& own = columns[f];
        const int64_t begin = own.offsets == nullptr ? b : own.offsets[b];
        const int64_t length = own.offsets == nullptr ? 1 : own.offsets[b + 1] - begin;
        if (length < 0 || begin < 0 || entry + length > stack_.capacity) return false;
        if (begin + length > own.count) {
          if (own.offsets != nullptr) return false;
          put_nothing(entry, bag);  // behind the last id
        } else {
          is_right &= own.is_wide ? put<int64_t>(f, own, begin, length, entry, bag)
                                  : put<int32_t>(f, own, begin, length, entry, bag);
        }
        entry += length;
        to_.offsets[++bag] = static_cast<int32_t>(stack_.first + entry);
      }
    }
    return is_right;
  }

  void finish(int64_t entry, int64_t bag) const { to_.finish(stack_, entry, bag); }

 private:
  template <class T>
  int32_t single(int64_t f, const Column& own, int64_t begin, int64_t end) const {
    const Field& field = stack_.fields[f];
    const T* from = static_cast<const T*>(own.ids);
    const int64_t step = stack_.num_fields, last = std::max(begin, std::min(end, own.count));
    int32_t* out = to_.ids + f;
    bool is_out = false;
    if (to_.raw != nullptr) {
      for (int64_t b = begin; b < last; ++b) put_raw(field, own, from, b, b * step + f);
    } else if (own.there != nullptr) {
      for (int64_t b = begin; b < last; ++b) {
        out[b * step] = own.there[b] ? row(field, from[b * own.stride], is_out) : spare_;
      }
    } else {
      for (int64_t b = begin; b < last; ++b) out[b * step] = row(field, from[b * own.stride], is_out);
    }
    for (int64_t b = last; b < end; ++b) {
      out[b * step] = spare_;
      if (to_.raw != nullptr) to_.raw[2 * (b * step + f)] = to_.raw[2 * (b * step + f) + 1] = 0;
    }
    return is_out && !field.ignores;
  }

  template <class T>
  bool put(int64_t f, const Column& own, int64_t begin, int64_t length, int64_t entry, int64_t bag) const {
    const Field& field = stack_.fields[f];
    const T* from = static_cast<const T*>(own.ids);
    bool is_out = false;
    if (to_.raw != nullptr) {
      for (int64_t k = 0; k < length; ++k) put_raw(field, own, from, begin + k, entry + k);
    } else if (own.there != nullptr) {
      for (int64_t k = 0; k < length; ++k) {
        to_.ids[entry + k] = own.there[begin + k] ? row(field, from[(begin + k) * own.stride], is_out) : spare_;
      }
    } else {
      const T* ids = from + begin * own.stride;
      for (int64_t k = 0; k < length; ++k) to_.ids[entry + k] = row(field, ids[k * own.stride], is_out);
    }
    std::fill(to_.bags + entry, to_.bags + entry + length, static_cast<int32_t>(stack_.first + bag));
    if (is_out && !field.ignores) return false;
    if (to_.gains == nullptr) return true;
    // A bag of one id has no combiner: its gain is its weight.
    const int64_t combiner = own.offsets == nullptr ? SUM : field.combiner;
    const float* weights = own.weights == nullptr ? nullptr : own.weights + begin;
    if (weights == nullptr && own.there == nullptr && !is_out) {
      std::fill(to_.gains + entry, to_.gains + entry + length, gain_of(combiner, length));
      return true;
    }
    return put_gains(combiner, field.limit, length, weights, to_.gains + entry, [&](int64_t k) {
      if (own.there != nullptr && !own.there[begin + k]) return int64_t{-1};
      return to_.raw != nullptr ? int64_t{0} : static_cast<int64_t>(from[(begin + k) * own.stride]);
    });
  }

  void put_nothing(int64_t entry, int64_t bag) const {
    to_.ids[entry] = spare_;
    to_.bags[entry] = static_cast<int32_t>(stack_.first + bag);
    if (to_.gains != nullptr) to_.gains[entry] = 1.0f;
    if (to_.raw != nullptr) to_.raw[2 * entry] = to_.raw[2 * entry + 1] = 0;
  }

  // The number of the table, and the id in two words; the spare number and zeros where an id is missing.
  template <class T>
  void put_raw(const Field& field, const Column& own, const T* from, int64_t at, int64_t to) const {
    const bool there = own.there == nullptr || own.there[at];
    const int64_t id = there ? static_cast<int64_t>(from[at * own.stride]) : 0;
    to_.ids[to] = there ? static_cast<int32_t>(field.start) : spare_;
    std::memcpy(to_.raw + 2 * to, &id, sizeof(id));
  }

  // The row in the stack; the spare one for an id outside the table, which sets `is_out`.
  int32_t row(const Field& field, int64_t id, bool& is_out) const {
    const bool is_in = static_cast<uint64_t>(id) < static_cast<uint64_t>(field.limit);
    is_out |= !is_in;
    return is_in ? static_cast<int32_t>(id + field.start) : spare_;
  }

  const Packed& stack_;
  const int32_t spare_;
  const Places to_;
};

}  // namespace sparrow
