// Rows of the tables of an export as float32, for all lookups of a batch at once.
//
// A row of codes is a record of bytes: its codes, of 8 bits each, or two of 4 bits in a byte, the first one in the low
// half; then scale and offset as float16. Its values are code * scale + offset.
#include <cstdint>
#include <cstring>

namespace {

enum Kind : int64_t { kFloat32 = 0, kFloat16 = 1, kBfloat16 = 2, kCodes4 = 4, kCodes8 = 8 };

struct Lookup {
  const uint8_t* table;
  int64_t rows, dim, kind;
  int64_t ids;     // the row of its ids in the matrix of ids
  int64_t column;  // its first column in the output

  int64_t row_bytes() const {
    if (kind == kFloat32) return 4 * dim;
    if (kind == kCodes8) return dim + 4;
    return kind == kCodes4 ? (dim + 1) / 2 + 4 : 2 * dim;
  }
};

constexpr int64_t kAhead = 12;  // rows that are on their way from memory

float of_bits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

uint32_t word16(const uint8_t* at) {
  uint16_t bits;
  std::memcpy(&bits, at, 2);
  return bits;
}

float half(const uint8_t* at) {
  const uint32_t bits = word16(at), sign = (bits & 0x8000) << 16;
  const uint32_t exponent = (bits >> 10) & 31, fraction = bits & 1023;
  if (exponent == 0) {
    const float value = static_cast<float>(fraction) * 5.9604644775390625e-8f;  // 2^-24
    return sign ? -value : value;
  }
  return of_bits(sign | (exponent == 31 ? 0x7F800000u : (exponent + 112) << 23) | (fraction << 13));
}

void write_row(const Lookup& lookup, const uint8_t* at, float* row) {
  const int64_t dim = lookup.dim;
  switch (lookup.kind) {
    case kFloat32:
      std::memcpy(row, at, dim * sizeof(float));
      return;
    case kFloat16:
      for (int64_t j = 0; j < dim; ++j) row[j] = half(at + 2 * j);
      return;
    case kBfloat16:
      for (int64_t j = 0; j < dim; ++j) row[j] = of_bits(word16(at + 2 * j) << 16);
      return;
    default:
      break;
  }
  const uint8_t* ends = at + lookup.row_bytes() - 4;
  const float scale = half(ends), offset = half(ends + 2);
  if (lookup.kind == kCodes8) {
    for (int64_t j = 0; j < dim; ++j) row[j] = static_cast<float>(at[j]) * scale + offset;
  } else {
    for (int64_t j = 0; j < dim; ++j) row[j] = static_cast<float>((at[j / 2] >> (4 * (j & 1))) & 15) * scale + offset;
  }
}

}  // namespace

// Writes the rows of `ids`, (features, count), to `out`, whose rows are `stride` numbers apart; an id that is not in
// [0, rows) writes zeros.
extern "C" __attribute__((visibility("default"))) void sparrow_fill_rows(
    const Lookup* lookups, int64_t num_lookups, const int32_t* ids, int64_t count, float* out, int64_t stride) {
  const int64_t total = num_lookups * count;
  int64_t next_lookup = 0, next_row = 0, fetched = 0;
  int64_t at = 0;
  for (int64_t l = 0; l < num_lookups; ++l) {
    const Lookup& lookup = lookups[l];
    const int64_t bytes = lookup.row_bytes();
    for (int64_t i = 0; i < count; ++i, ++at) {
      for (; fetched < total && fetched < at + kAhead; ++fetched) {
        const Lookup& ahead = lookups[next_lookup];
        const int64_t id = ids[ahead.ids * count + next_row], size = ahead.row_bytes();
        if (id >= 0 && id < ahead.rows) {
          const uint8_t* row = ahead.table + id * size;
          for (int64_t byte = 0; byte < size && byte < 512; byte += 64) __builtin_prefetch(row + byte);
        }
        if (++next_row == count) next_row = 0, ++next_lookup;
      }
      const int64_t id = ids[lookup.ids * count + i];
      float* row = out + i * stride + lookup.column;
      if (id < 0 || id >= lookup.rows) {
        std::memset(row, 0, lookup.dim * sizeof(float));
      } else {
        write_row(lookup, lookup.table + id * bytes, row);
      }
    }
  }
}
