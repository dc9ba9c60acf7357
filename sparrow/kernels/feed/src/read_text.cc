// Reading lines of a file: the bytes, and their number of lines while they are in the processor's cache.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "text_index.h"

extern "C" {

// Reads `size` bytes from the place `begin` of a file, and adds a line break where they end without one. Returns the
// number of line breaks; -1: the file ends before, or cannot be read. `is_ascii`: whether all bytes are ASCII.
__attribute__((visibility("default"))) int64_t sparrow_feed_read_text(int64_t file, int64_t begin, int64_t size,
                                                                      char* memory, int64_t* is_ascii) {
  constexpr int64_t PIECE = 1 << 18;
  int64_t lines = 0, done = 0;
  uint8_t all = 0;
  while (done < size) {
    const int64_t wanted = std::min(PIECE, size - done);
    const ssize_t count = pread(static_cast<int>(file), memory + done, wanted, begin + done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return -1;
    lines += sparrow::count_lines(memory + done, count, all);
    done += count;
  }
  if (size == 0 || memory[size - 1] != '\n') {
    memory[size] = '\n';
    ++lines;
  }
  *is_ascii = all < 128;
  return lines;
}

}  // extern "C"
