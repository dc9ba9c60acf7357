// The loops over short strings.
#include "shorts.h"

#include "hash.h"
#include "versions.h"

namespace sparrow {

SPARROW_VERSIONS void hash_shorts(const uint64_t* words, const uint8_t* sizes, int64_t count, uint64_t* hashes) {
  uint8_t largest = 0, differ = 0;
  for (int64_t i = 0; i < count; ++i) largest = sizes[i] > largest ? sizes[i] : largest;
  for (int64_t i = 0; i < count; ++i) differ |= sizes[i] == 0 ? 0 : sizes[i] ^ largest;
  if (differ == 0) {  // one size, such as that of hexadecimal numbers
    const uint64_t begun = mix64(largest);
    for (int64_t i = 0; i < count; ++i) hashes[i] = mix64(begun ^ words[i]);
    return;
  }
  uint64_t begun[9];
  for (uint64_t size = 0; size < 9; ++size) begun[size] = mix64(size);
  for (int64_t i = 0; i < count; ++i) hashes[i] = mix64(begun[sizes[i]] ^ words[i]);
}

SPARROW_VERSIONS bool parse_shorts(const uint64_t* words, const uint8_t* sizes, int64_t count, int64_t* values,
                                   uint8_t* odd) {
  constexpr uint64_t ZEROS = 0x3030303030303030, HIGH = 0x8080808080808080, ABOVE_NINE = 0x7676767676767676;
  constexpr uint64_t PAIRS = 0x000000FF000000FF;
  uint64_t any = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int half = 32 - 4 * sizes[i];
    uint64_t digits = (words[i] ^ ZEROS) << half << half;  // in two steps: no digits are shifted by 64
    const uint64_t wrong = ((digits + ABOVE_NINE) | digits) & HIGH;
    digits = digits * 10 + (digits >> 8);
    values[i] = static_cast<int64_t>(
        ((digits & PAIRS) * (100 + (uint64_t{1000000} << 32)) + (digits >> 16 & PAIRS) * (1 + (uint64_t{10000} << 32))) >>
        32);
    odd[i] = wrong != 0;
    any |= wrong;
  }
  return any != 0;
}

SPARROW_VERSIONS void remainders(const uint64_t* hashes, int64_t count, uint64_t size, int32_t* rows) {
  const Modulo modulo(size);
  for (int64_t i = 0; i < count; ++i) rows[i] = static_cast<int32_t>(modulo(hashes[i]));
}

}  // namespace sparrow
