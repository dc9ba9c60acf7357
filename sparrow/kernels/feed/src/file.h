// Bytes of an open file.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace sparrow {

// Reads `size` bytes from the place `begin` on. False: the file ends before, or cannot be read.
inline bool read_bytes(int file, int64_t begin, int64_t size, char* out) {
  for (int64_t done = 0; done < size;) {
    const int64_t got = pread(file, out + done, size - done, begin + done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    done += got;
  }
  return true;
}

}  // namespace sparrow
