// From the rows of entries to bags: which entries stay, and the number of them.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "entries.h"
#include "flat.h"
#include "runner.h"
#include "step.h"

namespace sparrow {

// The entries of a row that hold an id, or all, cut to the sequence's length and moved to the front; returns their number.
inline int64_t kept(const Step& step, bool is_single, int32_t* rows, int64_t length) {
  int64_t count = 0;
  const bool keeps_all = step.keeps_missing && !is_single;
  for (int64_t k = 0; k < length; ++k) {
    if (keeps_all || rows[k] >= 0) rows[count++] = rows[k];
  }
  if (step.max_length == 0 || count <= step.max_length) return count;
  if (step.keep_last) std::memmove(rows, rows + count - step.max_length, step.max_length * sizeof(int32_t));
  return step.max_length;
}

// Bags in the place of their entries.
inline void plain_bags(const Step& step, const Flat& flat, int64_t count, int32_t* rows, int32_t* lengths) {
  int32_t* to = rows;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t length = flat.length(i), own = kept(step, flat.is_single, rows, length);
    std::memmove(to, rows, own * sizeof(int32_t));
    lengths[i] = static_cast<int32_t>(own);
    to += own;
    rows += length;
  }
}

// A row without ids has the default. False: the reference must look.
inline bool bags_with_default(const Step& step, const Flat& flat, int64_t count, int32_t* rows, int32_t* lengths,
                              std::vector<int32_t>& out) {
  out.clear();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t length = flat.length(i), own = kept(step, flat.is_single, rows, length);
    out.insert(out.end(), rows, rows + own);
    if (length == 0) {
      if (step.default_row == BAD_ROW) return false;
      out.push_back(static_cast<int32_t>(step.default_row));
    }
    lengths[i] = static_cast<int32_t>(length == 0 ? 1 : own);
    rows += length;
  }
  out.resize(out.size() + SPARE);
  return true;
}

struct Weights {
  const Flat& lists;
  const double* values;
  const uint8_t* states;
};

// Bags and their weights. `bad` is of the first row. False: the reference must look.
inline bool weighted_bags(const Step& step, const Flat& flat, const Weights& weights, int64_t count,
                          const int32_t* rows, uint8_t* bad, int32_t* lengths, std::vector<int32_t>& out,
                          std::vector<float>& out_weights) {
  int64_t id = 0, weight = 0;
  out.clear();
  out_weights.clear();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t length = flat.length(i), own_length = weights.lists.length(i);
    const size_t before = out.size();
    if (length != own_length) {
      bad[i] = 1;
    } else {
      for (int64_t k = 0; k < length; ++k) {
        if (weights.states[weight + k] != GOOD) bad[i] = 1;
        if (rows[id + k] < 0) continue;
        out.push_back(rows[id + k]);
        out_weights.push_back(static_cast<float>(weights.values[weight + k]));
      }
      if (length == 0 && !flat.is_single && step.default_row != NO_ROW) {
        if (step.default_row == BAD_ROW) return false;
        out.push_back(static_cast<int32_t>(step.default_row));
        out_weights.push_back(1.0f);
      }
    }
    lengths[i] = static_cast<int32_t>(out.size() - before);
    id += length;
    weight += own_length;
  }
  out.resize(out.size() + SPARE);
  out_weights.resize(out_weights.size() + SPARE);
  return true;
}

}  // namespace sparrow
