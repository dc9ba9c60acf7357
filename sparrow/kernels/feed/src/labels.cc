// Checks of labels, where they are in the rows.
#include <cmath>
#include <cstdint>
#include <cstring>

extern "C" {

// Whether one of `count` floats, `stride` words apart, is not from 0 to `most`, or not an integer where all must be.
__attribute__((visibility("default"))) int64_t sparrow_feed_outside(const int32_t* words, int64_t stride, int64_t count,
                                                                    float most, int64_t integers) {
  bool wrong = false;
  for (int64_t i = 0; i < count; ++i) {
    float label;
    std::memcpy(&label, words + i * stride, sizeof(label));
    wrong |= !(label >= 0 && label <= most) || (integers && label != std::floor(label));
  }
  return wrong;
}

}  // extern "C"
