// The loops of tiles.
#include "tile.h"

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

}  // namespace

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

SPARROW_VERSIONS void gather(const int32_t* table, const int32_t* places, int64_t count, int32_t* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = table[places[i]];
}

}  // namespace sparrow
