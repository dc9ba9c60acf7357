// Attention within jagged sequences: a task is one head of one sequence, in tiles of kTile queries and keys. Memory of a task
// is linear in the sequence; each number of the result is summed by one task, in one order.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "attention_mask.h"
#include "parallel.h"
#include "tiles.h"
#include "workspace.h"

namespace sparrow {
namespace {

constexpr int64_t kTile = 64, kMostPieces = 256;

// One head of one sequence.
class Head {
 public:
  Head(const AttentionCall& call, int64_t task, Buffer& buffer)
      : call_(call),
        head_(task % call.heads),
        at_(call, task / call.heads),
        bias_(call, at_),
        rows_(round_up(at_.length, kTile)),
        dim_(round_up(call.dim, kPanel)),
        width_(round_up(call.width, kPanel)) {
    for (int64_t i = 0; i < at_.length; ++i) seen_.push_back(at_.seen_by(call, i));
    const int64_t size = rows_ * (6 * dim_ + 6 * width_ + 4);
    memory_ = buffer.reserve<float>(size);
  }

  void forward() {
    if (at_.length == 0) return;
    float* q = packed(call_.q, call_.dim, dim_, call_.alpha);
    float* kt = transposed(call_.k, call_.dim);
    float* v = packed(call_.v, call_.width, width_, 1.f);
    float scores[kTile * kTile];
    std::vector<float> out(kTile * width_);
    for (int64_t r = 0; r < at_.length; r += kTile) {
      std::fill(out.begin(), out.end(), 0.f);
      std::fill(largest_, largest_ + kTile, -std::numeric_limits<float>::infinity());
      std::fill(total_, total_ + kTile, 0.f);
      for (int64_t c = 0; c < at_.length; c += kTile) {
        if (!any_seen(r, c)) continue;
        product<false>(scores, kTile, q + r * dim_, dim_, 1, kt + c * call_.dim, kTile, kTile, kTile, call_.dim);
        for (int64_t i = 0; i < kTile; ++i) {
          float* row = scores + i * kTile;
          if (!prepare(row, r + i, c)) continue;
          call_.softmax ? softmax_row(row, i, out.data() + i * width_) : silu_row(row);
          hide(row, r + i, c);
          if (call_.softmax) total_[i] += sum(row);
        }
        product<true>(out.data(), width_, scores, kTile, 1, v + c * width_, width_, kTile, width_, kTile);
      }
      for (int64_t i = 0; i < kTile && r + i < at_.length; ++i) finish(r + i, i, out.data() + i * width_);
    }
  }

  void backward(double* position, double* time) {
    if (at_.length == 0) return;
    float* q = packed(call_.q, call_.dim, dim_, call_.alpha);
    float* k = packed(call_.k, call_.dim, dim_, 1.f);
    float* kt = transposed(call_.k, call_.dim);
    float* vt = transposed(call_.v, call_.width);
    float* grads = packed(call_.grads, call_.width, width_, call_.scale);
    float *dq = zeros(rows_ * dim_), *dk = zeros(rows_ * dim_), *dv = zeros(rows_ * width_), *delta = zeros(rows_);
    if (call_.softmax) deltas(delta);
    float scores[kTile * kTile], inner[kTile * kTile];
    for (int64_t c = 0; c < at_.length; c += kTile) {
      for (int64_t r = 0; r < at_.length; r += kTile) {
        if (!any_seen(r, c)) continue;
        product<false>(scores, kTile, q + r * dim_, dim_, 1, kt + c * call_.dim, kTile, kTile, kTile, call_.dim);
        product<false>(inner, kTile, grads + r * width_, width_, 1, vt + c * call_.width, kTile, kTile, kTile, call_.width);
        for (int64_t i = 0; i < kTile; ++i) {
          float *row = scores + i * kTile, *gradient = inner + i * kTile;
          if (!prepare(row, r + i, c)) {
            std::fill(gradient, gradient + kTile, 0.f);
            continue;
          }
          call_.softmax ? softmax_gradient(row, gradient, lse(r + i), delta[r + i]) : silu_gradient(row, gradient);
          hide(row, r + i, c);
          hide(gradient, r + i, c);
          if (bias_.any()) bias_.add_gradients(gradient, r + i, c, std::min(c + kTile, at_.length), position, time);
        }
        product<true>(dv + c * width_, width_, scores, 1, kTile, grads + r * width_, width_, kTile, width_, kTile);
        product<true>(dq + r * dim_, dim_, inner, kTile, 1, k + c * dim_, dim_, kTile, dim_, kTile);
        product<true>(dk + c * dim_, dim_, inner, 1, kTile, q + r * dim_, dim_, kTile, dim_, kTile);
      }
    }
    unpack(dq, call_.dq, call_.dim, dim_, call_.alpha);
    unpack(dk, call_.dk, call_.dim, dim_, 1.f);
    unpack(dv, call_.dv, call_.width, width_, 1.f);
  }

 private:
  float* take(int64_t count) {
    float* taken = memory_;
    memory_ += count;
    return taken;
  }
  float* zeros(int64_t count) {
    float* made = take(count);
    std::fill(made, made + count, 0.f);
    return made;
  }
  template <class T>
  T* token(T* array, int64_t i, int64_t dim) const {
    return array + ((at_.start + i) * call_.heads + head_) * dim;
  }
  // This head's rows of `array`, times `factor`, each padded to `stride`.
  float* packed(const float* array, int64_t dim, int64_t stride, float factor) {
    float* made = zeros(rows_ * stride);
    for (int64_t i = 0; i < at_.length; ++i) {
      const float* row = token(array, i, dim);
      for (int64_t d = 0; d < dim; ++d) made[i * stride + d] = row[d] * factor;
    }
    return made;
  }
  // The same in blocks of kTile rows, each (dim, kTile).
  float* transposed(const float* array, int64_t dim) {
    float* made = zeros(rows_ * dim);
    for (int64_t i = 0; i < at_.length; ++i) {
      const float* row = token(array, i, dim);
      float* to = made + i / kTile * kTile * dim + i % kTile;
      for (int64_t d = 0; d < dim; ++d) to[d * kTile] = row[d];
    }
    return made;
  }
  void unpack(const float* from, float* array, int64_t dim, int64_t stride, float factor) const {
    for (int64_t i = 0; i < at_.length; ++i) {
      float* row = token(array, i, dim);
      for (int64_t d = 0; d < dim; ++d) row[d] = from[i * stride + d] * factor;
    }
  }
  float lse(int64_t i) const { return i < at_.length ? *token(call_.lse, i, 1) : 0.f; }
  void deltas(float* delta) const {
    for (int64_t i = 0; i < at_.length; ++i) {
      const float *out = token(call_.out, i, call_.width), *grads = token(call_.grads, i, call_.width);
      for (int64_t d = 0; d < call_.width; ++d) delta[i] += out[d] * grads[d];
    }
  }

  bool any_seen(int64_t r, int64_t c) const {
    const int64_t last = std::min(r + kTile, at_.length);
    return std::any_of(seen_.begin() + r, seen_.begin() + last, [&](const Ranges& one) { return one.meets(c, c + kTile); });
  }
  // Adds the bias to the scores of query i; whether it sees any of the keys from c on. Where not, the row becomes zeros.
  bool prepare(float* row, int64_t i, int64_t c) const {
    if (i >= at_.length || !seen_[i].meets(c, c + kTile)) {
      std::fill(row, row + kTile, 0.f);
      return false;
    }
    if (bias_.any()) bias_.add(row, i, c, std::min(c + kTile, at_.length));
    if (call_.softmax) hide(row, i, c, -std::numeric_limits<float>::infinity());
    return true;
  }
  // Gives `value` to the keys from c on that query i does not see.
  void hide(float* row, int64_t i, int64_t c, float value = 0.f) const {
    const Ranges& seen = seen_[i];
    if (seen.covers(c, c + kTile)) return;
    uint32_t begin[2], size[2];  // relative to c; key - begin is a huge number for a key before it
    for (int r = 0; r < 2; ++r) {
      begin[r] = static_cast<uint32_t>(seen.begin[r] - c);
      size[r] = static_cast<uint32_t>(std::max<int64_t>(0, seen.end[r] - seen.begin[r]));
    }
#pragma omp simd
    for (uint32_t j = 0; j < kTile; ++j) {
      const bool there = (j - begin[0] < size[0]) | (j - begin[1] < size[1]);
      row[j] = there ? row[j] : value;
    }
  }

  static float sum(const float* row) {
    float parts[16] = {};
    for (int64_t j = 0; j < kTile; j += 16) {
      for (int64_t p = 0; p < 16; ++p) parts[p] += row[j + p];
    }
    float all = 0.f;
    for (float part : parts) all += part;
    return all;
  }
  static void silu_row(float* row) {
#pragma omp simd
    for (int64_t j = 0; j < kTile; ++j) row[j] *= sigmoid(row[j]);
  }
  static void silu_gradient(float* row, float* gradient) {
#pragma omp simd
    for (int64_t j = 0; j < kTile; ++j) {
      const float s = row[j], share = sigmoid(s);
      gradient[j] *= share * (1.f + s * (1.f - share));
      row[j] = s * share;
    }
  }
  // Powers relative to the largest score so far; what was summed before is brought to the new one.
  void softmax_row(float* row, int64_t i, float* out) {
    float largest = largest_[i];
    for (int64_t j = 0; j < kTile; ++j) largest = std::max(largest, row[j]);
    if (largest > largest_[i]) {
      const float factor = fast_exp(largest_[i] - largest);
      total_[i] *= factor;
      for (int64_t d = 0; d < width_; ++d) out[d] *= factor;
      largest_[i] = largest;
    }
#pragma omp simd
    for (int64_t j = 0; j < kTile; ++j) row[j] = fast_exp(row[j] - largest);
  }
  static void softmax_gradient(float* row, float* gradient, float lse, float delta) {
#pragma omp simd
    for (int64_t j = 0; j < kTile; ++j) {
      row[j] = fast_exp(row[j] - lse);
      gradient[j] = row[j] * (gradient[j] - delta);
    }
  }
  void finish(int64_t token_number, int64_t i, const float* out) {
    float factor = call_.scale;
    if (call_.softmax) {
      factor = total_[i] > 0.f ? call_.scale / total_[i] : 0.f;
      *token(call_.lse, token_number, 1) = total_[i] > 0.f ? largest_[i] + std::log(total_[i]) : 0.f;
    }
    float* to = token(call_.out, token_number, call_.width);
    for (int64_t d = 0; d < call_.width; ++d) to[d] = out[d] * factor;
  }

  const AttentionCall& call_;
  const int64_t head_;
  const Sequence at_;
  const Bias bias_;
  const int64_t rows_, dim_, width_;
  std::vector<Ranges> seen_;
  float* memory_;
  float largest_[kTile], total_[kTile];
};

// Zeros for the tokens behind the last sequence.
void clear_padding(const AttentionCall& call, float* array, int64_t dim) {
  const int64_t end = std::clamp<int64_t>(call.offsets[call.sequences], 0, call.tokens);
  std::fill(array + end * call.heads * dim, array + call.tokens * call.heads * dim, 0.f);
}

// Runs `work(piece, task)` for all heads of all sequences, in pieces that depend on their number alone.
template <class Work>
int64_t in_pieces(const AttentionCall& call, const Parallel& parallel, Work&& work) {
  const int64_t tasks = call.sequences * call.heads, pieces = std::min(tasks, kMostPieces);
  for_each(parallel, pieces, [&](int64_t piece) {
    WorkspaceLease lease;
    for (int64_t task = part_begin(tasks, pieces, piece); task < part_begin(tasks, pieces, piece + 1); ++task) {
      work(piece, Head(call, task, (*lease).entries));
    }
  });
  return pieces;
}

}  // namespace

void attention(const AttentionCall& call, const Parallel& parallel) {
  clear_padding(call, call.out, call.width);
  if (call.softmax) clear_padding(call, call.lse, 1);
  in_pieces(call, parallel, [](int64_t, Head head) { head.forward(); });
}

void attention_backward(const AttentionCall& call, const Parallel& parallel) {
  clear_padding(call, call.dq, call.dim);
  clear_padding(call, call.dk, call.dim);
  clear_padding(call, call.dv, call.width);
  const int64_t buckets = call.position_buckets + call.time_buckets;
  std::vector<double> partial(std::min(call.sequences * call.heads, kMostPieces) * buckets);
  const int64_t pieces = in_pieces(call, parallel, [&](int64_t piece, Head head) {
    double* own = partial.data() + piece * buckets;
    head.backward(own, own + call.position_buckets);
  });
  for (int64_t b = 0; b < buckets; ++b) {
    double total = 0;
    for (int64_t piece = 0; piece < pieces; ++piece) total += partial[piece * buckets + b];
    (b < call.position_buckets ? call.dposition[b] : call.dtime[b - call.position_buckets]) = static_cast<float>(total);
  }
}

}  // namespace sparrow
