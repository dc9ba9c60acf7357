// XLA's side of the map from ids to rows.
#include "handlers.h"
#include "ids.h"
#include "pages.h"

namespace sparrow {
namespace {

template <Type kType, size_t kRank>
using Typed = ffi::Buffer<kType, kRank>;
template <Type kType, size_t kRank>
using Out = ffi::Result<Typed<kType, kRank>>;
using Words = Typed<Type::U32, 2>;
using Numbers = Typed<Type::S32, 1>;
using Pairs = Typed<Type::S32, 2>;
using Totals = Typed<Type::U32, 3>;
using OutWords = Out<Type::U32, 2>;
using OutNumbers = Out<Type::S32, 1>;

uint64_t* wide(void* data) { return static_cast<uint64_t*>(data); }

IdMap read_map(int64_t num_rows, Words table, Words ids, Numbers last, Words buckets) {
  IdMap map{};
  map.segments = reinterpret_cast<const IdSegment*>(table.typed_data());
  map.num_segments = static_cast<int32_t>(table.dimensions()[0]);
  map.num_rows = static_cast<int32_t>(num_rows);
  map.num_places = last.dimensions()[0];
  map.num_buckets = buckets.dimensions()[0];
  map.ids = wide(ids.untyped_data());
  map.last = last.typed_data();
  map.buckets = reinterpret_cast<IdBucket*>(buckets.typed_data());
  prefer_huge_pages(map.ids, 8 * map.num_places);
  prefer_huge_pages(map.last, 4 * map.num_places);
  prefer_huge_pages(map.buckets, int64_t(sizeof(IdBucket)) * map.num_buckets);
  return map;
}

IdBatch read_batch(Words ids, Numbers segments, ffi::BufferR0<Type::S32> step) {
  return {wide(ids.untyped_data()), segments.typed_data(), static_cast<int64_t>(segments.element_count()), *step.typed_data()};
}

bool fits(const IdMap& map, Words table, Words ids, Words buckets) {
  return table.dimensions()[1] == 16 && ids.dimensions()[0] == map.num_places && ids.dimensions()[1] == 2 &&
         buckets.dimensions()[1] == 32 && map.num_buckets > 0 && map.num_rows <= map.num_places;
}

bool valid(const IdMap& map, const IdBatch& batch) {
  for (int64_t i = 0; i < batch.count; ++i) {
    if (batch.segments[i] >= map.num_segments) return false;
  }
  return true;
}

ffi::Error find(ffi::ThreadPool pool, Words table, Words keys, Numbers segments, ffi::BufferR0<Type::S32> step, Words ids,
                Numbers last, Words buckets, int64_t num_rows, int64_t threads, OutNumbers rows) {
  const IdMap map = read_map(num_rows, table, ids, last, buckets);
  const IdBatch batch = read_batch(keys, segments, step);
  if (!fits(map, table, ids, buckets) || !valid(map, batch)) return refuse("the arrays of a map of ids do not belong together");
  return guarded(pool, threads, [&](const Parallel& parallel) { find_ids(map, batch, rows->typed_data(), parallel); });
}

// The state, as in IdState, is changed in place: it is read where the results are.
ffi::Error assign(ffi::ThreadPool pool, Words table, Words keys, Numbers segments, ffi::BufferR0<Type::S32> step, Words,
                  Numbers, Numbers, Numbers, Pairs, Totals, Numbers, Words, int64_t num_rows,
                  int64_t threads, OutWords ids, OutNumbers last, OutNumbers counts, OutNumbers free, Out<Type::S32, 2> pools,
                  Out<Type::U32, 3> totals, OutNumbers missing, OutWords buckets, OutNumbers rows, OutNumbers fresh_rows,
                  OutWords fresh_ids, OutNumbers fresh_ends, OutNumbers gone_rows, OutWords gone_ids, OutNumbers gone_ends,
                  Out<Type::S32, 2> entries, Out<Type::S32, 2> left) {
  IdMap map = read_map(num_rows, table, *ids, *last, *buckets);
  map.counts = counts->typed_data();
  map.free = free->typed_data();
  map.pools = pools->typed_data();
  map.totals = wide(totals->untyped_data());
  map.missing = missing->typed_data();
  const IdBatch batch = read_batch(keys, segments, step);
  if (!fits(map, table, *ids, *buckets) || !valid(map, batch)) return refuse("the arrays of a map of ids do not belong together");
  const auto changes = [](OutNumbers& rows, OutWords& ids, OutNumbers& ends) {
    return IdChanges{rows->typed_data(), wide(ids->untyped_data()), ends->typed_data(), rows->dimensions()[0]};
  };
  const IdChanges fresh = changes(fresh_rows, fresh_ids, fresh_ends), gone = changes(gone_rows, gone_ids, gone_ends);
  const IdUndo undo{entries->typed_data(), left->typed_data(), entries->dimensions()[1], left->dimensions()[1]};
  return guarded(pool, threads,
                 [&](const Parallel& parallel) { assign_ids(map, batch, rows->typed_data(), fresh, gone, undo, parallel); });
}

ffi::Error index(Words table, Words ids, Numbers last, int64_t num_rows, OutWords buckets) {
  const IdMap map = read_map(num_rows, table, ids, last, *buckets);
  if (!fits(map, table, ids, *buckets)) return refuse("the arrays of a map of ids do not belong together");
  index_ids(map);
  return ffi::Error::Success();
}

}  // namespace
}  // namespace sparrow

#pragma GCC visibility push(default)
SPARROW_HANDLER(sparrow_find_ids, sparrow::find, "num_rows", "threads");
SPARROW_HANDLER(sparrow_assign_ids, sparrow::assign, "num_rows", "threads");
SPARROW_HANDLER(sparrow_index_ids, sparrow::index, "num_rows");
#pragma GCC visibility pop
