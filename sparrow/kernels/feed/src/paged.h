// Entries of a column that are still in their pages: `Pages` reads them piece by piece, `unfold` all at once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "arrow.h"
#include "hybrid.h"
#include "scratch.h"
#include "unpack.h"

namespace sparrow {

// Reads the entries of a leaf in their order.
class Pages {
 public:
  static constexpr int64_t AT_ONCE = 1024;  // entries, which stay in the cache

  explicit Pages(const Leaf& leaf) : leaf_(leaf), words_(dictionary_of(leaf)) { begin(); }

  // The words that places refer to; null: there are none.
  static const Leaf* dictionary_of(const Leaf& leaf) {
    if (!leaf.words.empty()) return &leaf.words[0];
    return leaf.partly.empty() ? nullptr : &leaf.partly[0];
  }

  // Calls on_places(places, count) for entries that are places in the dictionary, all of which exist, and
  // on_values(bytes, count) for others, AT_ONCE at most, until there were `count`. False: a call has returned false, or
  // the pages are damaged, and `is_damaged` is set.
  template <class OnPlaces, class OnValues>
  bool read(int64_t count, OnPlaces&& on_places, OnValues&& on_values, bool& is_damaged) {
    while (count > 0) {
      if (left_ == 0) {
        ++segment_;
        if (!begin()) return damaged(is_damaged);
        continue;
      }
      const int64_t own = std::min({count, left_, AT_ONCE});
      const Segment& segment = leaf_.segments[segment_];
      if (segment.width >= 0) {
        if (!codes_.read(own, places_) || words_ == nullptr) return damaged(is_damaged);
        if (largest(places_, own) >= static_cast<uint64_t>(words_->length)) return damaged(is_damaged);
        if (!on_places(places_, own)) return false;
      } else {
        const int64_t size = value_size(leaf_.type);
        if (!on_values(segment.in + (segment.count - left_) * size, own)) return false;
      }
      left_ -= own;
      count -= own;
    }
    return true;
  }

  static int64_t value_size(char type) { return is_one_of(type, "iIf") ? 4 : 8; }

 private:
  static bool damaged(bool& is_damaged) {
    is_damaged = true;
    return false;
  }

  bool begin() {
    if (segment_ >= leaf_.segments.size()) return false;
    const Segment& segment = leaf_.segments[segment_];
    left_ = segment.count;
    if (segment.width >= 0) codes_ = Hybrid(segment.in, segment.end, segment.width);
    return true;
  }

  const Leaf& leaf_;
  const Leaf* words_;
  size_t segment_ = 0;
  int64_t left_ = 0;
  Hybrid codes_;
  int32_t places_[AT_ONCE + 8];
};

// Writes the entries of a leaf to memory: places where all of them are such, else values. False: damaged.
inline bool unfold(Leaf& leaf, Scratch& scratch) {
  if (leaf.segments.empty() || leaf.data != nullptr) return true;
  const bool is_words = !leaf.words.empty();
  const int64_t size = is_words ? 4 : Pages::value_size(leaf.type);
  uint8_t* const made = scratch.array<uint8_t>((leaf.length + 8) * size);
  uint8_t* to = made;
  const Leaf* words = Pages::dictionary_of(leaf);
  Pages pages(leaf);
  bool is_damaged = false;
  const bool is_whole = pages.read(
      leaf.length,
      [&](const int32_t* places, int64_t count) {
        if (is_words) {
          std::memcpy(to, places, count * 4);
        } else if (size == 4) {
          const int32_t* from = static_cast<const int32_t*>(words->data);
          for (int64_t i = 0; i < count; ++i) std::memcpy(to + i * 4, from + places[i], 4);
        } else {
          const int64_t* from = static_cast<const int64_t*>(words->data);
          for (int64_t i = 0; i < count; ++i) std::memcpy(to + i * 8, from + places[i], 8);
        }
        to += count * size;
        return true;
      },
      [&](const uint8_t* values, int64_t count) {
        std::memcpy(to, values, count * size);
        to += count * size;
        return true;
      },
      is_damaged);
  if (is_whole) leaf.data = made;
  return is_whole;
}

}  // namespace sparrow
