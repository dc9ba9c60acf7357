// Rows of a table with their slots, in registers: read, and written back. Macros as in update.cu.
typedef Kept<TABLE>::T Row;
typedef Kept<GRADS>::T Grad;

struct State {  // table and slots, in place
  Row* table;
  float* e[NE > 0 ? NE : 1];
  float* r[NR > 0 ? NR : 1];
};

// The table of the stack that rows belong to. Rows come in ascending order.
struct Tables {
  const int32_t* first_rows;
  u32 num_tables, table, limit;
  MEMBER void advance(u32 row) {
    if (!STACKED) return;
    while (row >= limit) {
      ++table;
      limit = table + 1 < num_tables ? static_cast<u32>(first_rows[table + 1]) : NONE;
    }
  }
};

struct RowValues {
  Row row[E];
  float e[NE > 0 ? NE : 1][E];
  float r[NR > 0 ? NR : 1];

  MEMBER void load(const Group& group, const State& state, u32 index, u64 policy) {
    const u64 at = index * STRIDE + group.slice * DIM;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      if (group.has(k)) {
        const u64 from = at + group.offset(k);
        put(row, k, ::load<ROW_HINT, V>(state.table + from, policy));
#pragma unroll
        for (int s = 0; s < NE; ++s) put(e[s], k, ::load<ROW_HINT, V>(state.e[s] + from, policy));
      } else {
        put(row, k, Pack<Row, V>{});
#pragma unroll
        for (int s = 0; s < NE; ++s) put(e[s], k, Pack<float, V>{});
      }
    }
#pragma unroll
    for (int s = 0; s < NR; ++s) r[s] = state.r[s][index];
  }
  MEMBER void store(const Group& group, const State& state, u32 index, u64 policy) const {
    const u64 at = index * STRIDE + group.slice * DIM;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      if (group.has(k)) {
        const u64 to = at + group.offset(k);
        ::store<ROW_HINT>(state.table + to, make_pack<V>(row + k * V), policy);
#pragma unroll
        for (int s = 0; s < NE; ++s) ::store<ROW_HINT>(state.e[s] + to, make_pack<V>(e[s] + k * V), policy);
      }
    }
    if (group.lane == 0) {
#pragma unroll
      for (int s = 0; s < NR; ++s) state.r[s][index] = r[s];
    }
  }
  template <class T>
  static MEMBER void put(T* x, int k, const Pack<T, V>& pack) {
#pragma unroll
    for (int i = 0; i < V; ++i) x[k * V + i] = number(pack, i);
  }
};
