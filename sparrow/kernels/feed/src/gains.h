// The gain of each looked-up row: its weight, times the combiner's factor.
#pragma once

#include <cmath>
#include <cstdint>

namespace sparrow {

enum Combiner : int64_t { SUM, MEAN, SQRTN };

// The gain of every row of a bag without weights.
inline float gain_of(int64_t combiner, int64_t length) {
  if (combiner == SUM || length == 0) return 1.0f;
  const double total = static_cast<double>(length);
  return static_cast<float>(1.0 / (combiner == MEAN ? total : std::sqrt(total)));
}

// The gains of one bag, whose ids `id_at` gives; `weights` may be null. False: the weights are not finite.
template <class IdAt>
bool put_gains(int64_t combiner, int64_t limit, int64_t length, const float* weights, float* gains, IdAt&& id_at) {
  double total = 0;
  for (int64_t k = 0; k < length; ++k) {
    const bool is_in = static_cast<uint64_t>(id_at(k)) < static_cast<uint64_t>(limit);
    float weight = weights == nullptr ? 1.0f : weights[k];
    if (!std::isfinite(weight)) return false;
    if (combiner != SUM) weight *= is_in ? 1.0f : 0.0f;
    const double exact = weight;
    const volatile double summand = combiner == SQRTN ? exact * exact : exact;  // rounded, as the reference does
    total += summand;
    gains[k] = weight;
  }
  if (combiner == SUM) return true;
  const double divisor = combiner == MEAN ? total : std::sqrt(total);
  const double factor = divisor != 0 ? 1.0 / divisor : 0.0;
  for (int64_t k = 0; k < length; ++k) gains[k] = static_cast<float>(static_cast<double>(gains[k]) * factor);
  return true;
}

}  // namespace sparrow
