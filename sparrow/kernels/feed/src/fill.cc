// From rows to the buffers that go to the device: the lookups of every stack and the other columns of a batch.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>
#include <vector>

#include "columns.h"
#include "filling.h"
#include "fixed.h"
#include "versions.h"

namespace sparrow {
namespace {

// The fields of a stack without bags, laid out for a loop over them.
struct Singles {
  explicit Singles(const Packed& stack) {
    for (int64_t f = 0; f < stack.num_fields; ++f) {
      const Field& field = stack.fields[f];
      words.push_back(static_cast<int32_t>(field.word));
      starts.push_back(static_cast<int32_t>(field.start));
      limits.push_back(static_cast<uint32_t>(field.limit));
      errors.push_back(field.ignores ? 0 : -1);
      is_dense &= field.word == stack.fields[0].word + f;
      are_pairs &= field.word == stack.fields[0].word + 2 * f;
      if (bits.empty() || bits.back().word != field.there / 32) bits.push_back({field.there / 32, 0});
      bits.back().all |= uint32_t{1} << field.there % 32;
    }
  }

  // A word of a row whose bits are set where raw ids are, and the bits of the stack's own.
  struct Bits {
    int64_t word;
    uint32_t all;
  };

  std::vector<int32_t> words, starts, errors;
  std::vector<uint32_t> limits;
  std::vector<Bits> bits;
  bool is_dense = true, are_pairs = true;
};

// True: all ids are in their tables, or may be outside. `known`: rows from the piece's first on that follow each other.
SPARROW_VERSIONS bool fill_single(const Filling& how, const Packed& stack, const Singles& fields, const Piece& piece,
                                  int64_t known, int32_t* buffer) {
  const int64_t count = stack.num_fields;
  const int32_t spare = static_cast<int32_t>(stack.spare);
  const int32_t *words = fields.words.data(), *starts = fields.starts.data(), *errors = fields.errors.data();
  const uint32_t* limits = fields.limits.data();
  int32_t* out = buffer + piece.slot * how.slot_words + stack.ids + piece.at * count;
  int32_t wrong = 0, is_out;
  int64_t at;
  for (int64_t i = 0; i < piece.count; ++i, out += count) {
    prefetch(how, piece, i, known);
    const int32_t* row = row_of(how, piece, i, at);
    if (fields.is_dense) {
      const int32_t* __restrict from = row + words[0];
      int32_t* __restrict to = out;
      for (int64_t f = 0; f < count; ++f) {
        to[f] = row_or_spare(from[f], starts[f], limits[f], spare, is_out);
        wrong |= is_out & errors[f];
      }
    } else {
      for (int64_t f = 0; f < count; ++f) {
        out[f] = row_or_spare(row[words[f]], starts[f], limits[f], spare, is_out);
        wrong |= is_out & errors[f];
      }
    }
  }
  return wrong == 0;
}

// Raw ids of dynamic tables: a row has the id in two words, and a bit where there is one. The entries get the number of
// their table, `start`, or -1.
SPARROW_VERSIONS void fill_raw(const Filling& how, const Packed& stack, const Singles& fields, const Piece& piece,
                               int64_t known, int32_t* buffer) {
  const int64_t count = stack.num_fields;
  int32_t* const batch = buffer + piece.slot * how.slot_words;
  int32_t* out = batch + stack.ids + piece.at * count;
  int32_t* raw = batch + stack.raw + piece.at * count * 2;
  int64_t at;
  for (int64_t i = 0; i < piece.count; ++i, out += count, raw += 2 * count) {
    prefetch(how, piece, i, known);
    const int32_t* row = row_of(how, piece, i, at);
    if (fields.are_pairs) {
      std::memcpy(raw, row + fields.words[0], 2 * count * sizeof(int32_t));
    } else {
      for (int64_t f = 0; f < count; ++f) std::memcpy(raw + 2 * f, row + fields.words[f], 2 * sizeof(int32_t));
    }
    std::memcpy(out, fields.starts.data(), count * sizeof(int32_t));
    for (const Singles::Bits& bits : fields.bits) {
      if ((static_cast<uint32_t>(row[bits.word]) & bits.all) == bits.all) continue;
      for (int64_t f = 0; f < count; ++f) {
        if (!is_there(stack.fields[f], row)) out[f] = static_cast<int32_t>(stack.spare);
      }
    }
  }
}

// The bags of a stack, batch by batch.
class Bags {
 public:
  Bags(const Filling& how, const Packed& stack) : how_(how), stack_(stack), from_(how.num_columns) {}

  // Begins a batch.
  void begin(int32_t* batch) {
    to_ = Places(stack_, batch);
    entry_ = bag_ = 0;
    to_.offsets[0] = static_cast<int32_t>(stack_.first);
  }

  inline __attribute__((always_inline)) bool add(const Piece& piece, int64_t known) {
    for (int64_t i = 0; i < piece.count; ++i) {
      prefetch(how_, piece, i, known);
      prefetch_tail(piece, i, known);
      if (!example(piece, i)) return false;
    }
    return true;
  }

  void finish() const { to_.finish(stack_, entry_, stack_.examples * stack_.num_fields); }

 private:
  inline __attribute__((always_inline)) bool example(const Piece& piece, int64_t i) {
    int64_t row;
    const int32_t* words = row_of(how_, piece, i, row);
    find_bags(how_, words, piece.tail + piece.starts[row], from_.data());
    bool is_right = true;
    for (int64_t f = 0; f < stack_.num_fields; ++f) {
      const Field& field = stack_.fields[f];
      const bool is_bag = field.bag >= 0;
      const int32_t* ids = is_bag ? from_[field.bag] : words + field.word;
      const int64_t length = is_bag ? words[field.word] : 1;
      if (entry_ + length > stack_.capacity) return false;
      const uint32_t limit = static_cast<uint32_t>(field.limit);
      const int32_t start = static_cast<int32_t>(field.start), spare = static_cast<int32_t>(stack_.spare);
      const int32_t bag = static_cast<int32_t>(stack_.first + bag_);
      int32_t* out = to_.ids + entry_;
      int32_t* bags = to_.bags + entry_;
      int32_t is_out = 0, own_is_out;
      // Most bags are short: a fixed number of entries, of which the next bag overwrites the rest.
      const bool is_short = is_bag && length <= SHORT && entry_ + SHORT <= stack_.capacity && to_.raw == nullptr;
      if (to_.raw != nullptr) {
        std::memcpy(to_.raw + 2 * entry_, ids, 2 * length * sizeof(int32_t));
        std::fill(out, out + length, is_bag || is_there(field, words) ? start : spare);
        std::fill(bags, bags + length, bag);
      } else if (is_short) {
        for (int32_t k = 0; k < SHORT; ++k) {
          out[k] = row_or_spare(ids[k], start, limit, spare, own_is_out);
          is_out |= own_is_out & -static_cast<int32_t>(k < static_cast<int32_t>(length));
        }
        for (int32_t k = 0; k < SHORT; ++k) bags[k] = bag;
      } else {
        for (int64_t k = 0; k < length; ++k) {
          out[k] = row_or_spare(ids[k], start, limit, spare, own_is_out);
          is_out |= own_is_out;
        }
        for (int64_t k = 0; k < length; ++k) bags[k] = bag;
      }
      is_right &= !is_out || field.ignores;
      if (to_.gains != nullptr) {
        const bool is_weighted = is_bag && how_.columns[3 * field.bag + 2];
        if (!is_weighted && !is_out) {
          const float gain = gain_of(field.combiner, length);
          if (is_short) {
            std::fill(to_.gains + entry_, to_.gains + entry_ + SHORT, gain);
          } else {
            std::fill(to_.gains + entry_, to_.gains + entry_ + length, gain);
          }
        } else {
          const int32_t* behind = ids + (to_.raw == nullptr ? length : 2 * length);
          const float* weights = is_weighted ? reinterpret_cast<const float*>(behind) : nullptr;
          is_right &= put_gains(field.combiner, field.limit, length, weights, to_.gains + entry_,
                                [&](int64_t k) { return to_.raw == nullptr ? static_cast<int64_t>(ids[k]) : 0; });
        }
      }
      entry_ += length;
      to_.offsets[++bag_] = static_cast<int32_t>(stack_.first + entry_);
    }
    return is_right;
  }

  const Filling& how_;
  const Packed& stack_;
  Places to_;
  std::vector<const int32_t*> from_;
  int64_t entry_ = 0, bag_ = 0;
};

SPARROW_VERSIONS bool add(Bags& bags, const Piece& piece, int64_t known) { return bags.add(piece, known); }

SPARROW_VERSIONS bool fill_fixed(Fixed& stack, const Piece& piece, int64_t known, int32_t* buffer) {
  return stack.fill(piece, known, buffer);
}

SPARROW_VERSIONS void count(const Filling& how, const Piece& piece, int64_t* __restrict counts,
                            int64_t* __restrict longest) {
  const int64_t num_columns = how.num_columns, first = num_columns > 0 ? how.columns[0] : 0;
  bool is_dense = true;
  for (int64_t c = 0; c < num_columns; ++c) is_dense &= how.columns[3 * c] == first + c;
  int64_t row;
  for (int64_t i = 0; i < piece.count; ++i) {
    if (piece.order != nullptr && i + AHEAD < piece.count) {  // the lengths alone, not all of the row
      __builtin_prefetch(piece.words + piece.order[piece.begin + i + AHEAD] * how.width + first);
    }
    const int32_t* __restrict words = row_of(how, piece, i, row);
    for (int64_t c = 0; c < num_columns; ++c) {
      const int64_t own = is_dense ? words[first + c] : words[how.columns[3 * c]];
      counts[c] += own;
      longest[c] = std::max(longest[c], own);
    }
  }
}

void copy(const Filling& how, const Copied& copied, const Piece& piece, int32_t* buffer) {
  int32_t* out = buffer + piece.slot * how.slot_words + copied.to + piece.at * copied.width;
  int64_t row;
  if (copied.width == 1) {
    for (int64_t i = 0; i < piece.count; ++i) out[i] = row_of(how, piece, i, row)[copied.word];
    return;
  }
  for (int64_t i = 0; i < piece.count; ++i, out += copied.width) {
    std::memcpy(out, row_of(how, piece, i, row) + copied.word, copied.width * sizeof(int32_t));
  }
}

}  // namespace
}  // namespace sparrow

// Writes batches; the pieces of a batch come one after the other. False: something is wrong that the reference must
// look at, such as an id outside its table.
SPARROW_API int64_t sparrow_feed_fill(const sparrow::Filling* how, const sparrow::Piece* pieces, int64_t num_pieces,
                                      int32_t* buffer) {
  constexpr int64_t BLOCK = 128;  // examples whose rows stay in the cache for everything that reads them
  try {
    std::vector<sparrow::Singles> fields;
    std::vector<sparrow::Fixed> fixed;
    std::vector<sparrow::Bags> bags;
    for (int64_t s = 0; s < how->num_stacks; ++s) {
      const sparrow::Packed& stack = how->stacks[s];
      fields.emplace_back(stack);
      if (stack.is_fixed()) fixed.emplace_back(*how, stack);
      if (!stack.is_single() && !stack.is_fixed()) bags.emplace_back(*how, stack);
    }
    for (int64_t p = 0; p < num_pieces; ++p) {
      sparrow::Piece part = pieces[p];
      if (p == 0 || pieces[p - 1].slot != part.slot) {
        for (sparrow::Bags& stack : bags) stack.begin(buffer + part.slot * how->slot_words);
      }
      for (int64_t begin = 0; begin < pieces[p].count; begin += BLOCK) {
        part.begin = pieces[p].begin + begin;
        part.at = pieces[p].at + begin;
        part.count = std::min(pieces[p].count - begin, BLOCK);
        const int64_t known = pieces[p].count - begin;
        for (int64_t s = 0; s < how->num_stacks; ++s) {
          const sparrow::Packed& stack = how->stacks[s];
          if (stack.raw >= 0 && stack.is_single()) {
            sparrow::fill_raw(*how, stack, fields[s], part, known, buffer);
            continue;
          }
          if (stack.is_single() && !sparrow::fill_single(*how, stack, fields[s], part, known, buffer)) return 0;
        }
        for (sparrow::Fixed& stack : fixed) {
          if (!sparrow::fill_fixed(stack, part, known, buffer)) return 0;
        }
        for (sparrow::Bags& stack : bags) {
          if (!sparrow::add(stack, part, known)) return 0;
        }
        for (int64_t c = 0; c < how->num_copies; ++c) sparrow::copy(*how, how->copies[c], part, buffer);
      }
      if (p + 1 == num_pieces || pieces[p + 1].slot != part.slot) {
        for (sparrow::Bags& stack : bags) stack.finish();
      }
    }
    return 1;
  } catch (const std::bad_alloc&) {
    return 0;
  }
}

// Writes the stacks of one batch from columns, one for each field, stack after stack. False as above.
SPARROW_API int64_t sparrow_feed_fill_columns(const sparrow::Packed* stacks, int64_t count,
                                              const sparrow::Column* columns, int32_t* batch) {
  int64_t entry = 0, bag = 0;
  for (int64_t s = 0; s < count; columns += stacks[s++].num_fields) {
    const sparrow::Columns stack(stacks[s], batch);
    if (stacks[s].is_single()) {
      if (!stack.single(columns)) return 0;
      continue;
    }
    if (!stacks[s].follows) entry = bag = 0;
    if (!stack.bags(columns, entry, bag)) return 0;
    if (s + 1 == count || !stacks[s + 1].follows) stack.finish(entry, bag);
  }
  return 1;
}

// For each column of bags, the entries of all its bags, and then for each column the ones of its longest bag.
SPARROW_API void sparrow_feed_count(const sparrow::Filling* how, const sparrow::Piece* pieces, int64_t num_pieces,
                                    int64_t* counts) {
  std::fill(counts, counts + 2 * how->num_columns, 0);
  for (int64_t p = 0; p < num_pieces; ++p) sparrow::count(*how, pieces[p], counts, counts + how->num_columns);
}
