// What memory allows: random rows read, random rows read and written, and a stream, on a number of threads.
// Built and called by floor.py. Each function returns seconds.
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace {

constexpr int64_t kAhead = 16;

template <class Work>
double timed(int threads, int64_t count, Work work) {
  const auto started = std::chrono::steady_clock::now();
  std::vector<std::thread> helpers;
  for (int t = 1; t < threads; ++t) helpers.emplace_back(work, count * t / threads, count * (t + 1) / threads);
  work(0, count / threads);
  for (auto& helper : helpers) helper.join();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
}

void prefetch(const float* row, int64_t width) {
  for (int64_t c = 0; c < width; c += 16) __builtin_prefetch(row + c, 1, 3);
}

}  // namespace

#pragma GCC visibility push(default)

extern "C" {

double floor_gather(const float* array, int64_t width, const int32_t* ids, int64_t count, int threads, float* sink) {
  return timed(threads, count, [=](int64_t begin, int64_t end) {
    std::vector<float> sum(width, 0.0f);
    float* __restrict to = sum.data();
    for (int64_t i = begin; i < end; ++i) {
      if (i + kAhead < end) prefetch(array + ids[i + kAhead] * width, width);
      const float* __restrict row = array + ids[i] * width;
      for (int64_t c = 0; c < width; ++c) to[c] += row[c];
    }
    sink[begin == 0 ? 0 : 1] = to[0];
  });
}

double floor_modify(float* array, int64_t width, const int32_t* ids, int64_t count, int threads) {
  return timed(threads, count, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (i + kAhead < end) prefetch(array + ids[i + kAhead] * width, width);
      float* __restrict row = array + ids[i] * width;
      for (int64_t c = 0; c < width; ++c) row[c] += 1.0f;
    }
  });
}

double floor_stream(const float* array, int64_t count, int threads, float* sink) {
  return timed(threads, count, [=](int64_t begin, int64_t end) {
    float sum[16] = {};
    for (int64_t i = begin; i + 16 <= end; i += 16) {
      for (int64_t c = 0; c < 16; ++c) sum[c] += array[i + c];
    }
    sink[begin == 0 ? 0 : 1] = sum[0];
  });
}

}  // extern "C"

#pragma GCC visibility pop
