// `KeyRunner`: 64-bit keys of groups. `CrossRunner`: rows of several columns' keys, hashed together.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "hash.h"
#include "runner.h"

namespace sparrow {

inline uint8_t hashes_of(const Entries& entries, uint64_t* values, uint8_t* states) {
  return hashes(entries, false, values, states);
}

inline Entries entries_of(const Column& column, int64_t begin, int64_t end) {
  Entries entries;
  entries.leaf = &column.entries;
  entries.begin = begin;
  entries.count = end - begin;
  return entries;
}

// Integers as they stand, strings by their hash.
class Keys {
 public:
  explicit Keys(Scratch& scratch) : hashed_(scratch), integers_(scratch) {}

  uint8_t operator()(const Entries& entries, bool as_integer, int64_t* values, uint8_t* states) {
    const bool is_text = entries.texts != nullptr || holds_texts(*entries.leaf);
    if (!is_text || as_integer) return integers_(entries, values, states, integers);
    return hashed_(entries, reinterpret_cast<uint64_t*>(values), states, hashes_of);
  }

 private:
  Spread<uint64_t> hashed_;
  Spread<int64_t> integers_;
};

class KeyRunner : public Runner {
 public:
  explicit KeyRunner(const Work& work) : Runner(work), read_(work.scratch) {}

  bool run(int64_t begin, int64_t end) override {
    if (read_(entries_of(*columns_[0], begin, end), step_.as_integer, keys_, states_) & UNSURE) return false;
    int32_t *low = out(0), *high = out(1);
    for (int64_t i = 0; i < end - begin; ++i) {
      if (states_[i] != GOOD) bad_[begin + i] = 1;
      int32_t words[2];
      std::memcpy(words, &keys_[i], sizeof words);
      low[i] = words[0];
      high[i] = words[1];
    }
    return true;
  }

 private:
  int64_t keys_[BLOCK];
  uint8_t states_[BLOCK];
  Keys read_;
};

class CrossRunner : public Runner {
 public:
  explicit CrossRunner(const Work& work) : Runner(work), modulo_(step_.size), hashed_(columns_.size(), Spread<uint64_t>(work.scratch)) {}

  bool run(int64_t begin, int64_t end) override {
    const int64_t count = end - begin;
    std::fill(crossed_, crossed_ + count, mix64(step_.num_columns));
    for (size_t column = 0; column < columns_.size(); ++column) {
      const Entries entries = entries_of(*columns_[column], begin, end);
      if (hashed_[column](entries, keys_, states_, hashes_of) & UNSURE) return false;
      for (int64_t i = 0; i < count; ++i) {
        if (states_[i] & BAD) bad_[begin + i] = 1;
        crossed_[i] = mix64(crossed_[i] ^ (states_[i] == MISSING ? 0 : keys_[i]));
      }
    }
    for (int64_t i = 0; i < count; ++i) out()[i] = static_cast<int32_t>(modulo_(crossed_[i]));
    return true;
  }

 private:
  Modulo modulo_;
  uint64_t keys_[BLOCK], crossed_[BLOCK];
  uint8_t states_[BLOCK];
  std::vector<Spread<uint64_t>> hashed_;
};

}  // namespace sparrow
