// Which keys a query sees, and the bias of each pair. A query sees at most two ranges of keys.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels.h"

namespace sparrow {

struct Ranges {
  int64_t begin[2], end[2];  // empty: end <= begin

  bool meets(int64_t from, int64_t to) const {
    return std::max(begin[0], from) < std::min(end[0], to) || std::max(begin[1], from) < std::min(end[1], to);
  }
  bool covers(int64_t from, int64_t to) const {
    return (begin[0] <= from && to <= end[0]) || (begin[1] <= from && to <= end[1]);
  }
};

// One sequence: context, history, candidates.
struct Sequence {
  int64_t start, length, context, end;  // candidates are from `end` on

  Sequence(const AttentionCall& call, int64_t s) {
    start = std::clamp<int64_t>(call.offsets[s], 0, call.tokens);
    length = std::clamp<int64_t>(call.offsets[s + 1], start, call.tokens) - start;
    const int64_t candidates = call.candidates == nullptr ? 0 : std::clamp<int64_t>(call.candidates[s], 0, length);
    end = length - candidates;
    context = call.contexts == nullptr ? 0 : std::clamp<int64_t>(call.contexts[s], 0, end);
  }

  // All of the context is one place, all candidates are another.
  int64_t place(const AttentionCall& call, int64_t i) const {
    const int64_t first = call.sla_k1 || call.sla_k2 ? 0 : context - 1;
    return std::max(first, std::min(i, end));
  }

  Ranges seen_by(const AttentionCall& call, int64_t i) const {
    if (i >= length) return {{0, 0}, {0, 0}};
    if (call.sla_k1 || call.sla_k2) {
      if (i >= end) return {{0, 0}, {end, 0}};
      const int64_t first = std::min(std::max(call.sla_k2, context), i + 1);
      return {{0, std::max<int64_t>(0, i - call.sla_k1 + 1)}, {first, i + 1}};
    }
    if (i < context) return {{0, 0}, {end, 0}};
    const int64_t near = place(call, i) - call.max_distance;
    const int64_t low = near < context ? 0 : near;
    if (i >= end) return {{low, i}, {end, i + 1}};
    return {{low, 0}, {i + 1, 0}};
  }
};

// The bias of the pairs of one sequence, by buckets of distances.
class Bias {
 public:
  Bias(const AttentionCall& call, const Sequence& sequence) : call_(call), start_(sequence.start) {
    if (call.position == nullptr) return;
    places_.resize(sequence.length);
    for (int64_t i = 0; i < sequence.length; ++i) places_[i] = sequence.place(call, i);
  }
  bool any() const { return call_.position != nullptr || call_.time != nullptr; }

  int64_t position_bucket(int64_t i, int64_t j) const {
    return std::clamp<int64_t>(places_[i] - places_[j], 0, call_.position_buckets - 1);
  }
  int64_t time_bucket(int64_t i, int64_t j) const {
    const float units = std::max(call_.times[start_ + i] - call_.times[start_ + j], 0.f) / call_.time_unit;
    const float root = call_.log_time ? std::log(std::max(units, 1.f)) : std::sqrt(units);
    return static_cast<int64_t>(std::min(root, static_cast<float>(call_.time_buckets - 1)));
  }

  // Adds the bias of query i and keys [from, to) to `scores`, of keys from `from` on.
  void add(float* scores, int64_t i, int64_t from, int64_t to) const {
    for (int64_t j = from; j < to; ++j) {
      if (call_.position != nullptr) scores[j - from] += call_.position[position_bucket(i, j)];
      if (call_.time != nullptr) scores[j - from] += call_.time[time_bucket(i, j)];
    }
  }
  // Adds the gradients of the scores to those of the bias.
  void add_gradients(const float* grads, int64_t i, int64_t from, int64_t to, double* position, double* time) const {
    for (int64_t j = from; j < to; ++j) {
      if (call_.position != nullptr) position[position_bucket(i, j)] += grads[j - from];
      if (call_.time != nullptr) time[time_bucket(i, j)] += grads[j - from];
    }
  }

 private:
  const AttentionCall& call_;
  int64_t start_;
  std::vector<int64_t> places_;
};

}  // namespace sparrow
