// Thrift's compact protocol, of bytes that anybody may have written: https://github.com/apache/thrift/blob/master/doc/specs
#pragma once

#include <cstdint>
#include <limits>

namespace sparrow {

// Reads within [at, end). After the first mistake, `ok` is false, and everything that is read is zero or empty.
class Thrift {
 public:
  enum Kind { TRUE = 1, FALSE = 2, BYTE = 3, I16 = 4, I32 = 5, I64 = 6, DOUBLE = 7, BINARY = 8, LIST = 9, SET = 10,
              MAP = 11, STRUCT = 12 };

  Thrift(const uint8_t* at, const uint8_t* end) : at_(at), end_(end) {}

  bool ok() const { return ok_; }
  const uint8_t* at() const { return at_; }

  // Calls take(field, kind) for each field of a struct, which must read or skip it. Fields ascend, as every writer has
  // them: none comes twice.
  template <class Take>
  void fields(Take&& take) {
    if (++depth_ > DEEPEST) fail();
    int64_t field = 0;
    while (ok_) {
      const uint8_t head = byte();
      if (head == 0) break;
      const int64_t next = head >> 4 ? field + (head >> 4) : zigzag(varint());
      if (next <= field || next > std::numeric_limits<int16_t>::max()) return fail();
      field = next;
      take(field, head & 15);
    }
    --depth_;
  }

  template <class Take>
  void fields_of(int kind, Take&& take) {
    if (kind != STRUCT) return fail();
    fields(take);
  }

  // Calls take(i) for each element of a list of `element`, which must read it. An element has a byte at least.
  template <class Take>
  void elements(int kind, int element, Take&& take) {
    if (kind != LIST || ++depth_ > DEEPEST) return fail();
    const uint8_t head = byte();
    const uint64_t count = counted(head >> 4 == 15 ? varint() : head >> 4, 1);
    if (count > 0 && (head & 15) != element) fail();
    for (uint64_t i = 0; i < count && ok_; ++i) take(static_cast<int64_t>(i));
    --depth_;
  }

  int64_t i32(int kind) {
    const int64_t value = kind == I32 ? zigzag(varint()) : failed();
    return value == static_cast<int32_t>(value) ? value : failed();
  }

  int64_t i64(int kind) { return kind == I64 ? zigzag(varint()) : failed(); }

  bool boolean(int kind) {
    if (kind != TRUE && kind != FALSE) fail();
    return kind == TRUE;
  }

  struct Bytes {
    const uint8_t* at = nullptr;
    int64_t size = 0;
  };

  Bytes bytes(int kind) {
    if (kind != BINARY) fail();
    const uint64_t size = counted(ok_ ? varint() : 0, 1);
    const Bytes found{at_, static_cast<int64_t>(size)};
    at_ += size;
    return found;
  }

  void skip(int kind) {
    switch (kind) {
      case TRUE: case FALSE: return;
      case BYTE: byte(); return;
      case I16: case I32: case I64: varint(); return;
      case DOUBLE: at_ += counted(8, 1); return;
      case BINARY: bytes(kind); return;
      case LIST: case SET: {
        const uint8_t head = byte();
        skip_elements(counted(head >> 4 == 15 ? varint() : head >> 4, 1), head & 15, 0);
        return;
      }
      case MAP: {
        const uint64_t count = counted(varint(), 2);
        const uint8_t kinds = count > 0 ? byte() : 0;
        skip_elements(count, kinds >> 4, kinds & 15);
        return;
      }
      case STRUCT: fields([&](int64_t, int inner) { skip(inner); }); return;
      default: fail();
    }
  }

 private:
  static constexpr int DEEPEST = 32;  // structs and lists in each other

  void skip_elements(uint64_t count, int first, int second) {
    if (++depth_ > DEEPEST) fail();
    for (uint64_t i = 0; i < count && ok_; ++i) {
      skip_element(first);
      if (second != 0) skip_element(second);
    }
    --depth_;
  }

  void skip_element(int kind) { kind == TRUE || kind == FALSE ? void(byte()) : skip(kind); }

  // A number of things of `each` bytes or more, which the bytes that are left can hold.
  uint64_t counted(uint64_t count, uint64_t each) {
    if (count <= static_cast<uint64_t>(end_ - at_) / each) return count;
    fail();
    return 0;
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

  void fail() {
    ok_ = false;
    at_ = end_;
  }

  int64_t failed() {
    fail();
    return 0;
  }

  const uint8_t* at_;
  const uint8_t* end_;
  bool ok_ = true;
  int depth_ = 0;
};

}  // namespace sparrow
