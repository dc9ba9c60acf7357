// `Step`: the conversion of one input of the model, as Python describes it.
#pragma once

#include <cstdint>

namespace sparrow {

constexpr int32_t NO_ROW = -1, BAD_ROW = -3;

enum Kind : int64_t { IDS, NUMBERS, BUCKETS, CROSS, KEY };
enum Mapping : int64_t { NUMBERED, HASHED, VOCABULARY, RAW };

extern "C" {

// One input of the model. Mirrored by sparrow/kernels/feed/steps.py: every field has 8 bytes.
struct Step {
  int64_t kind;
  const int64_t* columns;
  int64_t num_columns;
  int64_t word;           // where it begins in a row; of bags: the word of their length
  int64_t is_ragged;      // whether its values are bags, in the rows' tails
  int64_t mapping;        // the kind of ids
  int64_t size;           // rows that ids are numbered or hashed to
  int64_t unknown;        // the row of an unknown id: NO_ROW, BAD_ROW, or one of the table
  int64_t default_row;    // the row of a missing id; BAD_ROW: ask the reference; 0 where a missing raw id is
  int64_t raw_default;    // this one
  int64_t there;          // of a single raw id: the number of the row's bit that is set where there is one
  int64_t as_integer;     // whether strings are read as integers before they are hashed
  const uint64_t* keys;   // the vocabulary's hash table
  const int32_t* positions;
  uint64_t mask;
  const char* separator;  // null: none
  int64_t separator_size;
  int64_t is_weighted;    // by the second column, or
  const char* weight_separator;
  int64_t weight_separator_size;
  int64_t max_length;     // the longest sequence; 0: not a sequence
  int64_t keep_last;
  int64_t keeps_missing;  // whether a missing id of a list keeps its place in the sequence
  int64_t dim;            // the count of numbers
  double fill;            // where a number is missing
  int64_t is_required;    // whether a missing number makes a bad row
  int64_t is_weight;      // whether a negative number makes a bad row
  int64_t has_limit;      // whether numbers become 1 from `limit` on, and 0 below
  double limit;
  const double* boundaries;
  int64_t num_boundaries;
  const float* known;     // of a number that is transformed: the result for `fill`, and for 0, 1, 2, ...; null: none is known
  int64_t num_known;      // of the integers
  int64_t has_range;      // whether labels are from 0 to `most`, and integers
  double most;
  int64_t are_integers;
};

}  // extern "C"

}  // namespace sparrow
