"""Pipelines: order, epochs, exact positions, background work, malformed rows."""

import itertools
import json
import threading
import time

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparrow.background import prefetch
from sparrow.data import DataError, IdFeature, Label, Parquet, RawFeature, SequenceFeature, Tables
from sparrow.embedding import Ragged
from sparrow.feed import Cost
from tests.feed.pipelines import pipeline_of

ITEM = IdFeature("item", num_buckets=10_000, embedding_dim=4)
FEATURES = [
    ITEM,
    IdFeature("tags", hash_bucket_size=50, embedding_dim=4, weight_column="tag_weights"),
    SequenceFeature("seen", num_buckets=100, embedding_dim=4, max_length=3),
    RawFeature("price", log=True),
]


def table(rows=103, bad=()):
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 4, rows)
    items = np.arange(rows)
    items[list(bad)] = -5
    return pa.table(
        {
            "item": items,
            "tags": [[f"t{i}" for i in range(n)] for n in lengths],
            "tag_weights": [rng.random(n).tolist() for n in lengths],
            "seen": [rng.integers(0, 100, n).tolist() for n in lengths],
            "price": rng.random(rows),
            "click": rng.integers(0, 2, rows),
            "weight": rng.random(rows),
            "session": [f"s{i // 5}" for i in range(rows)],
        }
    )


def pipeline(source=None, features=FEATURES, **options):
    options = {"batch_size": 8, "labels": ["click"], "weights": ["weight"], "keys": ["session"]} | options
    return pipeline_of(Tables(table(), chunk_rows=10) if source is None else source, features, **options)


def plain(batch):
    """All that a batch holds, as comparable values."""
    parts = {}
    for part in ("ids", "numbers", "sequences", "labels", "weights", "keys"):
        for name, values in getattr(batch, part).items():
            if isinstance(values, Ragged):
                weights = None if values.weights is None else values.weights.tolist()
                parts[part, name] = (values.to_lists(), weights)
            else:
                parts[part, name] = values.tolist()
    return parts


def items(batches):
    return [item for batch in batches for item in batch.ids["item"].tolist()]


def test_in_order_without_shuffle():
    batches = list(pipeline())
    assert items(batches) == list(range(103))
    assert [len(batch) for batch in batches] == [8] * 12 + [7]
    assert [len(batch) for batch in pipeline(drop_remainder=True)] == [8] * 12


def test_every_part_stays_with_its_row():
    given = table().to_pydict()
    whole = next(iter(pipeline(batch_size=103)))
    by_item = {item: row for row, item in enumerate(whole.ids["item"].tolist())}
    for batch in pipeline(shuffle_rows=40, seed=3):
        tags, offsets = batch.ids["tags"], batch.ids["tags"].offsets
        for i, item in enumerate(batch.ids["item"].tolist()):
            row = by_item[item]
            assert batch.labels["click"][i] == given["click"][item]
            np.testing.assert_allclose(batch.weights["weight"][i], given["weight"][item], rtol=1e-6)
            np.testing.assert_allclose(tags.weights[offsets[i] : offsets[i + 1]], given["tag_weights"][item], rtol=1e-6)
            assert batch.keys["session"][i] == whole.keys["session"][row]
            assert batch.ids["seen"].to_lists()[i] == given["seen"][item]


def test_shuffle_is_seeded_complete_and_different_each_epoch():
    def epochs(**options):
        found = items(pipeline(epochs=2, shuffle_rows=25, **options))
        return found[:103], found[103:]

    first, second = epochs(seed=1)
    assert sorted(first) == sorted(second) == list(range(103))
    assert first != second
    assert first != list(range(103))
    assert (first, second) == epochs(seed=1)
    assert (first, second) == epochs(seed=1, ahead=0)
    assert epochs(seed=2)[0] != first


def test_shuffle_mixes_chunks():
    first_rows = items(pipeline(shuffle_rows=103))[:30]
    assert len({item // 10 for item in first_rows}) >= 8


@pytest.mark.parametrize("options", [{}, {"shuffle_rows": 25, "seed": 5}, {"drop_remainder": True, "shuffle_rows": 1}])
@pytest.mark.parametrize("batch_size", [8, 31])
def test_restoring_any_position_gives_the_same_next_batches(options, batch_size):
    options = options | {"epochs": 2, "batch_size": batch_size}
    source = Tables(table(103, bad=(4, 50)), chunk_rows=10)
    whole = pipeline(source, bad_rows="skip", ahead=0, **options)
    batches, positions, skipped = [], [json.dumps(whole.position())], [0]
    for batch in whole:
        batches.append(plain(batch))
        positions.append(json.dumps(whole.position()))
        skipped.append(whole.skipped)
    assert skipped[-1] == 4
    for i, position in enumerate(positions):
        again = pipeline(source, bad_rows="skip", ahead=0, **options)
        again.restore(json.loads(position))
        assert [plain(batch) for batch in again] == batches[i:]
        if i < len(batches):
            assert again.skipped == 4
        assert again.position() == whole.position()


@hypothesis.given(
    rows=st.integers(1, 40),
    chunk_rows=st.integers(1, 15),
    bad=st.sets(st.integers(0, 39)),
    options=st.fixed_dictionaries(
        {
            "batch_size": st.integers(1, 12),
            "shuffle_rows": st.integers(0, 20),
            "epochs": st.integers(1, 3),
            "seed": st.integers(0, 9),
        }
    ),
    stop=st.integers(0, 30),
)
@hypothesis.settings(max_examples=60, deadline=None)
def test_any_pipeline_visits_each_good_row_once_an_epoch_and_resumes(rows, chunk_rows, bad, options, stop):
    values = np.array([-1 if i in bad else i for i in range(rows)])
    hypothesis.assume((values >= 0).any())
    good = values[values >= 0].tolist()

    def make():
        source = Tables({"item": values}, chunk_rows=chunk_rows)
        return pipeline_of(source, [ITEM], bad_rows="skip", ahead=0, **options)

    whole = make()
    batches = [batch.ids["item"].tolist() for batch in whole]
    found = [item for batch in batches for item in batch]
    for epoch in range(options["epochs"]):
        own = found[epoch * len(good) : (epoch + 1) * len(good)]
        assert sorted(own) == good
        assert options["shuffle_rows"] or own == good
    assert whole.skipped == options["epochs"] * (rows - len(good))
    first = make()
    for _ in zip(range(stop), first, strict=False):
        pass
    second = make()
    second.restore(first.position())
    rest = [batch.ids["item"].tolist() for batch in second]
    assert rest == batches[min(first.position()["batches"], len(batches)) :]


def test_position_with_background_threads_is_that_of_the_batch_in_hand():
    ahead = pipeline(epochs=3, shuffle_rows=25, ahead=4)
    iterator = iter(ahead)
    for _ in range(5):
        next(iterator)
    position = ahead.position()
    following = [plain(batch) for batch in itertools.islice(iterator, 20)]
    iterator.close()
    again = pipeline(epochs=3, shuffle_rows=25)
    again.restore(position)
    assert [plain(batch) for batch in itertools.islice(iter(again), 20)] == following


def test_iterating_again_starts_again():
    once = pipeline()
    assert items(once) == items(once)
    assert once.position()["batches"] == 13


def test_no_end():
    endless = pipeline(epochs=None)
    assert len(list(itertools.islice(iter(endless), 50))) == 50
    assert endless.position()["epoch"] == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": 1}, "another seed (seed 0, here 1)"),
        ({"shuffle_rows": 9}, "another shuffle (shuffle_rows 0, here 9)"),
        ({"source": Tables(table(50), chunk_rows=10)}, "other data"),
    ],
)
def test_a_position_of_something_else_is_refused(options, message):
    position = pipeline().position()
    with pytest.raises(ValueError, match=message.replace("(", r"\(").replace(")", r"\)")):
        pipeline(**options).restore(position)
    with pytest.raises(ValueError, match="a data position holds epoch, chunk"):
        pipeline().restore({"epoch": 1})


def test_skip_counts_and_error_names():
    source = Tables(table(103, bad=(4, 50)), chunk_rows=10)
    skipping = pipeline(source, bad_rows="skip")
    assert items(skipping) == [i for i in range(103) if i not in (4, 50)]
    assert skipping.skipped == 2
    with pytest.raises(DataError, match=r"^table in memory, row 4, column 'item': id -5 is outside 0 to 9999"):
        list(pipeline(source))


def test_a_chunk_of_bad_rows_only():
    source = Tables(table(30, bad=range(10, 20)), chunk_rows=10)
    skipping = pipeline(source, bad_rows="skip", shuffle_rows=5)
    assert sorted(items(skipping)) == [*range(10), *range(20, 30)]
    assert skipping.skipped == 10


def test_parquet_gives_what_tables_give(tmp_path):
    pq.write_table(table().slice(0, 60), tmp_path / "a.parquet", row_group_size=10)
    pq.write_table(table().slice(60), tmp_path / "b.parquet", row_group_size=10)
    for options in ({}, {"shuffle_rows": 25}):
        from_files = [plain(batch) for batch in pipeline(Parquet(str(tmp_path)), **options)]
        assert from_files == [plain(batch) for batch in pipeline(**options)]


def test_prepare_runs_in_the_background():
    threads = set()

    def prepare(batch):
        threads.add(threading.current_thread().name)
        return len(batch)

    made = pipeline(prepare=prepare)
    made.waits.is_idle = lambda: False  # or the loop would help
    assert list(made) == [8] * 12 + [7]
    assert threads <= {f"sparrow-data-{number}" for number in range(8)}


def test_an_error_in_prepare_arrives():
    def prepare(batch):
        raise RuntimeError("cannot pack")

    with pytest.raises(RuntimeError, match="cannot pack"):
        list(pipeline(prepare=prepare))


def test_threads_end_when_the_loop_breaks():
    before = set(threading.enumerate())  # garbage of tests before may hold threads
    for _ in pipeline(epochs=None, ahead=3):
        break
    deadline = time.monotonic() + 60
    while any(thread.name.startswith("sparrow-data") for thread in set(threading.enumerate()) - before):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_prefetch_makes_items_ahead():
    made = []

    def numbers():
        for i in range(10):
            made.append(i)
            yield i

    ahead = prefetch(numbers, 3, name="numbers", end=lambda thread, _: thread.join())
    next(ahead)
    deadline = time.monotonic() + 60
    while len(made) < 5:  # one in hand, three that wait, one that waits for room
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.05)
    assert len(made) == 5
    assert list(ahead) == list(range(1, 10))


def test_what_is_no_feature_is_refused():
    with pytest.raises(TypeError, match=r"features must be records such as sparrow.data.IdFeature, got 'item'"):
        pipeline(features=["item"])


def test_labels_and_keys():
    source = Tables({"item": [1, 2], "rating": ["3", "4.5"], "user": [2**40, -1]})
    made = list(
        pipeline(source, [ITEM], labels=[Label("liked", "rating", at_least=4), "rating"], weights=(), keys=["user"])
    )
    assert made[0].labels["liked"].tolist() == [0.0, 1.0]
    assert made[0].labels["rating"].tolist() == [3.0, 4.5]
    assert made[0].keys["user"].tolist() == [2**40, -1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size must be an integer of at least 1, got 0"),
        ({"epochs": 0}, "epochs must be an integer of at least 1, got 0"),
        ({"bad_rows": "ignore"}, "bad_rows must be 'error' or 'skip', got 'ignore'"),
        ({"labels": "click"}, "labels must be a list of columns, got the string 'click'"),
        ({"features": [ITEM, ITEM]}, "two features are called 'item'"),
        ({"labels": ["click", Label("click", "price")]}, "two labels are called 'click'"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(ValueError, match=message):
        pipeline(**options)


@pytest.mark.parametrize(("limit", "shuffle_rows"), [(0.4, 0), (2.5, 0), (2.5, 30), (100.0, 0)])
def test_batches_by_cost(limit, shuffle_rows):
    """Greedy batches over the order of rows; one row at least, batch_size rows at most; the same after a restore."""
    cost = {"cost": Cost("weight", limit), "shuffle_rows": shuffle_rows, "epochs": 2}
    order = [batch.weights["weight"][0] for batch in pipeline(**{**cost, "cost": None}, batch_size=1)]
    expected, held = [], []
    for place, weight in enumerate(order):
        full = held and (len(held) == 8 or sum(map(float, held)) + float(weight) > limit)
        if full or place == len(order) // 2:
            expected.append(held)
            held = []
        held.append(weight)
    made, positions = [], []
    batches = pipeline(**cost)
    for batch in batches:
        made.append(batch.weights["weight"].tolist())
        positions.append(batches.position())
    assert made == [list(map(float, rows)) for rows in [*expected, held]]
    later = pipeline(**cost)
    later.restore(positions[5])
    assert [batch.weights["weight"].tolist() for batch in later] == made[6:]
