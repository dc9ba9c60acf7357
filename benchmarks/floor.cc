// What memory allows: rows read, rows read and written, and a stream, on a number of threads.
// Built and called by floor.py. Each function returns seconds.
//
// Of each cache line one number is touched: memory moves whole lines, and arithmetic on all of their numbers could
// take longer than that.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace {

constexpr int64_t kAhead = 16;
constexpr int64_t kLine = 16;  // numbers

// Runs work(begin, end) on parts of [0, count); the clock starts when all threads are there.
template <class Work>
double timed(int threads, int64_t count, Work work) {
  std::atomic<int> waiting{threads};
  auto part = [&](int t) {
    waiting.fetch_sub(1);
    while (waiting.load() > 0) {
    }
    work(count * t / threads, count * (t + 1) / threads);
  };
  std::vector<std::thread> helpers;
  for (int t = 1; t < threads; ++t) helpers.emplace_back(part, t);
  while (waiting.load() > 1) {
  }
  const auto started = std::chrono::steady_clock::now();
  part(0);
  for (auto& helper : helpers) helper.join();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
}

void prefetch(const float* row, int64_t width) {
  for (int64_t c = 0; c < width; c += kLine) __builtin_prefetch(row + c, 1, 3);
}

}  // namespace

#pragma GCC visibility push(default)

extern "C" {

double floor_gather(const float* array, int64_t width, const int32_t* ids, int64_t count, int threads, float* sink) {
  return timed(threads, count, [=](int64_t begin, int64_t end) {
    float sum = 0.0f;
    for (int64_t i = begin; i < end; ++i) {
      if (i + kAhead < end) prefetch(array + ids[i + kAhead] * width, width);
      const float* row = array + ids[i] * width;
      for (int64_t c = 0; c < width; c += kLine) sum += row[c];
    }
    sink[begin == 0 ? 0 : 1] = sum;
  });
}

double floor_modify(float* array, int64_t width, const int32_t* ids, int64_t count, int threads) {
  return timed(threads, count, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (i + kAhead < end) prefetch(array + ids[i + kAhead] * width, width);
      float* row = array + ids[i] * width;
      for (int64_t c = 0; c < width; c += kLine) row[c] += 1.0f;
    }
  });
}

double floor_stream(const float* array, int64_t count, int threads, float* sink) {
  return timed(threads, count, [=](int64_t begin, int64_t end) {
    float sum[4] = {};
    int64_t i = begin;
    for (; i + 4 * kLine <= end; i += 4 * kLine) {
      for (int64_t c = 0; c < 4; ++c) sum[c] += array[i + c * kLine];
    }
    sink[begin == 0 ? 0 : 1] = sum[0] + sum[1] + sum[2] + sum[3];
  });
}

}  // extern "C"

#pragma GCC visibility pop
