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

inline uint64_t hash_text(Span text) {
  uint64_t h = mix64(static_cast<uint64_t>(text.size));
  int64_t at = 0;
  for (; at + 8 <= text.size; at += 8) {
    uint64_t word;
    std::memcpy(&word, text.data + at, 8);
    h = mix64(h ^ word);
  }
  if (at < text.size) {
    uint64_t word = 0;
    std::memcpy(&word, text.data + at, text.size - at);
    h = mix64(h ^ word);
  }
  return h;
}

// x % size by a multiplication.
struct Modulo {
  uint64_t size, inverse;  // inverse: floor((2**64 - 1) / size), so that the quotient is at most two too small

  explicit Modulo(uint64_t size) : size(size), inverse(size ? ~uint64_t{0} / size : 0) {}

  uint64_t operator()(uint64_t x) const {
    uint64_t rest = x - static_cast<uint64_t>(static_cast<unsigned __int128>(x) * inverse >> 64) * size;
    while (rest >= size) rest -= size;
    return rest;
  }
};

// Open addressing, as sparrow/data/hash_table.py fills it.
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
