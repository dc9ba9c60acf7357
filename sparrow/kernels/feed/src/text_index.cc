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

// Appends the place of every bit. Groups of eight, with places that do not count behind the last: fewer branches depend
// on the number.
inline __attribute__((always_inline)) uint32_t* put_places(uint64_t bits, int64_t at, uint32_t* out) {
  const uint32_t base = static_cast<uint32_t>(at);
  const int64_t count = __builtin_popcountll(bits);
  volatile uint32_t* to = out;  // one by one: GCC would collect them in a vector first, which takes longer
  for (int64_t done = 0; done < count; done += 8) {
    for (int k = 0; k < 8; ++k) {
      to[done + k] = base + static_cast<uint32_t>(__builtin_ctzll(bits | uint64_t{1} << 63));
      bits &= bits - 1;
    }
  }
  return out + count;
}

// Appends the places of line breaks among the ends.
inline __attribute__((always_inline)) int64_t* put_breaks(uint64_t lines, uint64_t ends, int64_t before, int64_t* out) {
  for (uint64_t left = lines; left != 0; left &= left - 1) {
    *out++ = before + __builtin_popcountll(ends & ((left & -left) - 1));
  }
  return out;
}

inline __attribute__((always_inline)) uint64_t known_bits(int64_t left) {
  return left >= 64 ? ~uint64_t{0} : (uint64_t{1} << left) - 1;
}

}  // namespace

SPARROW_VERSIONS void find_ends(const char* data, int64_t from, int64_t to, char separator, int quote, Found& found) {
  uint32_t* out = found.ends + found.count;
  int64_t* breaks = found.breaks + found.lines;
  uint64_t begins = found.begins_field, after_return = found.after_return;
  bool has_returns = found.has_returns;
  for (int64_t at = from; at < to; at += 64) {
    const Bytes bytes = load(data + at);
    const uint64_t known = known_bits(to - at);
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
    breaks = put_breaks(lines, ends, out - found.ends, breaks);
    out = put_places(ends, at, out);
  }
  found.count = out - found.ends;
  found.lines = breaks - found.breaks;
  found.begins_field = begins;
  found.after_return = after_return;
  found.has_returns = has_returns;
}

SPARROW_VERSIONS void find_plain_ends(const char* data, int64_t from, int64_t to, char separator, Found& found) {
  uint32_t* out = found.ends + found.count;
  int64_t* breaks = found.breaks + found.lines;
  for (int64_t at = from; at < to; at += 64) {
    const Bytes bytes = load(data + at);
    const uint64_t known = known_bits(to - at);
    const uint64_t lines = bits_of(bytes, '\n') & known, ends = (bits_of(bytes, separator) | lines) & known;
    breaks = put_breaks(lines, ends, out - found.ends, breaks);
    out = put_places(ends, at, out);
  }
  found.count = out - found.ends;
  found.lines = breaks - found.breaks;
}

SPARROW_VERSIONS bool gather_fields(const char* data, const uint32_t* ends, int64_t rows, int64_t num_columns,
                                    uint32_t separator_size, const Run* runs, int64_t num_runs, const Fields& fields) {
  uint64_t masks[9];  // of the first bytes of a word
  for (int size = 0; size < 9; ++size) masks[size] = size == 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * size)) - 1;
  const int64_t stride = fields.stride;
  uint32_t sizes_seen = 0;
  for (int64_t row = 0; row < rows; ++row, ends += num_columns) {
    uint64_t* words = fields.words + row;
    uint8_t* sizes = fields.sizes + row;
    for (const Run* run = runs; run < runs + num_runs; ++run) {
      const uint32_t* own = ends + run->first;
      uint32_t begin = own[-1] + (run->first == 0 ? 1 : separator_size);
      for (int64_t i = 0; i < run->count; ++i, words += stride, sizes += stride) {
        const uint32_t size = own[i] - begin;
        uint64_t word;
        std::memcpy(&word, data + begin, 8);
        *words = word & masks[size < 8 ? size : 8];
        *sizes = static_cast<uint8_t>(size);
        sizes_seen |= size + 7;  // 16 or more where the size is above eight
        begin = own[i] + separator_size;
      }
    }
  }
  return sizes_seen < 16;
}

SPARROW_VERSIONS void count_lines(const char* data, int64_t size, int quote, Counted& counted) {
  typedef uint8_t Lanes __attribute__((vector_size(64)));
  constexpr int64_t MOST = 255;  // times that a lane can count
  const uint8_t mark = quote < 0 ? '\r' : static_cast<uint8_t>(quote);
  int64_t at = 0;
  Lanes all = {}, returns = {}, quotes = {};
  while (size - at >= 64) {
    const int64_t times = (size - at) / 64 < MOST ? (size - at) / 64 : MOST;
    Lanes lines = {};
    for (int64_t i = 0; i < times; ++i, at += 64) {
      Lanes bytes;
      std::memcpy(&bytes, data + at, 64);
      lines -= reinterpret_cast<Lanes>(bytes == static_cast<uint8_t>('\n'));
      returns |= reinterpret_cast<Lanes>(bytes == static_cast<uint8_t>('\r'));
      quotes |= reinterpret_cast<Lanes>(bytes == mark);
      all |= bytes;
    }
    for (int i = 0; i < 64; ++i) counted.lines += lines[i];
  }
  for (int i = 0; i < 64; ++i) {
    counted.is_ascii &= all[i] < 128;
    counted.has_returns |= returns[i] != 0;
    counted.has_quotes |= quote >= 0 && quotes[i] != 0;
  }
  for (; at < size; ++at) {
    const uint8_t byte = static_cast<uint8_t>(data[at]);
    counted.lines += byte == '\n';
    counted.is_ascii &= byte < 128;
    counted.has_returns |= byte == '\r';
    counted.has_quotes |= quote >= 0 && byte == mark;
  }
}

}  // namespace sparrow
