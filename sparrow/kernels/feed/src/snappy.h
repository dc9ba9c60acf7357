// Snappy's format: https://github.com/google/snappy/blob/main/format_description.txt
#pragma once

#include <cstdint>
#include <cstring>

namespace sparrow {

constexpr int64_t SLACK = 64;  // bytes that may be read and written after the end of every buffer of pages

// The next one to four bytes as an integer; four may be read.
inline uint32_t little_endian(const uint8_t* in, int64_t bytes) {
  uint32_t given;
  std::memcpy(&given, in, sizeof given);
  return given & (0xffffffffu >> (32 - 8 * bytes));
}

// Decompresses [in, in + size) to exactly `expected` bytes. Both buffers have SLACK. False: the input is damaged.
inline bool unsnap(const uint8_t* in, int64_t size, uint8_t* out, int64_t expected) {
  const uint8_t* const in_end = in + size;
  uint8_t* const out_begin = out;
  uint8_t* const out_end = out + expected;
  uint64_t length = 0;
  for (int shift = 0;; shift += 7) {
    if (in >= in_end || shift > 28) return false;
    length |= static_cast<uint64_t>(*in & 127) << shift;
    if (*in++ < 128) break;
  }
  if (length != static_cast<uint64_t>(expected)) return false;
  while (in < in_end) {
    const uint8_t tag = *in++;
    if ((tag & 3) == 0) {  // literal
      int64_t count = (tag >> 2) + 1;
      if (count > 60) {
        const int64_t bytes = count - 60;
        if (in_end - in < bytes) return false;
        count = static_cast<int64_t>(little_endian(in, bytes)) + 1;
        in += bytes;
      }
      if (count > in_end - in || count > out_end - out) return false;
      if (count <= 16) {
        std::memcpy(out, in, 16);
      } else if (count <= SLACK) {
        std::memcpy(out, in, SLACK);
      } else {
        std::memcpy(out, in, count);
      }
      in += count;
      out += count;
      continue;
    }
    // A copy has one, two or four bytes of its distance behind the tag; one has three bits more of it in the tag.
    const bool is_short = (tag & 3) == 1;
    const int64_t bytes = (tag & 3) == 3 ? 4 : tag & 3;
    if (in_end - in < bytes) return false;
    const int64_t count = is_short ? ((tag >> 2) & 7) + 4 : (tag >> 2) + 1;
    const int64_t distance = static_cast<int64_t>(little_endian(in, bytes)) | (is_short ? (tag >> 5) << 8 : 0);
    in += bytes;
    if (distance == 0 || distance > out - out_begin || count > out_end - out) return false;
    const uint8_t* from = out - distance;
    if (distance >= 16) {  // at most SLACK bytes, and most often fewer than 16
      std::memcpy(out, from, 16);
      for (int64_t done = 16; done < count; done += 16) std::memcpy(out + done, from + done, 16);
    } else {
      for (int64_t i = 0; i < count; ++i) out[i] = from[i];
    }
    out += count;
  }
  return out == out_end;
}

}  // namespace sparrow
