"""Batches as one array: the same parts whichever way they were made."""

import concurrent.futures
import dataclasses
import time

import jax
import numpy as np
import pytest

from sparrow import config as configs
from sparrow import runs
from sparrow.config.building import assemble
from sparrow.data import Tables
from sparrow.feed import Preparer
from sparrow.feed.outgoing import Outgoing
from sparrow.feed.preparer import MOST_TOGETHER
from sparrow.kernels import feed
from tests.feed.ways import by_columns


def clicks(rows=100, lists=False):
    rng = np.random.default_rng(0)
    item = rng.integers(0, 50, rows).astype(object)
    item[::7] = None
    columns = {
        "item": item.tolist(),
        "user": rng.integers(0, 30, rows),
        "price": rng.random(rows),
        "label": rng.integers(0, 2, rows),
        "weight": rng.random(rows),
    }
    if lists:
        columns["seen"] = [rng.integers(0, 40, n).tolist() for n in rng.integers(0, 6, rows)]
        columns["tags"] = ["|".join(f"{tag}:{tag / 4}" for tag in range(n)) for n in rng.integers(0, 3, rows)]
    return Tables(columns, chunk_rows=30)


def program(lists, task, dynamic=False):
    item, user, buckets, tags = (
        ({"dynamic": {"rows": 64}},) * 4
        if dynamic
        else ({"num_buckets": 50}, {"hash_bucket_size": 20}, {"num_buckets": 40}, {"hash_bucket_size": 9})
    )
    bags = [
        {"kind": "id", "name": "seen", **buckets, "embedding_dim": 4, "pooling": "mean"},
        {
            **{"kind": "id", "name": "tags", **tags, "embedding_dim": 4, "pooling": "sum"},
            **{"separator": "|", "weight_separator": ":"},
        },
    ]
    names = ["item", "user", *(["seen", "tags"] if lists else [])]
    return configs.from_mapping(
        {
            "train": {
                "sparse_optimizer": {"name": "sgd", "learning_rate": 0.01},
                "dense_optimizer": {"optimizer": "sgd", "learning_rate": 0.001},
                "batch_size": 16,
                "epochs": 1,
            },
            "tasks": {"click": {"label": "label", "sample_weight": "weight", **task}},
            "data": {
                "train": {"name": "parquet", "path": "unused"},
                "features": [
                    {"kind": "id", "name": "item", **item, "embedding_dim": 4},
                    {"kind": "id", "name": "user", **user, "embedding_dim": 4},
                    {"kind": "raw", "name": "price", "log": True},
                    *(bags if lists else []),
                ],
            },
            "model": {
                "architecture": {"name": "deepfm", "deep": {"hidden_units": [4]}},
                "groups": {"wide": names, "deep": [*names, "price"]},
            },
        }
    )


def pipeline_of(config, preparer, lists=False):
    options = {"batch_size": 16, "shuffle_rows": 20, "is_training": True}
    made = assemble._pipeline(config, clicks(lists=lists), preparer, None, **options)
    made.threads = 3
    return made


def batches(monkeypatch, lists, task, by_rows, together=1, shares=False, dynamic=False):
    """All batches of an epoch, as the device has them, and the sizes after each."""
    if not by_rows:
        by_columns(monkeypatch)
    monkeypatch.setattr(Preparer, "together", lambda *_: together)
    config = program(lists, task, dynamic)
    preparer = runs.Program.of(config).preparer()
    preparer.shares_transfers = shares
    pipeline = pipeline_of(config, preparer, lists)
    found = []
    for prepared in pipeline:
        assert (prepared.feed.slot is not None) == (together > 1 and shares)
        found.append((jax.device_get(prepared.feed.parts), prepared.feed.size, prepared.learned, pipeline.position()))
    return found


@pytest.mark.skipif(feed.unavailable() is not None, reason="rows are compiled code's")
@pytest.mark.parametrize(
    ("lists", "together", "shares", "task"),
    [
        (False, 1, False, {"losses": ["binary_cross_entropy"]}),
        (False, 3, False, {"losses": ["binary_cross_entropy"]}),
        (False, 3, True, {"losses": ["binary_cross_entropy"]}),
        (True, 1, False, {"losses": ["binary_cross_entropy"]}),
        (True, 3, False, {"losses": ["binary_cross_entropy"]}),
        (True, 3, True, {"losses": ["binary_cross_entropy"]}),
        (False, 3, True, {"losses": [{"name": "jrc", "session_name": "user"}], "train_metrics": []}),
        (True, 1, False, {"losses": ["softmax_cross_entropy"]}),
    ],
)
@pytest.mark.parametrize("dynamic", [False, True])
def test_rows_and_columns_give_the_same_batches(monkeypatch, lists, together, shares, task, dynamic):
    with monkeypatch.context() as patch:
        patch.setattr(feed.ColumnFilling, "fill", lambda *_: pytest.fail("ids came as columns"))
        ours = batches(patch, lists, task, by_rows=True, together=together, shares=shares, dynamic=dynamic)
    with monkeypatch.context() as patch:
        theirs = batches(patch, lists, task, by_rows=False, dynamic=dynamic)
    assert len(ours) == len(theirs) == 7
    for (a, *of_a), (b, *of_b) in zip(ours, theirs, strict=True):
        assert of_a == of_b
        assert jax.tree.structure(a) == jax.tree.structure(b)
        jax.tree.map(np.testing.assert_array_equal, a, b)


BINARY = {"losses": ["binary_cross_entropy"]}


@pytest.mark.skipif(feed.unavailable() is not None, reason="batches that go together are compiled code's")
def test_small_batches_go_together_and_keep_their_memory():
    config = program(False, BINARY)
    preparer = runs.Program.of(config).preparer()
    pipeline = pipeline_of(config, preparer)
    layout = pipeline.converter.layout
    assert preparer.together(16, layout) == MOST_TOGETHER
    assert preparer.together(2**16, layout) == 2
    assert preparer.together(2**20, layout) == 1
    assert preparer.together(4, dataclasses.replace(layout, width=2**18)) == 4  # rows of a MiB
    with_bags = pipeline_of(program(True, BINARY), preparer, lists=True)
    assert preparer.together(16, with_bags.converter.layout) == MOST_TOGETHER
    assert preparer.together(2**16, dataclasses.replace(with_bags.converter.layout, width=2**6)) == 1  # rows of 16 MiB
    held = [(prepared.feed, jax.tree.map(np.array, prepared.feed.parts)) for prepared in pipeline]
    assert len(held) == 7
    if jax.default_backend() == "cpu":  # slots of one buffer, without a copy
        begins = {int(one.buffer.unsafe_buffer_pointer()) - i * one.nbytes for i, (one, _) in enumerate(held[:6])}
        assert len(begins) == 1
    list(pipeline)  # takes memory again
    for one, expected in held:
        jax.tree.map(np.testing.assert_array_equal, jax.tree.unflatten(*jax.tree.flatten(one)[::-1]).parts, expected)


class Client:
    """Maps memory, but not more than some pieces."""

    def __init__(self, most=8):
        self.mapped, self.calls, self.most = {}, 0, most

    def dma_map(self, address, size):
        self.calls += 1
        if len(self.mapped) == self.most:
            raise jax.errors.JaxRuntimeError("too much is pinned")
        assert address not in self.mapped
        self.mapped[address] = size

    def dma_unmap(self, address):
        others = [feed.pool.empty((self.mapped[address],), np.uint8) for _ in range(2)]
        assert address not in [feed.address(one) for one in others], "given to another one before it is unmapped"
        del self.mapped[address]


def test_mapped_memory_is_lent_again_once_nothing_refers_to_it():
    client = Client()
    outgoing = Outgoing(client)
    first, second = outgoing.empty((2, 2**15)), outgoing.empty((2, 2**15))
    assert client.mapped == {feed.address(one): one.nbytes for one in (first, second)}
    assert outgoing.empty((4,)).shape == (4,)  # too small
    kept, address = first[1:], feed.address(first)
    del first
    assert feed.address(outgoing.empty((2, 2**15))) != address
    del kept
    assert feed.address(outgoing.empty((2, 2**15))) == address
    assert client.calls == 3
    outgoing.empty((2, 2**16))  # batches have grown: what is idle is unmapped
    assert sorted(client.mapped.values()) == [2**18, 2**19]
    del outgoing
    assert len(client.mapped) == 2  # `second` is still on its way
    del second
    assert not client.mapped


def test_batches_are_copied_where_memory_cannot_be_mapped():
    client = Client(most=1)
    outgoing = Outgoing(client)
    held = [outgoing.empty((2**15,)) for _ in range(3)]
    assert len({feed.address(one) for one in held}) == 3
    assert client.calls == 2
    assert Outgoing(object()).empty((2**15,)).dtype == np.int32  # a JAX without the function


def test_threads_agree_on_the_numbers_of_batches_that_go_together(monkeypatch):
    preparer, put = runs.Program.of(program(False, BINARY)).preparer(), jax.device_put

    def slow(value):
        time.sleep(0.005)  # another thread runs here
        return put(value)

    monkeypatch.setattr(jax, "device_put", slow)
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        for numbers in threads.map(preparer._numbers, [3, 3, 3, 3]):
            assert [int(number) for number in numbers] == [0, 1, 2]
    assert [int(number) for number in preparer._numbers(3)] == [0, 1, 2]


def test_the_loop_makes_no_batches_where_a_device_would_be_idle(monkeypatch):
    made = runs.Program.of(program(False, BINARY))
    for backend, only_waits in (("cpu", False), ("gpu", True)):
        monkeypatch.setattr(jax, "default_backend", lambda backend=backend: backend)
        assert made.preparer().loop_only_waits is only_waits


def test_any_tree_goes_and_comes_back():
    shared = np.linspace(0, 1, 7, dtype=np.float32)
    tree = {"a": shared, "b": shared, "wide": np.arange(40, dtype=np.int32).reshape(8, 5)[:, 1:3]}
    buffer, layout = feed.joined(tree)
    assert buffer.ndim == 1
    back = jax.jit(layout.split)(buffer)
    jax.tree.map(np.testing.assert_array_equal, back, tree)
    jax.tree.map(np.testing.assert_array_equal, layout.views(buffer), tree)
    places = layout.map(lambda leaf: leaf)
    assert places["a"] == places["b"] != places["wide"]
