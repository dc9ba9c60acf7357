// Bytes of a file, in one call.
#include <cstdint>

#include <fcntl.h>

#include "file.h"

extern "C" {

// Reads `count` spans, each its first byte and its size, one after the other into `out`. 0: the file cannot be read.
__attribute__((visibility("default"))) int64_t sparrow_feed_read(const char* path, const int64_t* spans, int64_t count,
                                                                 char* out) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  bool all = true;
  for (int64_t i = 0; all && i < count; ++i) {
    all = sparrow::read_bytes(file, spans[2 * i], spans[2 * i + 1], out);
    out += spans[2 * i + 1];
  }
  close(file);
  return all;
}

}  // extern "C"
