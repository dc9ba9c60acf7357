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

// Searches the bytes from `from` on, up to `to`, of which 64 more may be read: in text_index.cc. `quote`: -1: none.
void find_ends(const char* data, int64_t from, int64_t to, char separator, int quote, Found& found);

// The number of line breaks, and in `all` the bytes of all, joined by "or": in text_index.cc.
int64_t count_lines(const char* data, int64_t size, uint8_t& all);

}  // namespace sparrow
