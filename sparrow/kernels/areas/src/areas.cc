// Areas under the ROC curves of groups of rows: rows are sorted by key, then by score, and each group is summed once.
//
// Rows go to parts by a hash of their keys, so that threads share the groups, and within a part to buckets by the first
// bits of their keys. A bucket fits the cache; it is sorted by all other bits, from the last ones to the first.
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <new>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

namespace {

constexpr int64_t BLOCK = 1 << 17;   // rows that a thread takes at a time
constexpr int64_t BUCKET = 1 << 12;  // rows of a bucket, in the mean
constexpr int BUCKET_BITS = 8;       // of the number of a bucket of a part, at most
constexpr int MOST_BITS = 11;        // that rows are sorted by at a time
constexpr int64_t FEW = 48;          // rows that are inserted one by one

struct Chunk {
  const float* predictions;
  const uint8_t* labels;
  const float* weights;  // null: 1 each
  const uint64_t* keys;
  int64_t rows;
};

struct Row {
  uint64_t key;
  uint32_t score;  // compares as the prediction does
  float weight;    // of a positive row; its negative, of a negative one

  bool operator<(const Row& other) const { return key != other.key ? key < other.key : score < other.score; }
};

// The result of a group: it takes the place of one of its rows.
struct Group {
  double area, weight;
};

enum Average : int64_t { kUniform = 0, kImpressions = 1, kClicks = 2 };

// `sparrow.metrics.keys.owner`.
uint64_t owner(uint64_t key, uint64_t parts) {
  constexpr uint64_t MIX = 0x9E3779B97F4A7C15;
  uint64_t mixed = key * MIX;
  mixed ^= mixed >> 32;
  return ((mixed * MIX) >> 33) & (parts - 1);
}

uint32_t ordered(float prediction) {
  const float positive_zero = prediction + 0.0f;
  uint32_t bits;
  std::memcpy(&bits, &positive_zero, 4);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

// Bits of the key, or of the score, that rows are sorted by at a time.
struct Digit {
  bool is_of_key;
  int shift;
  uint32_t mask;

  uint32_t of(const Row& row) const {
    return static_cast<uint32_t>((is_of_key ? row.key : row.score) >> shift) & mask;
  }
};

// Appends the digits of all bits that vary, the last ones first.
void add_digits(uint64_t varies, bool is_of_key, std::vector<Digit>& digits) {
  if (varies == 0) return;
  const int first = __builtin_ctzll(varies), bits = 64 - __builtin_clzll(varies) - first;
  const int count = (bits + MOST_BITS - 1) / MOST_BITS, each = (bits + count - 1) / count;
  for (int i = 0; i < count; ++i) digits.push_back({is_of_key, first + i * each, (1u << each) - 1});
}

// Sorts rows by their digits; `space` is for as many rows. Returns the one of the two where they are then.
Row* sort_bucket(Row* rows, Row* space, int64_t count) {
  if (count <= FEW) {
    for (int64_t i = 1; i < count; ++i) {
      const Row row = rows[i];
      int64_t at = i;
      for (; at > 0 && row < rows[at - 1]; --at) rows[at] = rows[at - 1];
      rows[at] = row;
    }
    return rows;
  }
  uint64_t keys = 0, scores = 0;
  for (int64_t i = 1; i < count; ++i) {
    keys |= rows[i].key ^ rows[0].key;
    scores |= rows[i].score ^ rows[0].score;
  }
  std::vector<Digit> digits;
  add_digits(scores, false, digits);
  add_digits(keys, true, digits);
  std::array<uint32_t, size_t{1} << MOST_BITS> starts;
  for (const Digit digit : digits) {
    std::fill_n(starts.begin(), digit.mask + 1, 0);
    for (int64_t i = 0; i < count; ++i) ++starts[digit.of(rows[i])];
    std::exclusive_scan(starts.begin(), starts.begin() + digit.mask + 1, starts.begin(), 0u);
    for (int64_t i = 0; i < count; ++i) space[starts[digit.of(rows[i])]++] = rows[i];
    std::swap(rows, space);
  }
  return rows;
}

// Writes the groups of sorted rows to `out`, which may be the memory of the rows; returns their number.
int64_t sum_groups(const Row* rows, int64_t count, int64_t average, Row* out) {
  int64_t groups = 0;
  for (int64_t i = 0; i < count; ++groups) {
    const uint64_t key = rows[i].key;
    double positive = 0, negative = 0, twice = 0;  // twice the pairs in the right order
    while (i < count && rows[i].key == key) {
      const uint32_t score = rows[i].score;
      double above = 0, below = 0;
      for (; i < count && rows[i].key == key && rows[i].score == score; ++i) {
        (rows[i].weight > 0 ? above : below) += std::abs(rows[i].weight);
      }
      twice += above * (2 * negative + below);
      positive += above;
      negative += below;
    }
    const double pairs = positive * negative;
    const Group made{pairs > 0 ? twice / (2 * pairs) : std::numeric_limits<double>::quiet_NaN(),
                     average == kUniform ? 1 : average == kClicks ? positive : positive + negative};
    static_assert(sizeof made == sizeof *out);
    std::memcpy(static_cast<void*>(&out[groups]), &made, sizeof made);
  }
  return groups;
}

// The place of a key among the parts and their buckets: the order of buckets is that of keys, as integers where all are
// near each other.
struct Places {
  uint64_t parts, base;
  int bits, shift;

  Places(int64_t least, int64_t most, int64_t rows, uint64_t parts) : parts(parts), base(0), bits(0) {
    uint64_t range = static_cast<uint64_t>(most) - static_cast<uint64_t>(least);
    if (range < uint64_t{1} << 31) {
      base = least;
    } else {
      range = ~uint64_t{0};
    }
    const int highest = range ? 64 - __builtin_clzll(range) : 0;
    while (bits < std::min(BUCKET_BITS, highest) && rows / static_cast<int64_t>(parts) >> bits > BUCKET) ++bits;
    shift = std::min(highest - bits, 63);
  }
  uint64_t count() const { return parts << bits; }
  uint64_t of(uint64_t key) const {
    return owner(key, parts) << bits | ((key - base) >> shift & ((uint64_t{1} << bits) - 1));
  }
};

// Calls work(0), ..., work(count - 1) in threads; returns whether there was memory for all.
template <class Work>
bool in_threads(int64_t threads, int64_t count, const Work& work) {
  std::atomic<int64_t> next{0};
  std::atomic<bool> is_done{true};
  const auto run = [&] {
    try {
      for (int64_t i; (i = next++) < count;) work(i);
    } catch (const std::bad_alloc&) {
      is_done = false;
    }
  };
  std::vector<std::thread> others;
  try {
    for (int64_t i = 1; i < std::min(threads, count); ++i) others.emplace_back(run);
  } catch (const std::exception&) {  // the system gives no more threads: those that run do it all
  }
  run();
  for (auto& thread : others) thread.join();
  return is_done;
}

}  // namespace

// Copies the rows that count: predictions are numbers, labels 0 or 1, weights finite and above 0. Returns their number.
// `faults` counts the rows with wrong predictions, labels and weights, as `judge` of `sparrow.metrics.inputs` does.
extern "C" __attribute__((visibility("default"))) int64_t sparrow_binary_rows(
    const float* predictions, const float* labels, const float* weights, const int64_t* keys, int64_t rows,
    float* out_predictions, uint8_t* out_labels, float* out_weights, int64_t* out_keys, int64_t* faults) {
  int64_t kept = 0;
  for (int64_t i = 0; i < rows; ++i) {
    const float weight = weights ? weights[i] : 1.0f;
    const bool is_used = weight != 0, is_fit = weight >= 0 && weight <= std::numeric_limits<float>::max();
    const bool is_number = predictions[i] == predictions[i], is_binary = labels[i] == 0 || labels[i] == 1;
    faults[0] += is_used && !is_number;
    faults[1] += is_used && !is_binary;
    faults[2] += !is_fit;
    out_predictions[kept] = predictions[i];
    out_labels[kept] = labels[i] != 0;
    if (weights) out_weights[kept] = weight;
    if (keys) out_keys[kept] = keys[i];
    kept += is_used && is_fit && is_number && is_binary;
  }
  return kept;
}

// Sorts the rows of all chunks, and replaces them by the results of groups: those of each of the `parts`, a power of two,
// begin at starts[part], and groups[part] is their number. `sorted` has space for all rows. Returns 0 where there is no memory.
extern "C" __attribute__((visibility("default"))) int64_t sparrow_group_areas(
    const Chunk* chunks, int64_t num_chunks, int64_t parts, int64_t threads, int64_t average, Row* sorted,
    int64_t* starts, int64_t* groups) try {
  std::vector<Chunk> blocks;
  int64_t rows = 0;
  for (int64_t i = 0; i < num_chunks; ++i) {
    const Chunk& own = chunks[i];
    rows += own.rows;
    for (int64_t at = 0; at < own.rows; at += BLOCK) {
      blocks.push_back({own.predictions + at, own.labels + at, own.weights ? own.weights + at : nullptr, own.keys + at,
                        std::min(BLOCK, own.rows - at)});
    }
  }
  if (rows == 0) return 0;
  const int64_t num_blocks = blocks.size();
  std::vector<int64_t> least(num_blocks), most(num_blocks);
  bool is_done = in_threads(threads, num_blocks, [&](int64_t i) {
    const auto* keys = reinterpret_cast<const int64_t*>(blocks[i].keys);
    const auto ends = std::minmax_element(keys, keys + blocks[i].rows);
    least[i] = *ends.first;
    most[i] = *ends.second;
  });
  const Places places(*std::min_element(least.begin(), least.end()), *std::max_element(most.begin(), most.end()), rows,
                      parts);
  const int64_t buckets = places.count();
  std::vector<int64_t> next(num_blocks * buckets);  // the place of a block's next row in each bucket
  is_done = is_done && in_threads(threads, num_blocks, [&](int64_t i) {
    int64_t* own = &next[i * buckets];
    for (int64_t row = 0; row < blocks[i].rows; ++row) ++own[places.of(blocks[i].keys[row])];
  });
  std::vector<int64_t> begins(buckets + 1);
  for (int64_t bucket = 0, at = 0; bucket < buckets; ++bucket) {
    begins[bucket] = at;
    for (int64_t i = 0; i < num_blocks; ++i) at += std::exchange(next[i * buckets + bucket], at);
  }
  begins[buckets] = rows;
  is_done = is_done && in_threads(threads, num_blocks, [&](int64_t i) {
    const Chunk& own = blocks[i];
    for (int64_t row = 0; row < own.rows; ++row) {
      const float weight = own.weights ? own.weights[row] : 1.0f;
      sorted[next[i * buckets + places.of(own.keys[row])]++] = {
          own.keys[row] - places.base, ordered(own.predictions[row]), own.labels[row] ? weight : -weight};
    }
  });
  return is_done && in_threads(threads, parts, [&](int64_t part) {
    const int64_t first = part << places.bits, last = (part + 1) << places.bits;
    int64_t at = starts[part] = begins[first];
    std::vector<Row> space;
    for (int64_t bucket = first; bucket < last; ++bucket) {
      const int64_t count = begins[bucket + 1] - begins[bucket];
      if (count > static_cast<int64_t>(space.size())) space.resize(count + count / 4);
      const Row* own = sort_bucket(&sorted[begins[bucket]], space.data(), count);
      at += sum_groups(own, count, average, sorted + at);
    }
    groups[part] = at - starts[part];
  });
} catch (const std::bad_alloc&) {
  return 0;
}
