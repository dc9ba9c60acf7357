// `RowMap`: from ids to the rows of a table, as a step describes it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "entries.h"
#include "hash.h"
#include "step.h"

namespace sparrow {

class RowMap {
 public:
  explicit RowMap(const Step& step) : step_(step), modulo_(step.size) {}

  // Row numbers of entries, and states; a bad entry's row does not matter.
  uint8_t operator()(const Entries& entries, int32_t* rows, uint8_t* states) {
    if (step_.mapping == NUMBERED) return numbered(entries, rows, states);
    if (static_cast<int64_t>(keys_.size()) < entries.count) keys_.resize(entries.count);
    const uint8_t seen = hashes(entries, step_.as_integer, keys_.data(), states);
    if (step_.mapping == HASHED) {
      remainders(keys_.data(), entries.count, step_.size, rows);
      return seen;
    }
    const HashTable table{step_.keys, step_.positions, step_.mask};
    for (int64_t i = 0; i < entries.count; ++i) {
      const int32_t found = table.find(keys_[i]);
      rows[i] = found >= 0 ? found : static_cast<int32_t>(step_.unknown);
    }
    return seen | unknown_are_bad(entries.count, rows, states);
  }

  // The words of a dictionary as they are, where they are row numbers; null: they must be mapped.
  const int32_t* as_they_are(const Leaf& words) const {
    if (step_.mapping != NUMBERED || words.type != 'i' || words.valid != nullptr) return nullptr;
    const int32_t* from = static_cast<const int32_t*>(words.data) + words.offset;
    uint32_t largest = 0;
    for (int64_t i = 0; i < words.length; ++i) largest = std::max(largest, static_cast<uint32_t>(from[i]));
    return largest < static_cast<uint64_t>(std::min<int64_t>(step_.size, INT32_MAX)) ? from : nullptr;
  }

  // Integers of which none is missing, one for each row. False: some are unknown, and that makes a row bad.
  template <class T>
  bool plain(const T* from, int64_t count, int32_t* rows) const {
    if (step_.mapping == HASHED) {
      for (int64_t i = 0; i < count; ++i) {
        rows[i] = static_cast<int32_t>(modulo_(mix64(static_cast<uint64_t>(static_cast<int64_t>(from[i])))));
      }
      return true;
    }
    const uint64_t size = step_.size;
    const int32_t unknown = static_cast<int32_t>(step_.unknown);
    bool all_known = true;
    for (int64_t i = 0; i < count; ++i) {
      const bool known = static_cast<uint64_t>(static_cast<int64_t>(from[i])) < size;
      all_known &= known;
      rows[i] = known ? static_cast<int32_t>(from[i]) : unknown;
    }
    return all_known || unknown != BAD_ROW;
  }

 private:
  uint8_t numbered(const Entries& entries, int32_t* rows, uint8_t* states) {
    if (are_rows<int32_t>('i', entries, rows) || are_rows<int64_t>('l', entries, rows)) {
      std::memset(states, GOOD, entries.count);
      return GOOD;
    }
    if (static_cast<int64_t>(integers_.size()) < entries.count) integers_.resize(entries.count);
    const uint8_t seen = integers(entries, integers_.data(), states);
    const uint64_t size = step_.size;
    bool all_known = true;
    for (int64_t i = 0; i < entries.count; ++i) {
      const bool known = static_cast<uint64_t>(integers_[i]) < size;
      all_known &= known;
      rows[i] = known ? static_cast<int32_t>(integers_[i]) : static_cast<int32_t>(step_.unknown);
    }
    return all_known ? seen : seen | unknown_are_bad(entries.count, rows, states);
  }

  // Integers of which none is missing, and all are row numbers. False: some are not, or the type is another.
  template <class T>
  bool are_rows(char type, const Entries& entries, int32_t* rows) const {
    if (entries.texts != nullptr || entries.leaf->type != type || entries.leaf->valid != nullptr) return false;
    const T* from = static_cast<const T*>(entries.leaf->data) + entries.leaf->offset + entries.begin;
    bool all_known = true;
    for (int64_t i = 0; i < entries.count; ++i) {
      all_known &= static_cast<uint64_t>(static_cast<int64_t>(from[i])) < static_cast<uint64_t>(step_.size);
      rows[i] = static_cast<int32_t>(from[i]);
    }
    return all_known;
  }

  uint8_t unknown_are_bad(int64_t count, const int32_t* rows, uint8_t* states) {
    uint8_t seen = 0;
    if (step_.unknown != BAD_ROW) return seen;
    for (int64_t i = 0; i < count; ++i) {
      if (rows[i] == BAD_ROW && states[i] == GOOD) seen |= states[i] = BAD;
    }
    return seen;
  }

  const Step& step_;
  Modulo modulo_;
  std::vector<int64_t> integers_;
  std::vector<uint64_t> keys_;
};

}  // namespace sparrow
