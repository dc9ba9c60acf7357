// Parquet's runs of repeated and of bit-packed integers, for levels and for places in a dictionary.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <utility>

#include "snappy.h"

namespace sparrow {

// Eight integers of `Width` bits each from every `Width` bytes. Reads up to 8 bytes further.
template <int Width, class T>
void unpack(const uint8_t* in, int64_t groups, T* out) {
  constexpr uint64_t MASK = (uint64_t{1} << Width) - 1;
  for (int64_t group = 0; group < groups; ++group, in += Width, out += 8) {
    for (int i = 0; i < 8; ++i) {
      uint64_t word;
      std::memcpy(&word, in + i * Width / 8, 8);
      out[i] = static_cast<T>(word >> (i * Width % 8) & MASK);
    }
  }
}

template <class T>
using Unpack = void (*)(const uint8_t*, int64_t, T*);

template <class T, int... Widths>
constexpr std::array<Unpack<T>, sizeof...(Widths)> unpackers(std::integer_sequence<int, Widths...>) {
  return {unpack<Widths, T>...};
}

// Runs within [in, end). Integers have at most 32 bits.
class Hybrid {
 public:
  Hybrid(const uint8_t* in, const uint8_t* end, int width) : in_(in), end_(end), width_(width) {}

  // Writes `count` integers, and up to 7 more behind them. False: there are fewer.
  template <class T>
  bool read(int64_t count, T* out) {
    static constexpr auto UNPACK = unpackers<T>(std::make_integer_sequence<int, 33>());
    if (width_ == 0) {
      std::fill(out, out + count, T{0});
      return true;
    }
    for (int64_t done = 0; done < count;) {
      uint64_t head;
      if (!varint(head)) return false;
      if (head & 1) {
        int64_t groups = head >> 1;
        if (groups <= 0) return false;
        const int64_t wanted = std::min(groups, (count - done + 7) / 8), bytes = wanted * width_;
        // The last bytes of the last run may be left out.
        if (wanted > (end_ - in_ + width_) / width_) return false;
        const int64_t present = std::min<int64_t>(bytes, end_ - in_);
        if (present * 8 / width_ < std::min(wanted * 8, count - done)) return false;
        UNPACK[width_](in_, wanted, out + done);
        done += wanted * 8;
        const int64_t all = groups > (end_ - in_) / width_ ? end_ - in_ : groups * width_;
        in_ += all;
      } else {
        const int64_t bytes = (width_ + 7) / 8;
        if (end_ - in_ < bytes) return false;
        uint32_t value = 0;
        std::memcpy(&value, in_, bytes);
        in_ += bytes;
        const int64_t length = std::min<int64_t>(head >> 1, count - done);
        if (length <= 0) return false;
        std::fill(out + done, out + done + length, static_cast<T>(value));
        done += length;
      }
    }
    return true;
  }

  // Whether the first `count` integers are one run of `value`.
  bool is_run_of(uint32_t value, int64_t count) const {
    Hybrid ahead = *this;
    uint64_t head;
    if (width_ == 0) return value == 0;
    if (!ahead.varint(head) || head & 1 || static_cast<int64_t>(head >> 1) < count) return false;
    const int64_t bytes = (width_ + 7) / 8;
    if (end_ - ahead.in_ < bytes) return false;
    uint32_t given = 0;
    std::memcpy(&given, ahead.in_, bytes);
    return given == value;
  }

 private:
  bool varint(uint64_t& value) {
    value = 0;
    for (int shift = 0; shift < 35; shift += 7) {
      if (in_ >= end_) return false;
      value |= static_cast<uint64_t>(*in_ & 127) << shift;
      if (*in_++ < 128) return true;
    }
    return false;
  }

  const uint8_t* in_;
  const uint8_t* end_;
  int width_;
};

}  // namespace sparrow
