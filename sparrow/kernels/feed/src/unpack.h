// Bit-packed integers: eight of `width` bits each from every `width` bytes.
#pragma once

#include <cstdint>

namespace sparrow {

constexpr int64_t UNPACK_READS = 16;  // bytes behind the last group that may be read

// Writes 8 * groups integers of 0 to 32 bits: in unpack.cc.
void unpack(int width, const uint8_t* in, int64_t groups, int32_t* out);

// The largest of them, unsigned; 0 of none: in unpack.cc.
uint32_t largest(const int32_t* values, int64_t count);

}  // namespace sparrow
