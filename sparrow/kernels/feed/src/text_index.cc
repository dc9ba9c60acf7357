// The loops over bytes of text.
#include "text_index.h"

#include <cstring>

#include "versions.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace sparrow {
namespace {

#if defined(__SSE2__)

struct Bytes {  // 64 of them
  __m128i parts[4];
};

inline __attribute__((always_inline)) Bytes load(const char* at) {
  Bytes bytes;
  for (int i = 0; i < 4; ++i) bytes.parts[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at + 16 * i));
  return bytes;
}

// A bit for each byte that is `wanted`.
inline __attribute__((always_inline)) uint64_t bits_of(const Bytes& bytes, char wanted) {
  const __m128i same = _mm_set1_epi8(wanted);
  uint64_t bits = 0;
  for (int i = 0; i < 4; ++i) {
    const uint64_t own = static_cast<uint32_t>(_mm_movemask_epi8(_mm_cmpeq_epi8(bytes.parts[i], same)));
    bits |= own << (16 * i);
  }
  return bits;
}

#else

struct Bytes {
  uint64_t parts[8];
};

inline __attribute__((always_inline)) Bytes load(const char* at) {
  Bytes bytes;
  std::memcpy(bytes.parts, at, sizeof bytes.parts);
  return bytes;
}

inline __attribute__((always_inline)) uint64_t bits_of(const Bytes& bytes, char wanted) {
  constexpr uint64_t ONES = 0x0101010101010101, LOW = 0x7F7F7F7F7F7F7F7F;
  uint64_t bits = 0;
  for (int i = 0; i < 8; ++i) {
    const uint64_t rest = bytes.parts[i] ^ (ONES * static_cast<unsigned char>(wanted));
    const uint64_t zero = ~(((rest & LOW) + LOW) | rest | LOW);  // the high bit of each byte that is zero
    bits |= ((zero >> 7) * 0x0102040810204080 >> 56) << (8 * i);
  }
  return bits;
}

#endif

}  // namespace

SPARROW_VERSIONS void find_ends(const char* data, int64_t from, int64_t to, char separator, int quote, Found& found) {
  uint32_t* out = found.ends + found.count;
  int64_t* breaks = found.breaks + found.lines;
  uint64_t begins = found.begins_field, after_return = found.after_return;
  bool has_returns = found.has_returns;
  for (int64_t at = from; at < to; at += 64) {
    const Bytes bytes = load(data + at);
    const uint64_t known = to - at >= 64 ? ~uint64_t{0} : (uint64_t{1} << (to - at)) - 1;
    const uint64_t lines = bits_of(bytes, '\n') & known, ends = (bits_of(bytes, separator) | lines) & known;
    const uint64_t returns = bits_of(bytes, '\r') & known;
    const uint64_t starts = ends << 1 | begins;
    if (quote >= 0 && (bits_of(bytes, static_cast<char>(quote)) & starts & known)) found.is_quoted = true;
    const uint64_t behind = returns << 1 | after_return;  // bytes that follow a carriage return
    if (behind & known & ~lines) found.is_odd = true;
    if (found.is_quoted || found.is_odd) break;
    has_returns |= returns != 0;
    begins = ends >> 63;
    after_return = returns >> 63;
    for (uint64_t left = lines; left != 0; left &= left - 1) {
      const uint64_t before = ends & ((left & -left) - 1);
      *breaks++ = out - found.ends + __builtin_popcountll(before);
    }
    const uint32_t base = static_cast<uint32_t>(at);
    const int64_t count = __builtin_popcountll(ends);
    uint64_t left = ends;
    // Groups of eight, with places that do not count behind the last: no branch depends on the number.
    for (int64_t done = 0; done < count; done += 8) {
      for (int k = 0; k < 8; ++k) {
        out[done + k] = base + static_cast<uint32_t>(left == 0 ? 0 : __builtin_ctzll(left));
        left &= left - 1;
      }
    }
    out += count;
  }
  found.count = out - found.ends;
  found.lines = breaks - found.breaks;
  found.begins_field = begins;
  found.after_return = after_return;
  found.has_returns = has_returns;
}

SPARROW_VERSIONS int64_t count_lines(const char* data, int64_t size, uint8_t& all) {
  typedef uint8_t Lanes __attribute__((vector_size(64)));
  constexpr int64_t MOST = 255;  // times that a lane can count
  int64_t lines = 0, at = 0;
  uint8_t joined[64] = {};
  Lanes seen = {};
  while (size - at >= 64) {
    const int64_t times = (size - at) / 64 < MOST ? (size - at) / 64 : MOST;
    Lanes counts = {};
    for (int64_t i = 0; i < times; ++i, at += 64) {
      Lanes bytes;
      std::memcpy(&bytes, data + at, 64);
      counts -= reinterpret_cast<Lanes>(bytes == static_cast<uint8_t>('\n'));
      seen |= bytes;
    }
    for (int i = 0; i < 64; ++i) lines += counts[i];
  }
  std::memcpy(joined, &seen, 64);
  for (int i = 0; i < 64; ++i) all |= joined[i];
  for (; at < size; ++at) {
    lines += data[at] == '\n';
    all |= static_cast<uint8_t>(data[at]);
  }
  return lines;
}

}  // namespace sparrow
