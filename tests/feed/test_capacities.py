"""Room for bags: fixed places where lengths hardly vary, with the results of any other room."""

import io
import itertools

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparrow import config as configs
from sparrow import runs
from sparrow.embedding import MAX_ENTRIES, Sizes
from sparrow.feed import capacities
from sparrow.feed.capacities import Capacities, CountedIds
from sparrow.kernels import feed
from sparrow.kernels.feed import Pattern
from tests.feed.ways import by_columns

compiled = pytest.mark.skipif(feed.unavailable() is not None, reason="fixed places are compiled code's")


def fit(held, *batches):
    """The room of one stack after each batch: examples, ids in bags, and the longest bag of each feature."""
    return [held.fit(examples, {"a": CountedIds(ids, longest)})[0]["a"] for examples, ids, longest in batches]


def test_even_bags_have_places():
    assert fit(Capacities(Sizes()), (512, 512 * 5, (2, 3)), (512, 512 * 4, (2, 3))) == [(2, 3), (2, 3)]


def test_places_grow_and_are_given_up_when_lengths_vary():
    held = Capacities(Sizes())
    assert fit(held, (512, 5120, (10,)), (512, 5120, (11,)), (512, 5120, (40,))) == [(10,), (11,), 7168]
    assert fit(held, (512, 5120, (10,))) == [7168]
    records = [(512, 512 * n, (n,)) for n in (10, 11, 12, 13)]
    assert fit(Capacities(Sizes()), *records) == [(10,), (11,), (12,), 10240]


def test_uneven_and_small_and_huge_batches_have_sizes():
    assert fit(Capacities(Sizes()), (512, 600, (3,))) == [768]
    assert fit(Capacities(Sizes()), (8, 8, (1,)), (512, 512, (1,))) == [10, (1,)]
    assert isinstance(fit(Capacities(Sizes()), (2**20, MAX_ENTRIES, (MAX_ENTRIES // 2**20 + 1,)))[0], int)


def test_patterns_are_the_same_on_host_and_device():
    for kind in ("bags", "offsets"):
        pattern = Pattern(kind, 5, (2, 0, 1))
        on_device = jax.jit(pattern.cut)(np.zeros(1, np.int32))
        assert on_device.dtype == pattern.view(None).dtype == np.int32
        np.testing.assert_array_equal(on_device, pattern.view(None))


def write(path, rows, seed, even):
    """Lists of 3, 1 and 20 ids; where they are not ``even``, now and then fewer, or null."""
    rng = np.random.default_rng(seed)
    columns = {"label": rng.integers(0, 2, rows).astype(np.float32), "one": rng.integers(0, 50, rows).astype(np.int32)}
    columns["one"][3] = -1
    columns["one"] = pa.array(columns["one"], mask=np.arange(rows) % 50 == 5)
    for name, length in (("few", 3), ("single", 1), ("many", 20)):
        lists = rng.integers(0, 40, (rows, length)).tolist()
        if not even:
            for row in rng.choice(rows, rows // 20, replace=False):
                lists[row] = [None, [], lists[row][:-1], [None, *lists[row][1:]]][row % 4]
        columns[name] = pa.array(lists, pa.list_(pa.int32()))
    pq.write_table(pa.table(columns), path, row_group_size=300)


def config(path, pooling, dynamic=False):
    bags = [("few", "sum"), ("single", pooling), ("many", pooling)]
    features = [
        {"kind": "id", "name": name, "num_buckets": 40, "embedding_dim": 4, "pooling": pooled} for name, pooled in bags
    ]
    one = {"kind": "id", "name": "one", "num_buckets": 50, "embedding_dim": 4, "unknown": "empty"}
    features.insert(1, one)
    if dynamic:
        fixed = ("num_buckets", "unknown")
        features = [{key: own[key] for key in own if key not in fixed} | {"dynamic": {"rows": 64}} for own in features]
        if dynamic == "shared":  # by single ids and by bags
            features[0]["table"] = features[1]["table"] = "shared"
    names = ["few", "one", "single", "many"]
    return configs.from_mapping(
        {
            "train": {
                "sparse_optimizer": {"name": "adagrad", "learning_rate": 0.1},
                "dense_optimizer": {"optimizer": "sgd", "learning_rate": 0.001},
                "batch_size": 256,
                "epochs": 1,
            },
            "tasks": {"click": {"label": "label", "losses": ["binary_cross_entropy"]}},
            "data": {"train": {"name": "parquet", "path": str(path)}, "features": features, "shuffle_rows": 500},
            "model": {
                "architecture": {"name": "deepfm", "deep": {"hidden_units": [4]}},
                "groups": {"wide": names, "deep": names},
            },
        }
    )


def bags_of(packed, name, num_rows):
    """The ids and gains of each bag, without ids that are ignored; of raw ids, the tables and the ids."""
    lookups = packed.lookups[name]
    ids, offsets = np.asarray(lookups.ids), np.asarray(lookups.offsets)
    there = ids < num_rows
    if name in packed.raw:
        raw, there = np.asarray(packed.raw[name]), ids >= 0
        assert (raw[~there] == 0).all()
        ids = np.concatenate([ids[:, None], raw], axis=1)
    gains = np.ones(len(ids), np.float32) if lookups.gains is None else np.asarray(lookups.gains)
    for bag, (begin, end) in enumerate(itertools.pairwise(offsets)):
        assert (np.asarray(lookups.bags)[begin:end] == bag).all()
    pairs = zip(ids.tolist(), gains.tolist(), strict=True)
    kept = [pair if is_there else None for pair, is_there in zip(pairs, there, strict=True)]
    return [[pair for pair in kept[a:b] if pair] for a, b in itertools.pairwise(offsets)]


@compiled
@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("pooling", ["sum", "mean"])
@pytest.mark.parametrize("dynamic", [False, True, "shared"])
def test_places_hold_the_bags_of_the_long_way(tmp_path, monkeypatch, even, pooling, dynamic):
    write(tmp_path / "a.parquet", 600, 1, even)
    found = {}
    for way in ("places", "sizes", "long"):
        with monkeypatch.context() as patch:
            if way == "sizes":
                patch.setattr(capacities, "LEAST_EXAMPLES", 10**9)
            if way == "long":
                by_columns(patch)
            program = runs.Program.of(config(tmp_path / "a.parquet", pooling, dynamic))
            pipeline = configs.train_pipeline(program.config, program.preparer())
            found[way] = [jax.device_get(prepared.feed.parts) for prepared in pipeline]
    stacks = {stack.name: stack.num_rows for stack in program.embedder.stacks}
    for places, sizes, long in zip(found["places"], found["sizes"], found["long"], strict=True):
        for name, rows in stacks.items():
            own = places.packed.lookups[name]
            if len(places.columns["label"]) == 256:
                assert len(own.ids) == 256 * 25
                assert own.num_bags == 256 * 4
            expected = bags_of(long.packed, name, rows)
            assert bags_of(places.packed, name, rows) == bags_of(sizes.packed, name, rows) == expected
        jax.tree.map(np.testing.assert_array_equal, places.columns, long.columns)


@compiled
def test_training_with_places_gives_the_bits_of_training_without(tmp_path, monkeypatch):
    write(tmp_path / "a.parquet", 900, 2, even=False)
    with_places = runs.train(config(tmp_path / "a.parquet", "sum"), stream=io.StringIO())
    monkeypatch.setattr(capacities, "LEAST_EXAMPLES", 10**9)
    without = runs.train(config(tmp_path / "a.parquet", "sum"), stream=io.StringIO())
    jax.tree.map(np.testing.assert_array_equal, with_places.state, without.state)


@compiled
def test_an_id_outside_its_table_is_an_error_with_its_place(tmp_path):
    """The long way explains it."""
    table = pa.table(
        {
            "label": np.zeros(600, np.float32),
            "few": pa.array([[1, 2]] * 600, pa.list_(pa.int32())),
            "one": np.zeros(600, np.int32),
            "single": pa.array([[1]] * 600, pa.list_(pa.int32())),
            "many": pa.array([[1, 2]] * 599 + [[1, 99]], pa.list_(pa.int32())),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(Exception, match=r"row 599, column 'many': id 99 is outside 0 to 39"):
        runs.train(config(tmp_path / "a.parquet", "sum"), stream=io.StringIO())


@compiled
def test_batches_of_several_pieces_are_written_whole():
    rows, pieces, places = 500, (300, 37, 163), 51
    rng = np.random.default_rng(0)
    words = np.full((rows, 2), [places - 1, 1], np.int32)
    words[7] = [3, 0]
    lengths = words.sum(axis=1)
    tail = feed.Tail(
        feed.pool.empty((int(lengths.sum()),), np.int32), np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    )
    tail.words[:] = rng.integers(0, 100, len(tail.words))
    order = rng.permutation(rows).astype(np.int64)
    field = feed.Field(word=0, bag=0, start=5, limit=90, ignores=True, combiner="sum", places=places - 1)
    fields = [field, field._replace(word=1, bag=1, start=500, places=1)]
    packed = feed.Packed(fields, spare=999, examples=rows, capacity=rows * places, ids=16)
    filling = feed.Filling(2, [(0, 1, False), (1, 1, False)], [packed], [], 16 + rows * places)
    begins = np.cumsum([0, *pieces])
    batch = [feed.Rows(words, order, int(begin), size, *tail) for begin, size in zip(begins, pieces, strict=False)]
    buffer = feed.pool.empty((1, 16 + rows * places), np.int32)
    assert filling.fill([batch], buffer)
    expected = np.full((rows, places), 999)
    for at, row in enumerate(order):
        own = tail.words[tail.starts[row] : tail.starts[row + 1]]
        many, one = own[: words[row, 0]], own[words[row, 0] :]
        expected[at, : len(many)] = np.where(many < 90, many + 5, 999)
        expected[at, places - 1 : places - 1 + len(one)] = np.where(one < 90, one + 500, 999)
    np.testing.assert_array_equal(buffer[0, 16:].reshape(rows, places), expected)
    too_long = [field._replace(places=2), fields[1]]
    short = feed.Filling(
        2, [(0, 1, False), (1, 1, False)], [packed._replace(fields=too_long, capacity=rows * 3)], [], 16 + rows * 3
    )
    assert not short.fill([batch], buffer)
    strict = feed.Filling(
        2,
        [(0, 1, False), (1, 1, False)],
        [packed._replace(fields=[field._replace(ignores=False), fields[1]])],
        [],
        16 + rows * places,
    )
    assert not strict.fill([batch], buffer)
