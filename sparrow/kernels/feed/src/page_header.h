// The header of a Parquet page, in Thrift's compact protocol: https://github.com/apache/parquet-format
#pragma once

#include <cstdint>

namespace sparrow {

enum PageType : int64_t { DATA_PAGE = 0, INDEX_PAGE = 1, DICTIONARY_PAGE = 2, DATA_PAGE_V2 = 3 };

struct PageHeader {
  int64_t type = -1, uncompressed = -1, compressed = -1;
  int64_t values = -1, encoding = -1;
  int64_t level_encodings[2] = {-1, -1};           // of the first version: definition, repetition
  int64_t level_bytes[2] = {0, 0};                 // of the second version: definition, repetition
  bool is_compressed = true;
};

// Reads within [at, end); `ok` is false from the first mistake on.
class HeaderReader {
 public:
  HeaderReader(const uint8_t* at, const uint8_t* end) : at_(at), end_(end) {}

  bool read(PageHeader& header) {
    fields([&](int64_t field, int kind) {
      switch (field) {
        case 1: header.type = integer(kind); break;
        case 2: header.uncompressed = integer(kind); break;
        case 3: header.compressed = integer(kind); break;
        case 5: case 7: case 8: {
          const int64_t of = field;
          if (kind != STRUCT) return fail();
          enter();
          fields([&](int64_t inner, int inner_kind) { of_page(header, of, inner, inner_kind); });
          --depth_;
          break;
        }
        default: skip(kind);
      }
    });
    return ok_ && header.compressed >= 0 && header.uncompressed >= 0;
  }

  const uint8_t* at() const { return at_; }

 private:
  enum Kind { TRUE = 1, FALSE = 2, BYTE = 3, I16 = 4, I32 = 5, I64 = 6, DOUBLE = 7, BINARY = 8, LIST = 9, SET = 10,
              STRUCT = 12 };

  void of_page(PageHeader& header, int64_t of, int64_t field, int kind) {
    if (field == 1) {
      header.values = integer(kind);
    } else if (of == 8 ? field == 4 : field == 2) {
      header.encoding = integer(kind);
    } else if (of == 5 && (field == 3 || field == 4)) {
      header.level_encodings[field - 3] = integer(kind);
    } else if (of == 8 && (field == 5 || field == 6)) {
      header.level_bytes[field - 5] = integer(kind);
    } else if (of == 8 && field == 7) {
      header.is_compressed = kind == TRUE;
    } else {
      skip(kind);
    }
  }

  template <class Take>
  void fields(Take&& take) {
    int64_t field = 0;
    while (ok_) {
      const uint8_t head = byte();
      if (head == 0) return;
      field = head >> 4 ? field + (head >> 4) : zigzag(varint());
      take(field, head & 15);
    }
  }

  void enter() {
    if (++depth_ > 8) fail();
  }

  void skip(int kind) {
    switch (kind) {
      case TRUE: case FALSE: return;
      case BYTE: byte(); return;
      case I16: case I32: case I64: varint(); return;
      case DOUBLE: advance(8); return;
      case BINARY: advance(varint()); return;
      case LIST: case SET: {
        const uint8_t head = byte();
        uint64_t count = head >> 4;
        if (count == 15) count = varint();
        for (uint64_t i = 0; i < count && ok_; ++i) skip_element(head & 15);
        return;
      }
      case STRUCT:
        enter();
        if (ok_) fields([&](int64_t, int inner) { skip(inner); });
        --depth_;
        return;
      default: fail();
    }
  }

  void skip_element(int kind) { kind == TRUE || kind == FALSE ? void(byte()) : skip(kind); }

  int64_t integer(int kind) {
    if (kind != I16 && kind != I32 && kind != I64) fail();
    return zigzag(varint());
  }

  static int64_t zigzag(uint64_t value) { return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1); }

  uint8_t byte() {
    if (at_ >= end_) {
      fail();
      return 0;
    }
    return *at_++;
  }

  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && ok_; shift += 7) {
      const uint8_t next = byte();
      value |= static_cast<uint64_t>(next & 127) << shift;
      if (next < 128) return value;
    }
    fail();
    return 0;
  }

  void advance(uint64_t count) {
    if (count > static_cast<uint64_t>(end_ - at_)) return fail();
    at_ += count;
  }

  void fail() {
    ok_ = false;
    at_ = end_;
  }

  const uint8_t* at_;
  const uint8_t* end_;
  bool ok_ = true;
  int depth_ = 0;
};

}  // namespace sparrow
