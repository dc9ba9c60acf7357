// The fixed hashes of sparrow/embedding/hashing.py and sparrow/data/hashing.py, one value at a time.
#pragma once

#include <cstdint>
#include <cstring>

#include "arrow.h"

namespace sparrow {

inline uint64_t mix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// The x of which `mixed` is the mix64.
inline uint64_t unmix64(uint64_t mixed) {
  uint64_t x = mixed ^ (mixed >> 31) ^ (mixed >> 62);
  x *= 0x319642B2D24D8EC3u;
  x ^= (x >> 27) ^ (x >> 54);
  x *= 0x96DE1B173F119089u;
  x ^= (x >> 30) ^ (x >> 60);
  return x - 0x9E3779B97F4A7C15u;
}

// The first `size` bytes, 1 to 7 of them, and zeros behind; no other byte is read.
inline uint64_t part_of_word(const char* data, int64_t size) {
  if (size >= 4) {
    uint32_t first, last;
    std::memcpy(&first, data, 4);
    std::memcpy(&last, data + size - 4, 4);
    return first | static_cast<uint64_t>(last) << (8 * (size - 4));
  }
  const auto byte = [&](int64_t at) { return static_cast<uint64_t>(static_cast<unsigned char>(data[at])) << (8 * at); };
  return byte(0) | byte(size / 2) | byte(size - 1);
}

inline uint64_t hash_text(Span text) {
  uint64_t h = mix64(static_cast<uint64_t>(text.size));
  int64_t at = 0;
  for (; at + 8 <= text.size; at += 8) {
    uint64_t word;
    std::memcpy(&word, text.data + at, 8);
    h = mix64(h ^ word);
  }
  return at < text.size ? mix64(h ^ part_of_word(text.data + at, text.size - at)) : h;
}

// x % size by a multiplication.
struct Modulo {
  uint64_t size, inverse = 0;  // inverse: floor((2**(64 + shift) - 1) / size), so that the quotient is at most one too small
  int shift = 0;               // 2**shift is at most the size

  explicit Modulo(uint64_t size) : size(size) {
    if (size == 0) return;
    shift = 63 - __builtin_clzll(size);
    inverse = static_cast<uint64_t>((~static_cast<unsigned __int128>(0) >> (64 - shift)) / size);
  }

  uint64_t operator()(uint64_t x) const {
    const uint64_t quotient = static_cast<uint64_t>(static_cast<unsigned __int128>(x) * inverse >> 64) >> shift;
    const uint64_t rest = x - quotient * size;
    return rest - (size & -static_cast<uint64_t>(rest >= size));  // without a branch, which would go either way
  }
};

// Open addressing, as sparrow/data/hashing.py fills it.
struct HashTable {
  const uint64_t* keys;
  const int32_t* positions;
  uint64_t mask;

  int32_t find(uint64_t key) const {
    for (uint64_t slot = key & mask;; slot = (slot + 1) & mask) {
      if (positions[slot] < 0 || keys[slot] == key) return positions[slot];
    }
  }
};

}  // namespace sparrow
