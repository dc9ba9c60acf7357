// The footer of a Parquet file, in which every number is checked against the file's size and against the others, before
// anything is allocated, read or skipped by it, here or in Arrow.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "page_header.h"
#include "thrift.h"
#include "versions.h"

extern "C" {

// Mirrored by sparrow/kernels/feed/parquet.py: every field has 8 bytes.
struct FooterLeaf {
  int64_t type;                     // of Parquet
  int64_t least;                    // bytes of a value in a dictionary, at least; 0: the type has none
  int64_t repeated, before, after;  // levels: lists in each other; optional parts outside of the innermost list, inside it
  int64_t name, name_size;          // of the column, in the footer
};

struct FooterChunk {
  int64_t begin, size, codec, values;
};

struct PagesAt {  // the fields of `PagesForm`
  int64_t begin, size, values, codec, least;
};

struct Footer {
  FooterLeaf* leaves;
  int64_t* rows;        // of each row group
  FooterChunk* chunks;  // (row groups, leaves)
  int64_t most_leaves, most_groups, most_chunks;  // that there is memory for
  // Filled here:
  int64_t num_leaves, num_groups;
  int64_t group, leaf;  // where the problem is; -1: in the complete file
};

}  // extern "C"

namespace sparrow {
namespace {

enum Type : int64_t { BOOLEAN = 0, INT32 = 1, INT64 = 2, INT96 = 3, FLOAT = 4, DOUBLE = 5, BYTE_ARRAY = 6, FIXED = 7 };
enum Repetition : int64_t { REQUIRED = 0, OPTIONAL = 1, REPEATED = 2 };

class FooterReader {
 public:
  FooterReader(const uint8_t* data, int64_t size, int64_t file_size, Footer& made)
      : data_(data), end_of_data_(file_size - size - 8), in_(data, data + size), made_(made) {}

  // Null, or the first mistake.
  const char* read() {
    int64_t rows = -1, sum = 0;
    bool has_schema = false, has_groups = false;
    in_.fields([&](int64_t field, int kind) {
      switch (field) {
        case 2: has_schema = true; return schema(kind);
        case 3: rows = in_.i64(kind); return;
        case 4:
          has_groups = true;
          if (!has_schema) return refuse("the footer has row groups before its schema");
          in_.elements(kind, Thrift::STRUCT, [&](int64_t i) {
            made_.group = i;
            group(i);
            sum += problem_ == nullptr && in_.ok() ? made_.rows[i] : 0;
            ++made_.num_groups;
          });
          if (problem_ == nullptr && in_.ok()) made_.group = -1;
          return;
        default: in_.skip(kind);
      }
    });
    if (problem_ != nullptr) return problem_;
    if (!in_.ok()) return "the footer is malformed";
    if (!has_schema || !has_groups || rows < 0) return "the footer lacks a schema, row groups, or the number of rows";
    return rows == sum ? nullptr : "the rows of its groups are not the rows of the file";
  }

 private:
  static constexpr int DEEPEST = 32;                      // groups of columns in each other
  static constexpr int64_t MOST_ROWS = int64_t{1} << 26;  // of a row group: the most that Arrow writes

  void refuse(const char* why) {
    if (problem_ == nullptr) problem_ = why;
    in_.skip(0);  // no kind: nothing is read from here on
  }

  struct Element {
    int64_t type = -1, length = 0, repetition = REQUIRED, children = 0;
    Thrift::Bytes name;
  };

  struct Group {  // of columns
    int64_t left;  // elements that are yet to come
    int64_t repeated, before, after;
  };

  void schema(int kind) {
    std::vector<Group> above;
    Thrift::Bytes name;
    bool is_over = false;
    in_.elements(kind, Thrift::STRUCT, [&](int64_t i) {
      Element own;
      in_.fields([&](int64_t field, int inner) {
        switch (field) {
          case 1: own.type = in_.i32(inner); return;
          case 2: own.length = in_.i32(inner); return;
          case 3: own.repetition = in_.i32(inner); return;
          case 4: own.name = in_.bytes(inner); return;
          case 5: own.children = in_.i32(inner); return;
          default: in_.skip(inner);
        }
      });
      if (!in_.ok()) return;
      if (is_over) return refuse("the schema has more columns than its root");
      if (own.repetition < REQUIRED || own.repetition > REPEATED || own.children < 0) {
        return refuse("the schema has an unknown repetition, or a negative number of columns");
      }
      if (i == 0) {
        above.push_back({own.children, 0, 0, 0});
      } else {
        if (above.size() == 1) name = own.name;
        Group inner = above.back();
        --above.back().left;
        if (own.repetition == REPEATED) {
          ++inner.repeated;
          inner.before += inner.after;
          inner.after = 0;
        } else if (own.repetition == OPTIONAL) {
          ++inner.after;
        }
        inner.left = own.children;
        if (own.children > 0) {
          above.push_back(inner);
          if (above.size() > DEEPEST) return refuse("the schema is nested too deeply");
        } else {
          leaf(own, inner, name);
        }
      }
      while (!above.empty() && above.back().left == 0) above.pop_back();
      is_over = above.empty();
    });
    if (in_.ok() && !is_over) refuse("the schema has fewer columns than its root");
  }

  void leaf(const Element& own, const Group& levels, const Thrift::Bytes& name) {
    static constexpr int64_t LEAST[] = {0, 4, 8, 12, 4, 8, 4, 0};
    if (own.type < BOOLEAN || own.type > FIXED) return refuse("the schema has a column of an unknown type");
    if (own.type == FIXED && own.length <= 0) return refuse("the schema has a column of values without a length");
    if (made_.num_leaves == made_.most_leaves) return refuse("the schema has more columns than bytes for them");
    const int64_t least = own.type == FIXED ? own.length : LEAST[own.type];
    made_.leaves[made_.num_leaves++] = {own.type,     least,           levels.repeated, levels.before,
                                        levels.after, name.at - data_, name.size};
  }

  void group(int64_t number) {
    const int64_t leaves = made_.num_leaves, first = number * leaves;
    if (number >= made_.most_groups || leaves > made_.most_chunks - first) {
      return refuse("the footer has more row groups than bytes for them");
    }
    int64_t rows = -1, bytes = -1, columns = -1;
    in_.fields([&](int64_t field, int kind) {
      switch (field) {
        case 1:
          columns = 0;
          in_.elements(kind, Thrift::STRUCT, [&](int64_t i) {
            if (i >= leaves) return refuse("the row group has more columns than the schema");
            made_.leaf = i;
            chunk(made_.leaves[i], made_.chunks[first + i]);
            ++columns;
          });
          if (problem_ == nullptr && in_.ok()) made_.leaf = -1;
          return;
        case 2: bytes = in_.i64(kind); return;
        case 3: rows = in_.i64(kind); return;
        default: in_.skip(kind);
      }
    });
    if (!in_.ok()) return;
    if (columns != leaves) return refuse("the row group has fewer columns than the schema");
    if (rows < 0 || bytes < 0) return refuse("the row group has a negative number of rows or bytes, or none");
    if (rows > MOST_ROWS) return refuse("the row group has more than 67,108,864 rows; write smaller ones");
    made_.rows[number] = rows;
    for (int64_t i = 0; i < columns; ++i) {
      const int64_t values = made_.chunks[first + i].values;
      if (made_.leaves[i].repeated == 0 ? values == rows : values >= rows) continue;
      made_.leaf = i;
      return refuse("the number of values does not fit the number of rows");
    }
  }

  void chunk(const FooterLeaf& leaf, FooterChunk& made) {
    bool has_pages = false;
    int64_t places[4] = {0, 0, 0, 0};  // of two indices: offsets and sizes
    in_.fields([&](int64_t field, int kind) {
      switch (field) {
        case 1:
          if (in_.bytes(kind).size > 0) refuse("the column is in another file");
          return;
        case 3: has_pages = true; return pages(kind, leaf, made);
        case 4: case 6: places[field - 4] = in_.i64(kind); return;
        case 5: case 7: places[field - 4] = in_.i32(kind); return;
        case 8: return refuse("the column is encrypted");
        default: in_.skip(kind);
      }
    });
    if (!in_.ok()) return;
    if (!has_pages) return refuse("the footer lacks the place of its pages");
    for (int i = 0; i < 4; i += 2) {
      if (!is_in_file(places[i], places[i + 1])) return refuse("the index of its pages is outside of the file");
    }
  }

  bool is_in_file(int64_t begin, int64_t size) const {
    return begin >= 0 && size >= 0 && begin <= end_of_data_ && size <= end_of_data_ - begin;
  }

  void pages(int kind, const FooterLeaf& leaf, FooterChunk& made) {
    int64_t type = -1, codec = -1, values = -1, uncompressed = -1, compressed = -1, data = -1, words = -1;
    int64_t bloom[2] = {0, 0};
    in_.fields_of(kind, [&](int64_t field, int inner) {
      switch (field) {
        case 1: type = in_.i32(inner); return;
        case 2:
          return in_.elements(inner, Thrift::I32, [&](int64_t) {
            const int64_t encoding = in_.i32(Thrift::I32);
            if (encoding < 0 || encoding > LAST_ENCODING) refuse("the column has an unknown encoding");
          });
        case 4: codec = in_.i32(inner); return;
        case 5: values = in_.i64(inner); return;
        case 6: uncompressed = in_.i64(inner); return;
        case 7: compressed = in_.i64(inner); return;
        case 9: data = in_.i64(inner); return;
        case 11: words = in_.i64(inner); return;
        case 12: return statistics(inner, leaf);
        case 14: bloom[0] = in_.i64(inner); return;
        case 15: bloom[1] = in_.i32(inner); return;
        case 16: return levels(inner, leaf);
        default: in_.skip(inner);
      }
    });
    if (!in_.ok()) return;
    if (type != leaf.type) return refuse("the type of its pages is not the one of the schema");
    if (codec < UNCOMPRESSED || codec > LAST_CODEC) return refuse("the compression is unknown");
    if (values < 0 || uncompressed < 0) return refuse("the number of values or bytes is negative, or missing");
    if (!is_in_file(bloom[0], bloom[1])) return refuse("the filter of its values is outside of the file");
    // The dictionary comes first, where there is one.
    const int64_t begin = words > 0 && words < data ? words : data;
    if ((values > 0 && begin < 4) || !is_in_file(begin, compressed)) {
      return refuse("the pages are outside of the file");
    }
    made = {begin, compressed, codec, values};
  }

  // The least and the largest value, all of them in full, or all empty. Arrow reads them before the pages.
  void statistics(int kind, const FooterLeaf& leaf) {
    const int64_t width = leaf.type == BOOLEAN ? 1 : leaf.type >= BYTE_ARRAY ? 0 : leaf.least;
    int64_t shortest = width, longest = 0;
    in_.fields_of(kind, [&](int64_t field, int inner) {
      if (field == 3 || field == 4 || field > 6) return in_.skip(inner);
      const int64_t size = in_.bytes(inner).size;
      shortest = std::min(shortest, size);
      longest = std::max(longest, size);
    });
    if (in_.ok() && longest > 0 && shortest < width) refuse("the statistics have a value that is cut off");
  }

  // Statistics of levels: as many numbers as there are levels, or none.
  void levels(int kind, const FooterLeaf& leaf) {
    in_.fields_of(kind, [&](int64_t field, int inner) {
      if (field != 2 && field != 3) return in_.skip(inner);
      const int64_t most = field == 2 ? leaf.repeated : leaf.repeated + leaf.before + leaf.after;
      int64_t count = 0;
      in_.elements(inner, Thrift::I64, [&](int64_t) {
        in_.i64(Thrift::I64);
        ++count;
      });
      if (in_.ok() && count != 0 && count != most + 1) refuse("the statistics have more or fewer levels than the schema");
    });
  }

  const uint8_t* const data_;
  const int64_t end_of_data_;  // of the pages and their indices
  Thrift in_;
  Footer& made_;
  const char* problem_ = nullptr;
};

}  // namespace
}  // namespace sparrow

// Reads the footer of a file, `size` bytes. Returns null, or why the file is refused.
SPARROW_API const char* sparrow_feed_footer(const uint8_t* data, int64_t size, int64_t file_size, Footer* made) {
  return sparrow::FooterReader(data, size, file_size, *made).read();
}

// Checks the headers of the pages of columns, which are in `memory`. Returns null, or why the file is refused, and which
// column has the mistake. `mixed`, if not null: whether some of a column's pages hold places in its dictionary, and others
// values.
SPARROW_API const char* sparrow_feed_check_pages(const uint8_t* memory, const PagesAt* pages, int64_t count,
                                                 int64_t* mixed, int64_t* which) {
  for (*which = 0; *which < count; ++*which) {
    const PagesAt& own = pages[*which];
    sparrow::PageWalk walk({memory + own.begin, own.size, own.values, own.codec, own.least});
    bool has_places = false, has_values = false;
    while (walk.next()) (walk.header.is_place() ? has_places : has_values) |= walk.header.is_data();
    if (walk.problem != nullptr) return walk.problem;
    if (mixed != nullptr) mixed[*which] = has_places && has_values;
  }
  return nullptr;
}
