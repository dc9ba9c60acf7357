// Rows of a quantized table as float32: code * scale + offset.
//
// A row is a record of bytes: its codes, of 8 bits each, or two of 4 bits in a byte, the first one in the low half; then
// scale and offset as float16.
#include <cstdint>
#include <cstring>

namespace {

float half(const uint8_t* at) {
  uint16_t bits;
  std::memcpy(&bits, at, 2);
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = (bits >> 10) & 31, fraction = bits & 1023;
  if (exponent == 0) {
    const float value = static_cast<float>(fraction) * 5.9604644775390625e-8f;  // 2^-24
    return sign ? -value : value;
  }
  const uint32_t made = sign | (exponent == 31 ? 0x7F800000u : (exponent + 112) << 23) | (fraction << 13);
  float value;
  std::memcpy(&value, &made, 4);
  return value;
}

}  // namespace

extern "C" {

// Writes the rows of `ids`, each in [0, num_rows), to `out`, `stride` numbers apart; other ids write zeros.
__attribute__((visibility("default"))) void sparrow_dequantize(const uint8_t* table, int64_t num_rows, int64_t dim,
                                                               int64_t bits, const int32_t* ids, int64_t count,
                                                               float* out, int64_t stride) {
  const int64_t codes = bits == 8 ? dim : (dim + 1) / 2, record = codes + 4;
  for (int64_t i = 0; i < count; ++i) {
    if (i + 8 < count && ids[i + 8] >= 0 && ids[i + 8] < num_rows) __builtin_prefetch(table + ids[i + 8] * record);
    float* row = out + i * stride;
    if (ids[i] < 0 || ids[i] >= num_rows) {
      std::memset(row, 0, dim * sizeof(float));
      continue;
    }
    const uint8_t* at = table + ids[i] * record;
    const float scale = half(at + codes), offset = half(at + codes + 2);
    if (bits == 8) {
      for (int64_t j = 0; j < dim; ++j) row[j] = static_cast<float>(at[j]) * scale + offset;
    } else {
      for (int64_t j = 0; j < dim; ++j) row[j] = static_cast<float>((at[j / 2] >> (4 * (j & 1))) & 15) * scale + offset;
    }
  }
}

}  // extern "C"
