// The description of batches that Python gives, and the way to their rows.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace sparrow {

extern "C" {

// All structs are mirrored by sparrow/kernels/feed/filling.py: every field has 8 bytes.

// Rows of a block that go to a batch.
struct Piece {
  const int32_t* words;   // (rows, width) of the block
  const int64_t* order;   // the rows to take; null: from `begin` on
  int64_t begin, count;
  const int32_t* tail;    // the bags of the block's rows
  const int64_t* starts;  // where those of each row begin
  int64_t at;             // the first of its examples in the batch
  int64_t slot;           // the number of the batch
};

// A feature of a stack.
struct Field {
  int64_t word;      // of its id, or of the number of its ids
  int64_t bag;       // the number of its bags among the columns of bags; -1: it holds one id
  int64_t start;     // the first row of its table in the stack
  int64_t limit;     // rows of its table
  int64_t ignores;   // whether ids outside it are ignored; if not, they are an error
  int64_t combiner;  // the place in COMBINERS
  int64_t places;    // for its ids in every example; 0: as many as it has
  int64_t there;     // of a single raw id: the number of the row's bit that is set where there is one
};

// A stack. Places are words of the buffer.
struct Packed {
  const Field* fields;
  int64_t num_fields;
  int64_t spare;    // the row of an id that is ignored
  int64_t examples; // in a batch
  int64_t capacity;     // entries; -1: one for each bag
  int64_t ids, bags, offsets, gains;  // where they go; -1 where there are none; without bags, each field has `places`
  int64_t first;    // the number of its first bag and entry: single ids, one each, come before them
  int64_t raw;      // where raw 64-bit ids go, for a stack of dynamic tables, whose `ids` are numbers of tables; -1: ids are rows
  int64_t follows;  // whether its bags follow those of the stack before, in the same arrays; for columns

  bool is_single() const { return capacity < 0; }
  bool is_fixed() const { return capacity >= 0 && bags < 0; }  // every field has its places
};

// Words of every row that are copied.
struct Copied {
  int64_t word, width, to;
};

struct Filling {
  int64_t width;            // of a row
  const int64_t* columns;   // of bags: the word of the length, the words of an id with its weight, and whether there are weights
  int64_t num_columns;
  const Packed* stacks;
  int64_t num_stacks;
  const Copied* copies;
  int64_t num_copies;
  int64_t slot_words;       // from one batch to the next
};

}  // extern "C"

enum Combiner : int64_t { SUM, MEAN, SQRTN };

// Where the bags of a stack go in a batch; null where there are none.
struct Places {
  Places() = default;
  Places(const Packed& stack, int32_t* batch) : ids(batch + stack.ids) {
    if (stack.raw >= 0) raw = batch + stack.raw;
    if (stack.is_single()) return;
    bags = batch + stack.bags;
    offsets = batch + stack.offsets;
    if (stack.gains >= 0) gains = reinterpret_cast<float*>(batch + stack.gains);
  }

  // Fills the capacity behind the last entry.
  void finish(const Packed& stack, int64_t entry, int64_t bag) const {
    std::fill(ids + entry, ids + stack.capacity, static_cast<int32_t>(stack.spare));
    std::fill(bags + entry, bags + stack.capacity, static_cast<int32_t>(stack.first + bag));
    if (gains != nullptr) std::fill(gains + entry, gains + stack.capacity, 0.0f);
    if (raw != nullptr) std::fill(raw + 2 * entry, raw + 2 * stack.capacity, 0);
  }

  int32_t* ids = nullptr;
  int32_t* raw = nullptr;  // of raw ids; null: ids are rows
  int32_t* bags = nullptr;
  int32_t* offsets = nullptr;
  float* gains = nullptr;
};

// The gain of every row of a bag without weights.
inline float gain_of(int64_t combiner, int64_t length) {
  if (combiner == SUM || length == 0) return 1.0f;
  const double total = static_cast<double>(length);
  return static_cast<float>(1.0 / (combiner == MEAN ? total : std::sqrt(total)));
}

// The gains of one bag, whose ids `id_at` gives; `weights` may be null. False: the weights are not finite.
template <class IdAt>
bool put_gains(int64_t combiner, int64_t limit, int64_t length, const float* weights, float* gains, IdAt&& id_at) {
  double total = 0;
  for (int64_t k = 0; k < length; ++k) {
    const bool is_in = static_cast<uint64_t>(id_at(k)) < static_cast<uint64_t>(limit);
    float weight = weights == nullptr ? 1.0f : weights[k];
    if (!std::isfinite(weight)) return false;
    if (combiner != SUM) weight *= is_in ? 1.0f : 0.0f;
    const double exact = weight;
    const volatile double summand = combiner == SQRTN ? exact * exact : exact;  // rounded, as the reference does
    total += summand;
    gains[k] = weight;
  }
  if (combiner == SUM) return true;
  const double divisor = combiner == MEAN ? total : std::sqrt(total);
  const double factor = divisor != 0 ? 1.0 / divisor : 0.0;
  for (int64_t k = 0; k < length; ++k) gains[k] = static_cast<float>(static_cast<double>(gains[k]) * factor);
  return true;
}

constexpr int64_t AHEAD = 16;  // examples whose rows are on their way to the cache
constexpr int64_t TAIL_AHEAD = 4;  // examples whose bags are
constexpr int64_t SHORT = 8;  // entries of a short bag; a tail has SHORT more behind its end

inline const int32_t* row_of(const Filling& how, const Piece& piece, int64_t i, int64_t& row) {
  row = piece.begin + i;
  if (piece.order != nullptr) row = piece.order[piece.begin + i];
  return piece.words + row * how.width;
}

// The row in the stack of an id, without a branch; the spare one of an id outside its table, and `is_out` is then -1.
inline __attribute__((always_inline)) int32_t row_or_spare(int32_t id, int32_t start, uint32_t limit, int32_t spare,
                                                           int32_t& is_out) {
  is_out = -static_cast<int32_t>(static_cast<uint32_t>(id) >= limit);
  return ((id + start) & ~is_out) | (spare & is_out);
}

// Whether a row has the single raw id of a field.
inline bool is_there(const Field& field, const int32_t* words) {
  return static_cast<uint32_t>(words[field.there / 32]) >> field.there % 32 & 1;
}

// Finds where the bags of a row begin in its tail, by column: they stand one after the other, weights behind their ids.
inline void find_bags(const Filling& how, const int32_t* words, const int32_t* tail, const int32_t** begins) {
  for (int64_t c = 0; c < how.num_columns; ++c) {
    begins[c] = tail;
    tail += words[how.columns[3 * c]] * how.columns[3 * c + 1];
  }
}

// Asks for the row that comes AHEAD of the i-th, of `count` from the piece's first on.
inline void prefetch(const Filling& how, const Piece& piece, int64_t i, int64_t count) {
  if (piece.order == nullptr || i + AHEAD >= count) return;
  const char* next = reinterpret_cast<const char*>(piece.words + piece.order[piece.begin + i + AHEAD] * how.width);
  for (int64_t byte = 0; byte < how.width * 4; byte += 64) __builtin_prefetch(next + byte);
  __builtin_prefetch(next + how.width * 4 - 1);  // where a row does not begin with a line of the cache
  if (piece.starts != nullptr) __builtin_prefetch(piece.starts + piece.order[piece.begin + i + AHEAD]);
  // GCC takes a function that only prefetches for one without effect, and drops its calls. This line it cannot drop.
  asm volatile("");
}

// The same for its bags, TAIL_AHEAD of the i-th.
inline void prefetch_tail(const Piece& piece, int64_t i, int64_t count) {
  if (piece.order == nullptr || i + TAIL_AHEAD >= count) return;
  const int64_t next = piece.order[piece.begin + i + TAIL_AHEAD];
  const int32_t* end = piece.tail + piece.starts[next + 1];
  for (const int32_t* at = piece.tail + piece.starts[next]; at < end; at += 16) __builtin_prefetch(at);
  asm volatile("");
}

}  // namespace sparrow
