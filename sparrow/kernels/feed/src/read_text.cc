// Reading lines of a file: the bytes, and their number of lines while they are in the processor's cache.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "text_index.h"

extern "C" {

// Reads `size` bytes from the place `begin` of a file, and adds a line break where they end without one. False: the file
// ends before, or cannot be read. `counted`: the facts about them.
__attribute__((visibility("default"))) int64_t sparrow_feed_read_text(int64_t file, int64_t begin, int64_t size,
                                                                      int64_t quote, char* memory,
                                                                      sparrow::Counted* counted) {
  constexpr int64_t PIECE = 1 << 18;
  *counted = {0, 1, 0, 0};
  for (int64_t done = 0; done < size;) {
    const int64_t wanted = std::min(PIECE, size - done);
    const ssize_t count = pread(static_cast<int>(file), memory + done, wanted, begin + done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return 0;
    sparrow::count_lines(memory + done, count, static_cast<int>(quote), *counted);
    done += count;
  }
  if (size == 0 || memory[size - 1] != '\n') {
    memory[size] = '\n';
    ++counted->lines;
  }
  return 1;
}

}  // extern "C"
