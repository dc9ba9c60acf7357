// Bytes of a file, in one call.
#include <cerrno>
#include <cstdint>

#include <fcntl.h>
#include <unistd.h>

extern "C" {

// Reads `count` spans, each its first byte and its size, one after the other into `out`. 0: the file cannot be read.
__attribute__((visibility("default"))) int64_t sparrow_feed_read(const char* path, const int64_t* spans, int64_t count,
                                                                 char* out) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  bool all = true;
  for (int64_t i = 0; all && i < count; ++i) {
    const int64_t begin = spans[2 * i], size = spans[2 * i + 1];
    for (int64_t done = 0; done < size;) {
      const int64_t got = pread(file, out + done, size - done, begin + done);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        all = false;
        break;
      }
      done += got;
    }
    out += size;
  }
  close(file);
  return all;
}

}  // extern "C"
