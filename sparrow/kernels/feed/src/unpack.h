// Bit-packed integers: eight of `width` bits each from every `width` bytes; levels; masks. The loops are in unpack.cc.
#pragma once

#include <cstdint>

namespace sparrow {

constexpr int64_t UNPACK_READS = 16;  // bytes behind the last group that may be read

// Writes 8 * groups integers of 0 to 32 bits: in unpack.cc.
void unpack(int width, const uint8_t* in, int64_t groups, int32_t* out);

// The largest of them, unsigned; 0 of none: in unpack.cc.
uint32_t largest(const int32_t* values, int64_t count);

// Facts about the levels of some values of lists: a row begins where the repetition is 0.
struct Levels {
  int64_t begins, missing, missing_lists;  // rows, missing entries, values of definition 0
  uint8_t highest;                         // definition
};
Levels count_levels(const uint8_t* repeated, const uint8_t* defined, int64_t count, int entry_level, int most);

// A bit for each of at most 64 values: where rows begin, and where there is no entry.
void level_bits(const uint8_t* repeated, const uint8_t* defined, int64_t count, int entry_level, uint64_t& begins,
                uint64_t& empty);

// Puts `fill` in the place of words whose bit in a mask, from `first` on, is 0.
void fill_missing(const uint8_t* mask, int64_t first, int64_t count, int32_t fill, int32_t* words);

// Whether all floats, given by their bits, are finite.
bool are_finite(const int32_t* floats, int64_t count);

}  // namespace sparrow
