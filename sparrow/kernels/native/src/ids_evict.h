// The choice of who leaves a pool: a histogram finds the bin where the last ones leave, the exact order decides in it.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "ids_index.h"

namespace sparrow {

// Numbers below 2,048 have a bin of their own, larger ones share it with those that agree in the first 7 bits.
inline uint32_t bin_of(uint32_t x) {
  if (x < 2048) return x;
  const uint32_t exponent = 31 - static_cast<uint32_t>(__builtin_clz(x));
  return 2048 + (exponent - 11) * 64 + (x >> (exponent - 6) & 63);
}
constexpr uint32_t kBins = 2048 + 21 * 64;

// The bin of a float by its bits: 32 for each power of 2 between 2^-31 and 2^31, which a count divided by an age has.
inline uint32_t bin_of_float(uint32_t bits) { return bits < 0x30000000u ? 0 : (bits - 0x30000000u) >> 18; }

class IdPool {
 public:
  int32_t begin, size, policy, expire;
  bool hard;  // a missing place is an error

  IdPool(const IdMap& map, int32_t number) {
    const bool waiting = number >= map.num_segments;
    const IdSegment& segment = map.segments[number % map.num_segments];
    begin = waiting ? segment.waiting_begin : segment.begin;
    size = (waiting ? segment.waiting_end : segment.end) - begin;
    policy = waiting ? kLru : segment.policy;
    expire = waiting ? 0 : segment.expire;
    hard = !waiting && policy != kNone;
  }
};

class Eviction {
 public:
  std::vector<int32_t> places;  // ascending
  int32_t quiet = 0;            // the step before which nothing expires

  void choose(const IdMap& map, const IdPool& pool, int32_t missing, int32_t step) {
    if (pool.policy == kNone && (pool.expire == 0 || step < quiet)) return;
    std::vector<uint32_t> bins(kBins);
    int64_t able = 0;
    int32_t oldest = step;  // of the ids that cannot leave
    const int32_t end = pool.begin + pool.size;
    for (int32_t place = pool.begin; place < end; ++place) {
      const int32_t last = map.last[place];
      if (last < 0) continue;
      if (!may_leave(pool, last, step)) {
        oldest = std::min(oldest, last);
        continue;
      }
      ++bins[bin(map, pool, place, step)];
      ++able;
    }
    const int64_t wanted = std::max<int64_t>(missing, (int64_t(pool.size) + 99) / 100), lot = std::min(wanted, able);
    if (pool.policy == kNone && able <= wanted) quiet = static_cast<int32_t>(std::min<int64_t>(int64_t(oldest) + pool.expire + 1, INT32_MAX));
    if (lot == 0) return;
    uint32_t last_bin = 0;
    int64_t before = 0;
    while (before + bins[last_bin] < lot) before += bins[last_bin++];
    places.reserve(lot);
    std::vector<Candidate> candidates;
    candidates.reserve(bins[last_bin]);
    for (int32_t place = pool.begin; place < end; ++place) {
      const int32_t last = map.last[place];
      if (last < 0 || !may_leave(pool, last, step)) continue;
      const uint32_t own = bin(map, pool, place, step);
      if (own < last_bin) places.push_back(place);
      if (own == last_bin) candidates.push_back({seldom(map, pool, place, step), last, mix64(map.ids[place]), place});
    }
    const int64_t rest = lot - before;
    if (rest < static_cast<int64_t>(candidates.size())) {
      std::nth_element(candidates.begin(), candidates.begin() + rest, candidates.end());
    }
    const auto certain = static_cast<int64_t>(places.size());
    for (int64_t i = 0; i < rest; ++i) places.push_back(candidates[i].place);
    std::sort(places.begin() + certain, places.end());
    std::inplace_merge(places.begin(), places.begin() + certain, places.end());
  }

 private:
  struct Candidate {
    uint32_t seldom;
    int32_t last;
    uint64_t hash;
    int32_t place;

    bool operator<(const Candidate& other) const {
      if (seldom != other.seldom) return seldom < other.seldom;
      return last != other.last ? last < other.last : hash < other.hash;
    }
  };

  static bool is_expired(const IdPool& pool, int32_t last, int32_t step) { return pool.expire > 0 && step - last > pool.expire; }
  static bool may_leave(const IdPool& pool, int32_t last, int32_t step) {
    return last != step && (pool.policy != kNone || is_expired(pool, last, step));
  }
  static uint32_t seldom(const IdMap& map, const IdPool& pool, int32_t place, int32_t step) {
    if (pool.policy < kLfu || is_expired(pool, map.last[place], step)) return 0;
    const auto count = static_cast<uint32_t>(map.counts[place]);
    if (pool.policy == kLfu) return count;
    const uint32_t age = static_cast<uint32_t>(step) - static_cast<uint32_t>(map.last[place]) + 1;
    const float often = static_cast<float>(count) / static_cast<float>(age);
    uint32_t bits;  // in the order of the floats
    std::memcpy(&bits, &often, sizeof(bits));
    return bits;
  }
  static uint32_t bin(const IdMap& map, const IdPool& pool, int32_t place, int32_t step) {
    if (pool.policy == kLfu) return bin_of(seldom(map, pool, place, step));
    if (pool.policy == kDistanceLfu) return bin_of_float(seldom(map, pool, place, step));
    return kBins - 1 - bin_of(static_cast<uint32_t>(step) - static_cast<uint32_t>(map.last[place]));
  }
};

}  // namespace sparrow
