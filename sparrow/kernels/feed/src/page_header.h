// The headers of Parquet pages, checked before anything is done with them: https://github.com/apache/parquet-format
#pragma once

#include <cstdint>

#include "thrift.h"

namespace sparrow {

enum PageType : int64_t { DATA_PAGE = 0, INDEX_PAGE = 1, DICTIONARY_PAGE = 2, DATA_PAGE_V2 = 3 };
enum Encoding : int64_t { PLAIN = 0, PLAIN_DICTIONARY = 2, RLE = 3, RLE_DICTIONARY = 8, LAST_ENCODING = 9 };
enum Codec : int64_t { UNCOMPRESSED = 0, SNAPPY = 1, LAST_CODEC = 7 };

struct PageHeader {
  int64_t type = -1, uncompressed = -1, compressed = -1;
  int64_t values = -1, encoding = -1;
  int64_t level_encodings[2] = {-1, -1};  // of the first version: definition, repetition
  int64_t level_bytes[2] = {-1, -1};      // of the second version: definition, repetition
  int64_t nulls = -1, rows = -1;          // of the second version
  bool is_compressed = true;  // of the second version

  bool is_data() const { return type == DATA_PAGE || type == DATA_PAGE_V2; }
  bool is_place() const { return encoding == PLAIN_DICTIONARY || encoding == RLE_DICTIONARY; }
};

// Reads a header at `at`. Returns the byte behind it; null: there is none that ends before `end`.
inline const uint8_t* read_header(const uint8_t* at, const uint8_t* end, PageHeader& header) {
  Thrift in(at, end);
  in.fields([&](int64_t field, int kind) {
    const bool is_own = (field == 5 && header.type == DATA_PAGE) || (field == 7 && header.type == DICTIONARY_PAGE) ||
                        (field == 8 && header.type == DATA_PAGE_V2);
    switch (field) {
      case 1: header.type = in.i32(kind); return;
      case 2: header.uncompressed = in.i32(kind); return;
      case 3: header.compressed = in.i32(kind); return;
      default: if (!is_own) return in.skip(kind);
    }
    in.fields_of(kind, [&](int64_t inner, int own) {
      const bool is_new = header.type == DATA_PAGE_V2;
      if (inner == 1) {
        header.values = in.i32(own);
      } else if (inner == (is_new ? 4 : 2)) {
        header.encoding = in.i32(own);
      } else if (header.type == DATA_PAGE && (inner == 3 || inner == 4)) {
        header.level_encodings[inner - 3] = in.i32(own);
      } else if (is_new && inner == 2) {
        header.nulls = in.i32(own);
      } else if (is_new && inner == 3) {
        header.rows = in.i32(own);
      } else if (is_new && (inner == 5 || inner == 6)) {
        header.level_bytes[inner - 5] = in.i32(own);
      } else if (is_new && inner == 7) {
        header.is_compressed = in.boolean(own);
      } else {
        in.skip(own);
      }
    });
  });
  return in.ok() ? in.at() : nullptr;
}

// The pages of one column in one row group.
struct PagesForm {
  const uint8_t* data;
  int64_t size;
  int64_t values;  // with the missing ones
  int64_t codec;
  int64_t least;   // bytes of a value in a dictionary, at least; 0: the type has none
};

// Walks the headers of pages, one by one.
class PageWalk {
 public:
  explicit PageWalk(const PagesForm& form)
      : at_(form.data), end_(form.data + form.size), most_(MOST + form.size * RATIO), form_(form) {}

  // Whether there is one more page of data, or a dictionary: `header` is its header, `body` its first byte. False:
  // all values were there, or `problem` has the mistake.
  bool next() {
    do {
      if (problem != nullptr || values_ == form_.values) return false;
      if (at_ >= end_) return refuse("its pages hold fewer values than the footer has");
      header = PageHeader();
      body = read_header(at_, end_, header);
      if (body == nullptr) return refuse("the header of a page is malformed");
      if (header.type < 0 || header.compressed < 0 || header.uncompressed < 0) {
        return refuse("the header of a page has a negative size, or none");
      }
      if (header.compressed > end_ - body) return refuse("a page is larger than its column");
      at_ = body + header.compressed;
    } while (!header.is_data() && header.type != DICTIONARY_PAGE);
    return is_plausible();
  }

  PageHeader header;
  const uint8_t* body = nullptr;
  const char* problem = nullptr;
  bool has_dictionary = false;

 private:
  // Pages of a column may take this many bytes uncompressed, and this many times its compressed bytes besides.
  static constexpr int64_t MOST = int64_t{64} << 20, RATIO = 100;

  bool refuse(const char* why) {
    problem = why;
    return false;
  }

  bool is_plausible() {
    // The levels of the second version are never compressed.
    int64_t levels = 0;
    if (header.type == DATA_PAGE_V2) {
      const int64_t* own = header.level_bytes;
      if (own[0] < 0 || own[1] < 0 || own[0] + own[1] > header.compressed || own[0] + own[1] > header.uncompressed) {
        return refuse("the levels of a page are larger than the page");
      }
      if (header.nulls < 0 || header.nulls > header.values || header.rows < 0 || header.rows > header.values) {
        return refuse("a page has more rows or missing values than values");
      }
      levels = own[0] + own[1];
    }
    const int64_t in = header.compressed - levels, out = header.uncompressed - levels;
    if (form_.codec == UNCOMPRESSED || (header.type == DATA_PAGE_V2 && !header.is_compressed)) {
      if (in != out) return refuse("a page that is not compressed has two sizes");
    } else if (form_.codec == SNAPPY && out > in * 64 + 64) {
      return refuse("a page is larger than its compressed bytes can hold");
    }
    total_ += header.uncompressed;
    if (total_ > most_) return refuse("its pages are more than 64 MB, and 100 times their compressed size");
    if (header.values < 0) return refuse("a page has a negative number of values, or none");
    if (header.encoding < 0 || header.encoding > LAST_ENCODING) return refuse("a page has an unknown encoding");
    const int64_t* levels_in = header.level_encodings;
    if (header.type == DATA_PAGE && (levels_in[0] < 0 || levels_in[1] < 0)) {
      return refuse("the levels of a page have an unknown encoding");
    }
    if (header.type == DICTIONARY_PAGE) {
      if (has_dictionary || values_ > 0) return refuse("a dictionary is not the first page");
      if (header.encoding != PLAIN && header.encoding != PLAIN_DICTIONARY) return refuse("a dictionary is encoded");
      if (form_.least == 0 ? header.values > 0 : header.values > header.uncompressed / form_.least) {
        return refuse("a dictionary has more values than bytes for them");
      }
      has_dictionary = true;
      return true;
    }
    if (header.values > form_.values - values_) return refuse("its pages hold more values than the footer has");
    values_ += header.values;
    return true;
  }

  const uint8_t* at_;
  const uint8_t* end_;
  int64_t most_, total_ = 0, values_ = 0;
  const PagesForm form_;
};

}  // namespace sparrow
