// The loops of tiles and of tails.
#include "tile.h"

#include "tails.h"
#include "versions.h"

namespace sparrow {
namespace {

typedef int32_t Four __attribute__((vector_size(16)));

inline __attribute__((always_inline)) Four load(const int32_t* at) {
  Four made;
  std::memcpy(&made, at, sizeof made);
  return made;
}

inline __attribute__((always_inline)) void store(Four four, int32_t* at) { std::memcpy(at, &four, sizeof four); }

// Most bags are short: a copy of fixed length, of which the next bag overwrites the rest.
inline __attribute__((always_inline)) void copy_words(const void* from, int64_t count, int32_t* to) {
  if (count <= SPARE) {
    std::memcpy(to, from, SPARE * sizeof(int32_t));
  } else {
    std::memcpy(to, from, count * sizeof(int32_t));
  }
}

}  // namespace

SPARROW_VERSIONS int64_t write_tails(Bags* bags, int64_t count, int64_t rows, int32_t* words, int64_t used,
                                     int64_t* starts) {
  int32_t* to = words + used;
  for (int64_t row = 0; row < rows; ++row) {
    starts[row] = to - words;
    for (Bags* own = bags; own < bags + count; ++own) {
      const int64_t length = own->lengths[row];
      const int64_t of_ids = length << own->is_wide;
      copy_words(own->rows, of_ids, to);
      own->rows += of_ids;
      to += of_ids;
      if (own->weights == nullptr) continue;
      copy_words(own->weights, length, to);
      own->weights += length;
      to += length;
    }
  }
  return to - words;
}

SPARROW_VERSIONS void write_rows(const int32_t* columns, int64_t rows, int64_t width, int32_t* out) {
  const int64_t in_fours = width / 4 * 4, rows_in_fours = rows / 4 * 4;
  for (int64_t row = 0; row < rows_in_fours; row += 4) {
    int32_t* to = out + row * width;
    for (int64_t word = 0; word < in_fours; word += 4, to += 4) {
      const int32_t* from = columns + word * TILE_STRIDE + row;
      const Four a = load(from), b = load(from + TILE_STRIDE);
      const Four c = load(from + 2 * TILE_STRIDE), d = load(from + 3 * TILE_STRIDE);
      const Four ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
      const Four cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
      store(__builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5), to);
      store(__builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7), to + width);
      store(__builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5), to + 2 * width);
      store(__builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7), to + 3 * width);
    }
  }
  for (int64_t row = 0; row < rows; ++row) {  // the rest of each row, and all of the last rows
    for (int64_t word = row < rows_in_fours ? in_fours : 0; word < width; ++word) {
      out[row * width + word] = columns[word * TILE_STRIDE + row];
    }
  }
}

SPARROW_VERSIONS bool are_all_rows(const int32_t* rows, int64_t count) {
  int32_t all = 0;
  for (int64_t i = 0; i < count; ++i) all |= rows[i];
  return all >= 0;
}

// Two places come with one load.
void gather(const int32_t* table, const int32_t* places, int64_t count, int32_t* out) {
  const int64_t in_eights = count / 8 * 8;
  for (int64_t i = 0; i < in_eights; i += 8) {
    uint64_t pairs[4];
    std::memcpy(pairs, places + i, sizeof pairs);
    for (int k = 0; k < 4; ++k) {
      out[i + 2 * k] = table[static_cast<uint32_t>(pairs[k])];
      out[i + 2 * k + 1] = table[pairs[k] >> 32];
    }
  }
  for (int64_t i = in_eights; i < count; ++i) out[i] = table[places[i]];
}

}  // namespace sparrow
