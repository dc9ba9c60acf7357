// Exact search: the k rows with the largest dot product for each query.
//
// Scores never reach memory. A tile of queries stands transposed, one lane a query; a few rows at a time are multiplied
// with it in registers and compared with the tile's thresholds, the k-th best score of each query so far. The few that
// pass are collected, and cut back to k when the collection is full. A score depends on its query and row alone, and
// equal scores are ordered by row, so that threads and blocks do not show in the result.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <thread>
#include <vector>

namespace {

#if defined(__AVX512F__)
constexpr int LANES = 16, VECTORS = 4, ROWS = 6;  // 24 of 32 registers hold sums
#elif defined(__AVX2__)
constexpr int LANES = 8, VECTORS = 2, ROWS = 6;  // 12 of 16
#else
constexpr int LANES = 4, VECTORS = 2, ROWS = 4;
#endif
constexpr int TILE = LANES * VECTORS;
constexpr int64_t BLOCK_BYTES = 1 << 18;  // rows that stay in the second cache while all tiles pass over them

typedef float Floats __attribute__((vector_size(LANES * 4)));
typedef int32_t Ints __attribute__((vector_size(LANES * 4)));

struct Found {
  float score;
  int64_t row;
  bool operator<(const Found& other) const {  // the better one is less
    return score != other.score ? score > other.score : row < other.row;
  }
};

// The best of one query: at most k are kept for good, and some more until the next cut.
struct Best {
  std::vector<Found> held;
  void cut(int64_t k, float* threshold) {
    if (static_cast<int64_t>(held.size()) < k) return;
    if (static_cast<int64_t>(held.size()) > k) {
      std::nth_element(held.begin(), held.begin() + k - 1, held.end());
      held.resize(k);
    }
    *threshold = std::max_element(held.begin(), held.end())->score;  // the worst that is kept
  }
};

struct Problem {
  const float* queries;
  const float* rows;
  int64_t num_queries, num_rows, dim, k, first_row;
  const uint8_t* allowed;           // by row; null: all are
  const int64_t* excluded_offsets;  // by query; null: nothing is excluded
  const int64_t* excluded;          // row numbers, ascending for each query
};

bool is_taken(const Problem& problem, int64_t query, int64_t row) {
  if (problem.allowed != nullptr && !problem.allowed[row]) return false;
  if (problem.excluded_offsets == nullptr) return true;
  const int64_t* begin = problem.excluded + problem.excluded_offsets[query];
  const int64_t* end = problem.excluded + problem.excluded_offsets[query + 1];
  return !std::binary_search(begin, end, row + problem.first_row);
}

// One thread's share of the rows.
struct Search {
  const Problem& problem;
  int64_t num_tiles, limit;
  std::vector<Floats> tiles;       // (tiles, dim, VECTORS)
  std::vector<Floats> thresholds;  // (tiles, VECTORS)
  std::vector<Best> best;

  Search(const Problem& given, const float* scores, const int64_t* numbers) : problem(given) {
    num_tiles = (problem.num_queries + TILE - 1) / TILE;
    limit = 2 * problem.k + 256;
    tiles.resize(num_tiles * problem.dim * VECTORS);
    thresholds.resize(num_tiles * VECTORS);
    best.resize(problem.num_queries);
    float* flat = reinterpret_cast<float*>(tiles.data());
    float* least = reinterpret_cast<float*>(thresholds.data());
    std::memset(static_cast<void*>(flat), 0, tiles.size() * sizeof(Floats));
    for (int64_t query = 0; query < num_tiles * TILE; ++query) {
      const int64_t tile = query / TILE, lane = query % TILE;
      if (query >= problem.num_queries) {
        least[query] = std::numeric_limits<float>::infinity();
        continue;
      }
      for (int64_t i = 0; i < problem.dim; ++i) {
        flat[(tile * problem.dim + i) * TILE + lane] = problem.queries[query * problem.dim + i];
      }
      least[query] = -std::numeric_limits<float>::infinity();
      if (scores == nullptr) continue;
      for (int64_t i = 0; i < problem.k; ++i) {
        const int64_t at = query * problem.k + i;
        if (numbers[at] >= 0) best[query].held.push_back({scores[at], numbers[at]});
      }
      best[query].cut(problem.k, least + query);
    }
  }

  template <int COUNT>
  void few(int64_t tile, int64_t first) {
    const Floats* columns = tiles.data() + tile * problem.dim * VECTORS;
    const float* row = problem.rows + first * problem.dim;
    Floats sums[COUNT][VECTORS] = {};
    for (int64_t i = 0; i < problem.dim; ++i) {
      Floats column[VECTORS];
      for (int v = 0; v < VECTORS; ++v) column[v] = columns[i * VECTORS + v];
#pragma GCC unroll 8
      for (int r = 0; r < COUNT; ++r) {
        const float value = row[r * problem.dim + i];
#pragma GCC unroll 8
        for (int v = 0; v < VECTORS; ++v) sums[r][v] += column[v] * value;
      }
    }
    const Floats* least = thresholds.data() + tile * VECTORS;
    Ints any = {};
    for (int r = 0; r < COUNT; ++r) {
      for (int v = 0; v < VECTORS; ++v) any |= sums[r][v] > least[v];
    }
    bool passes = false;
    for (int lane = 0; lane < LANES; ++lane) passes |= any[lane] != 0;
    if (!passes) return;
    for (int r = 0; r < COUNT; ++r) {
      for (int v = 0; v < VECTORS; ++v) {
        for (int lane = 0; lane < LANES; ++lane) collect(tile * TILE + v * LANES + lane, first + r, sums[r][v][lane]);
      }
    }
  }

  void collect(int64_t query, int64_t row, float score) {
    float* least = reinterpret_cast<float*>(thresholds.data()) + query;
    if (!(score > *least) || !is_taken(problem, query, row)) return;
    Best& own = best[query];
    own.held.push_back({score, row + problem.first_row});
    if (static_cast<int64_t>(own.held.size()) >= limit) own.cut(problem.k, least);
  }

  void run(int64_t begin, int64_t end) {
    const int64_t block = std::max<int64_t>(ROWS, BLOCK_BYTES / (4 * problem.dim) / ROWS * ROWS);
    for (int64_t first = begin; first < end; first += block) {
      const int64_t last = std::min(end, first + block);
      for (int64_t tile = 0; tile < num_tiles; ++tile) {
        int64_t row = first;
        for (; row + ROWS <= last; row += ROWS) few<ROWS>(tile, row);
        for (; row < last; ++row) few<1>(tile, row);
      }
    }
  }
};

}  // namespace

// Improves (queries, k) `scores` and `numbers`, the best of rows seen before (-1: none), by `num_rows` further rows, whose
// numbers begin at `first_row`. The best comes first.
extern "C" __attribute__((visibility("default"))) void sparrow_search(
    const float* queries, int64_t num_queries, const float* rows, int64_t num_rows, int64_t dim, int64_t k,
    int64_t first_row, const uint8_t* allowed, const int64_t* excluded_offsets, const int64_t* excluded,
    int64_t threads, float* scores, int64_t* numbers) {
  const Problem problem{queries, rows, num_queries, num_rows, dim, k, first_row, allowed, excluded_offsets, excluded};
  const int64_t work = num_queries * num_rows * std::max<int64_t>(dim, 1);
  threads = std::max<int64_t>(1, std::min({threads, work >> 22, num_rows / ROWS}));
  std::vector<Search> searches;
  for (int64_t i = 0; i < threads; ++i) {
    searches.emplace_back(problem, i == 0 ? scores : nullptr, i == 0 ? numbers : nullptr);
    if (i > 0) searches[i].thresholds = searches[0].thresholds;
  }
  std::vector<std::thread> others;
  const auto share = [&](int64_t i) { searches[i].run(num_rows * i / threads, num_rows * (i + 1) / threads); };
  int64_t begun = 1;
  try {
    for (; begun < threads; ++begun) others.emplace_back(share, begun);
  } catch (const std::exception&) {  // the system gives no more threads
  }
  share(0);
  for (int64_t i = begun; i < threads; ++i) share(i);
  for (auto& thread : others) thread.join();
  for (int64_t query = 0; query < num_queries; ++query) {
    auto& all = searches[0].best[query].held;
    for (int64_t i = 1; i < threads; ++i) {
      const auto& more = searches[i].best[query].held;
      all.insert(all.end(), more.begin(), more.end());
    }
    const int64_t count = std::min<int64_t>(k, all.size());
    std::partial_sort(all.begin(), all.begin() + count, all.end());
    for (int64_t i = 0; i < k; ++i) {
      scores[query * k + i] = i < count ? all[i].score : -std::numeric_limits<float>::infinity();
      numbers[query * k + i] = i < count ? all[i].row : -1;
    }
  }
}
