// Bytes of files: spans of one, or lines and their number while they are in the processor's cache.
#include <algorithm>
#include <cerrno>
#include <cstdint>

#include <fcntl.h>
#include <unistd.h>

#include "text_index.h"
#include "versions.h"

namespace {

// Reads `size` bytes from the place `begin` on. False: the file ends before, or cannot be read.
bool read_bytes(int file, int64_t begin, int64_t size, char* out) {
  for (int64_t done = 0; done < size;) {
    const int64_t got = pread(file, out + done, size - done, begin + done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    done += got;
  }
  return true;
}

}  // namespace

// Reads `count` spans, each its first byte and its size, one after the other into `out`. 0: the file cannot be read.
SPARROW_API int64_t sparrow_feed_read(const char* path, const int64_t* spans, int64_t count, char* out) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  bool all = true;
  for (int64_t i = 0; all && i < count; ++i) {
    all = read_bytes(file, spans[2 * i], spans[2 * i + 1], out);
    out += spans[2 * i + 1];
  }
  close(file);
  return all;
}

// Reads `size` bytes from the place `begin` of a file, and adds a line break where they end without one. False: the file
// ends before, or cannot be read. `counted`: the facts about them. A negative `file`: `memory` holds the bytes already.
SPARROW_API int64_t sparrow_feed_read_text(int64_t file, int64_t begin, int64_t size, int64_t quote, char* memory,
                                           sparrow::Counted* counted) {
  constexpr int64_t PIECE = 1 << 18;
  *counted = {0, 1, 0, 0};
  for (int64_t done = 0; done < size;) {
    const int64_t wanted = std::min(PIECE, size - done);
    if (file >= 0 && !read_bytes(static_cast<int>(file), begin + done, wanted, memory + done)) return 0;
    sparrow::count_lines(memory + done, wanted, static_cast<int>(quote), *counted);
    done += wanted;
  }
  if (size == 0 || memory[size - 1] != '\n') {
    memory[size] = '\n';
    ++counted->lines;
  }
  return 1;
}
