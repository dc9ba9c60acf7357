// Strings of at most eight bytes, each in a word: the common case in text files, and one that vectors suit.
#pragma once

#include <cstdint>

namespace sparrow {

// The loops are in shorts.cc. A word holds the bytes of its string, the first one lowest, and zeros behind them.

// The hashes of strings, as hash_text gives them; of an empty one: anything.
void hash_shorts(const uint64_t* words, const uint8_t* sizes, int64_t count, uint64_t* hashes);

// The numbers that strings of digits are. `odd`: 1 where a string has another form. Returns whether there is one.
bool parse_shorts(const uint64_t* words, const uint8_t* sizes, int64_t count, int64_t* values, uint8_t* odd);

// The rest of each hash, divided by `size`.
void remainders(const uint64_t* hashes, int64_t count, uint64_t size, int32_t* rows);

}  // namespace sparrow
