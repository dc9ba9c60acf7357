// Parquet's runs of repeated and of bit-packed integers, for levels and for places in a dictionary.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "snappy.h"
#include "unpack.h"

namespace sparrow {

static_assert(UNPACK_READS + 32 <= SLACK);

// Levels have few bits.
inline void unpack(int width, const uint8_t* in, int64_t groups, uint8_t* out) {
  const uint8_t mask = static_cast<uint8_t>((1 << width) - 1);
  for (int64_t group = 0; group < groups; ++group, in += width, out += 8) {
    uint64_t word;
    std::memcpy(&word, in, 8);
    for (int i = 0; i < 8; ++i) out[i] = static_cast<uint8_t>(word >> (i * width)) & mask;
  }
}

// Runs within [in, end), which are read piece by piece. Integers have at most 32 bits, levels 8.
class Hybrid {
 public:
  Hybrid() : Hybrid(nullptr, nullptr, 0) {}
  Hybrid(const uint8_t* in, const uint8_t* end, int width) : in_(in), end_(end), width_(width) {}

  // Writes the next `count` integers, and up to 7 of any value behind them. False: there are fewer.
  template <class T>
  bool read(int64_t count, T* out) {
    while (count > 0) {
      if (left_ == 0 && !next_run()) return false;
      int64_t own = std::min(left_, count);
      if (!is_packed_) {
        std::fill(out, out + own, static_cast<T>(value_));
      } else if (used_ > 0) {  // the rest of a group
        T group[8];
        unpack(width_, in_, 1, group);
        own = std::min(own, 8 - used_);
        std::copy(group + used_, group + used_ + own, out);
      } else {
        unpack(width_, in_, (own + 7) / 8, out);
      }
      take(own);
      count -= own;
      out += own;
    }
    return true;
  }

  // Calls on_bits(bytes, count) for packed integers of one bit, and on_run(value, count) for repeated ones, until
  // there were `count` of them or a call returns false. Nothing may have been read before.
  template <class OnBits, class OnRun>
  bool walk(int64_t count, OnBits&& on_bits, OnRun&& on_run) {
    while (count > 0) {
      if (!next_run()) return false;
      const int64_t own = std::min(left_, count);
      if (!(is_packed_ ? on_bits(in_, own) : on_run(value_, own))) return false;
      left_ = 0;
      in_ = run_end_;
      count -= own;
    }
    return true;
  }

  // Whether the first `count` integers are one run of `value`.
  bool is_run_of(uint32_t value, int64_t count) const {
    Hybrid ahead = *this;
    return ahead.next_run() && !ahead.is_packed_ && ahead.left_ >= count && ahead.value_ == value;
  }

 private:
  bool next_run() {
    uint64_t head;
    if (!varint(head)) return false;
    is_packed_ = head & 1;
    const int64_t groups = head >> 1, left = end_ - in_;
    if (groups <= 0) return false;
    if (is_packed_) {
      if (groups > INT32_MAX / 8 || (width_ > 0 && groups > left / width_)) return false;
      left_ = groups * 8;
      run_end_ = in_ + groups * width_;
      used_ = 0;
      return true;
    }
    const int64_t bytes = (width_ + 7) / 8;
    if (left < bytes) return false;
    value_ = 0;
    std::memcpy(&value_, in_, bytes);
    if (static_cast<uint64_t>(value_) >> width_ != 0) return false;
    run_end_ = in_ += bytes;
    left_ = groups;
    return true;
  }

  void take(int64_t count) {
    left_ -= count;
    if (left_ == 0) {
      in_ = run_end_;
    } else if (is_packed_) {
      in_ += (used_ + count) / 8 * width_;
      used_ = (used_ + count) % 8;
    }
  }

  // The head of a run has 32 bits.
  bool varint(uint64_t& value) {
    value = 0;
    for (int shift = 0; shift < 35; shift += 7) {
      if (in_ >= end_) return false;
      value |= static_cast<uint64_t>(*in_ & 127) << shift;
      if (*in_++ < 128) return value >> 32 == 0;
    }
    return false;
  }

  const uint8_t* in_;
  const uint8_t* end_;
  int width_;
  // The current run: integers that are left, whether they are packed, how many of the group at `in_` are used.
  const uint8_t* run_end_ = nullptr;
  int64_t left_ = 0, used_ = 0;
  bool is_packed_ = false;
  uint32_t value_ = 0;
};

}  // namespace sparrow
