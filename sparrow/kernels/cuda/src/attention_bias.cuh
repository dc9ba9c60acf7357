// The bias of a pair by buckets of its distances in place and in time, and the sums of its gradients.
struct Bias {
  const float* position;
  int positions;
  const float* time;
  int spans;
  float unit;
  int is_log;

  // The bias of a query and a key that it sees, `elapsed` before it, and the buckets.
  MEMBER float of(const Mask& mask, int query, int key, float elapsed, int& bucket, int& time_bucket) const {
    float found = 0.f;
    if (POSITION) {
      const int distance = MASKS == 2 ? min(query, mask.end) - min(key, mask.end) : mask.place(query) - mask.place(key);
      bucket = min(max(distance, 0), positions - 1);
      found += position[bucket];
    }
    if (TIME) {
      const float units = fmaxf(elapsed, 0.f) / unit;
      const float scaled = is_log ? logf(fmaxf(units, 1.f)) : sqrtf(units);
      time_bucket = (int)fminf(scaled, (float)(spans - 1));
      found += time[time_bucket];
    }
    return found;
  }
};

// *sum += x for 64-bit numbers of two words: the same bits whatever the order of the atomics.
DEVICE void add_wide(u32* sum, u64 x) {
  const u32 low = (u32)x, before = atomicAdd(sum, low), high = (u32)(x >> 32) + (before + low < before);
  if (high != 0) atomicAdd(sum + 1, high);
}

// Sums by bucket, as integers. A thread adds up what comes to one bucket in a row, as most far pairs do.
struct Gradient {
  u32* sums;
  int bucket = 0;
  int64_t sum = 0;

  MEMBER void add(int to, float x) {
    if (to != bucket) leave();
    bucket = to;
    sum += __float2ll_rn(x);
  }
  MEMBER void leave() {
    if (sum != 0) add_wide(sums + 2 * bucket, (u64)sum);
    sum = 0;
  }
};
