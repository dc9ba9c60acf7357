// Reading lines of a file: the bytes, and their number of lines while they are in the processor's cache.
#include <algorithm>
#include <cstdint>

#include "file.h"
#include "text_index.h"

extern "C" {

// Reads `size` bytes from the place `begin` of a file, and adds a line break where they end without one. False: the file
// ends before, or cannot be read. `counted`: the facts about them. A negative `file`: `memory` holds the bytes already.
__attribute__((visibility("default"))) int64_t sparrow_feed_read_text(int64_t file, int64_t begin, int64_t size,
                                                                      int64_t quote, char* memory,
                                                                      sparrow::Counted* counted) {
  constexpr int64_t PIECE = 1 << 18;
  *counted = {0, 1, 0, 0};
  for (int64_t done = 0; done < size;) {
    const int64_t wanted = std::min(PIECE, size - done);
    if (file >= 0 && !sparrow::read_bytes(static_cast<int>(file), begin + done, wanted, memory + done)) return 0;
    sparrow::count_lines(memory + done, wanted, static_cast<int>(quote), *counted);
    done += wanted;
  }
  if (size == 0 || memory[size - 1] != '\n') {
    memory[size] = '\n';
    ++counted->lines;
  }
  return 1;
}

}  // extern "C"
