// The loops over bit-packed integers: one for each width, which the compiler unrolls.
#include "unpack.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "versions.h"

namespace sparrow {
namespace {

using Unpack = void (*)(const uint8_t*, int64_t, int32_t*);
constexpr int WIDTHS = 33;

template <int Width>
void unpack_width(const uint8_t* in, int64_t groups, int32_t* out) {
  constexpr uint64_t MASK = (uint64_t{1} << Width) - 1;
  for (int64_t group = 0; group < groups; ++group, in += Width, out += 8) {
    for (int i = 0; i < 8; ++i) {
      uint64_t word;
      std::memcpy(&word, in + i * Width / 8, 8);
      out[i] = static_cast<int32_t>(word >> (i * Width % 8) & MASK);
    }
  }
}

template <int... Widths>
constexpr std::array<Unpack, WIDTHS> by_width(std::integer_sequence<int, Widths...>) {
  return {unpack_width<Widths>...};
}

}  // namespace

void unpack(int width, const uint8_t* in, int64_t groups, int32_t* out) {
  static constexpr std::array<Unpack, WIDTHS> UNPACK = by_width(std::make_integer_sequence<int, WIDTHS>());
  UNPACK[width](in, groups, out);
}

SPARROW_VERSIONS uint32_t largest(const int32_t* values, int64_t count) {
  uint32_t found = 0;
  for (int64_t i = 0; i < count; ++i) found = std::max(found, static_cast<uint32_t>(values[i]));
  return found;
}

SPARROW_VERSIONS Levels count_levels(const uint8_t* repeated, const uint8_t* defined, int64_t count,
                                     int entry_level, int most) {
  const uint8_t entries = static_cast<uint8_t>(entry_level), present = static_cast<uint8_t>(most);
  Levels found{0, 0, 0, 0};
  for (int64_t first = 0; first < count; first += 128) {  // so that a byte holds every count
    const int64_t end = std::min<int64_t>(first + 128, count);
    uint8_t begins = 0, missing = 0, missing_lists = 0, highest = 0;
    for (int64_t i = first; i < end; ++i) {
      begins = static_cast<uint8_t>(begins + (repeated[i] == 0));
      missing = static_cast<uint8_t>(missing + ((defined[i] >= entries) & (defined[i] < present)));
      missing_lists = static_cast<uint8_t>(missing_lists + (defined[i] == 0));
      highest = std::max(highest, defined[i]);
    }
    found.begins += begins;
    found.missing += missing;
    found.missing_lists += missing_lists;
    found.highest = std::max(found.highest, highest);
  }
  return found;
}

namespace {

// The lowest bits of 64 bytes that are 0 or 1.
inline uint64_t bits_of(const uint8_t* bytes) {
  uint64_t made = 0;
  for (int i = 0; i < 8; ++i) {
    uint64_t eight;
    std::memcpy(&eight, bytes + 8 * i, 8);
    made |= (eight * 0x0102040810204080u) >> 56 << (8 * i);
  }
  return made;
}

}  // namespace

SPARROW_VERSIONS void level_bits(const uint8_t* repeated, const uint8_t* defined, int64_t count, int entry_level,
                                 uint64_t& begins, uint64_t& empty) {
  const uint8_t entries = static_cast<uint8_t>(entry_level);
  uint8_t begin[64] = {}, none[64] = {};
  if (count == 64) {
    for (int i = 0; i < 64; ++i) begin[i] = repeated[i] == 0;
    for (int i = 0; i < 64; ++i) none[i] = defined[i] < entries;
  } else {
    for (int64_t i = 0; i < count; ++i) begin[i] = repeated[i] == 0;
    for (int64_t i = 0; i < count; ++i) none[i] = defined[i] < entries;
  }
  begins = bits_of(begin);
  empty = bits_of(none);
}

SPARROW_VERSIONS void fill_missing(const uint8_t* mask, int64_t first, int64_t count, int32_t fill, int32_t* words) {
  int64_t i = 0;
  const auto one = [&] {
    const int32_t keep = -static_cast<int32_t>(mask[(first + i) >> 3] >> ((first + i) & 7) & 1);
    words[i] = (words[i] & keep) | (fill & ~keep);
    ++i;
  };
  while (i < count && (first + i) % 8 != 0) one();
  for (; i + 8 <= count; i += 8) {
    const int32_t bits = mask[(first + i) >> 3];
    for (int k = 0; k < 8; ++k) {
      const int32_t keep = -(bits >> k & 1);
      words[i + k] = (words[i + k] & keep) | (fill & ~keep);
    }
  }
  while (i < count) one();
}

SPARROW_VERSIONS bool are_finite(const int32_t* floats, int64_t count) {
  int32_t some = 0;
  for (int64_t i = 0; i < count; ++i) some |= (floats[i] & 0x7f800000) == 0x7f800000;
  return some == 0;
}

}  // namespace sparrow
