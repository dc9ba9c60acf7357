// `Tile`: a block of rows, column by column, while it is converted. Its rows are then written at once.
#pragma once

#include <cstdint>
#include <cstring>

#include "scratch.h"

namespace sparrow {

constexpr int64_t BLOCK = 2048;  // the most rows that all columns are converted for before the next
constexpr int64_t LEAST_BLOCK = 512;
constexpr int64_t BLOCK_BYTES = 512 << 10;  // of a block's rows and bags, which are to stay in the cache
constexpr int64_t TILE_STRIDE = BLOCK + 16;  // words from one column of a tile to the next: not a power of two

// Rows of `width` words out of columns: in tile.cc.
void write_rows(const int32_t* columns, int64_t rows, int64_t width, int32_t* out);
// Words of a table, one for each place: in tile.cc.
void gather(const int32_t* table, const int32_t* places, int64_t count, int32_t* out);

// Whether none of them is negative: in tile.cc.
bool are_all_rows(const int32_t* rows, int64_t count);

class Tile {
 public:
  Tile(int64_t width, Scratch& scratch) : width_(width), words_(scratch.array<int32_t>((width + 3) * TILE_STRIDE)) {
    std::memset(words_, 0, (width + 3) * TILE_STRIDE * sizeof(int32_t));  // the words that nothing writes are zero
  }

  int32_t* column(int64_t word) { return words_ + word * TILE_STRIDE; }
  const int32_t* column(int64_t word) const { return words_ + word * TILE_STRIDE; }
  void write(int64_t rows, int32_t* out) const { write_rows(words_, rows, width_, out); }

 private:
  int64_t width_;
  int32_t* words_;
};

}  // namespace sparrow
