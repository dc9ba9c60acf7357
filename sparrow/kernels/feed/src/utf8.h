// Whether bytes are UTF-8.
#pragma once

#include <cstdint>
#include <cstring>

namespace sparrow {

// As Python's strict decoder has it: neither surrogates nor longer forms than needed.
inline bool is_utf8(const char* data, int64_t size) {
  const auto* at = reinterpret_cast<const unsigned char*>(data);
  const unsigned char* const end = at + size;
  const auto continues = [](unsigned char byte) { return (byte & 0xC0) == 0x80; };
  while (at < end) {
    if (end - at >= 8) {
      uint64_t eight;
      std::memcpy(&eight, at, 8);
      if ((eight & 0x8080808080808080) == 0) {
        at += 8;
        continue;
      }
    }
    const unsigned char lead = *at;
    if (lead < 0x80) {
      ++at;
      continue;
    }
    const int64_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (lead < 0xC2 || lead > 0xF4 || end - at < length) return false;
    for (int64_t i = 1; i < length; ++i) {
      if (!continues(at[i])) return false;
    }
    const bool is_long = (lead == 0xE0 && at[1] < 0xA0) || (lead == 0xF0 && at[1] < 0x90);
    const bool is_surrogate = lead == 0xED && at[1] > 0x9F, is_beyond = lead == 0xF4 && at[1] > 0x8F;
    if (is_long || is_surrogate || is_beyond) return false;
    at += length;
  }
  return true;
}

}  // namespace sparrow
