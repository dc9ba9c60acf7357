// The one symbol that a library of kernels shows.
#include "kernels.h"

extern "C" __attribute__((visibility("default"))) const sparrow::Kernels* sparrow_kernels() {
  static const sparrow::Kernels kernels = {&sparrow::lookup, &sparrow::update, &sparrow::attention,
                                            &sparrow::attention_backward};
  return &kernels;
}
