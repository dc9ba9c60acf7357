// The ends of fields in delimited text: places of separators and line breaks, 64 bytes at a time.
#pragma once

#include <cstdint>

namespace sparrow {

// What a search has found so far.
struct Found {
  uint32_t* ends;   // places of separators and line breaks, in order
  int64_t count;
  int64_t* breaks;  // of each line break, its place among the ends
  int64_t lines;
  uint64_t begins_field;  // 1: the next byte begins a field
  uint64_t after_return;  // 1: the byte before the next one is a carriage return
  bool has_returns;       // a carriage return before a line break
  bool is_quoted;         // a field begins with a quote; the search stopped in its 64 bytes
  bool is_odd;            // a carriage return elsewhere, which may end a line too
};

// The functions are in text_index.cc.

// Searches the bytes from `from` on, up to `to`, of which 64 more may be read. `quote`: -1: none.
void find_ends(const char* data, int64_t from, int64_t to, char separator, int quote, Found& found);
// The same, for text without carriage returns and quotes.
void find_plain_ends(const char* data, int64_t from, int64_t to, char separator, Found& found);

// Columns that follow each other in the file.
struct Run {
  int64_t first, count;
};

// Where fields go: by column, its words and sizes are `stride` from those of the column before.
struct Fields {
  uint64_t* words;
  uint8_t* sizes;
  int64_t stride;
};

// Puts the first eight bytes of the fields of `rows` rows into words. `ends`: of rows of `num_columns`. Returns whether all
// are of at most eight bytes.
bool gather_fields(const char* data, const uint32_t* ends, int64_t rows, int64_t num_columns, uint32_t separator_size,
                   const Run* runs, int64_t num_runs, const Fields& fields);

// Facts about text.
struct Counted {
  int64_t lines;
  int64_t is_ascii, has_returns, has_quotes;
};

// Adds the facts of these bytes. `quote`: -1: none.
void count_lines(const char* data, int64_t size, int quote, Counted& counted);

}  // namespace sparrow
