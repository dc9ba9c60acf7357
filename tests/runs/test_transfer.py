"""Batches as one array: the same parts whichever way they were made."""

import jax
import numpy as np
import pytest

from sparrow import config as configs
from sparrow import runs
from sparrow.data import Tables
from sparrow.kernels import feed
from sparrow.runs.loop import preparer as preparers
from sparrow.runs.loop.transfer import Arena


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


def program(lists, task):
    bags = [
        {"kind": "id", "name": "seen", "num_buckets": 40, "embedding_dim": 4, "pooling": "mean"},
        {
            **{"kind": "id", "name": "tags", "hash_bucket_size": 9, "embedding_dim": 4, "pooling": "sum"},
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
                    {"kind": "id", "name": "item", "num_buckets": 50, "embedding_dim": 4},
                    {"kind": "id", "name": "user", "hash_bucket_size": 20, "embedding_dim": 4},
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


def batches(monkeypatch, lists, task, by_recipe, together=1):
    """All batches of an epoch, as the device has them, and the sizes after each."""
    from sparrow.config.building import assemble

    if not by_recipe:
        monkeypatch.setattr(preparers.Preparer, "_recipe", lambda *_: None)
    monkeypatch.setattr(preparers.Preparer, "together", lambda *_: together)
    config = program(lists, task)
    preparer = runs.Program.of(config).preparer()
    pipeline = assemble._pipeline(
        config, clicks(lists=lists), preparer, batch_size=16, shuffle_rows=20, is_training=True
    )
    pipeline.threads = 3
    found = []
    for prepared in pipeline:
        assert (prepared.feed.slot is not None) == (together > 1)
        found.append((jax.device_get(prepared.feed.parts), prepared.feed.size, prepared.learned, pipeline.position()))
    return found


@pytest.mark.skipif(feed.unavailable() is not None, reason="the recipe is compiled code's")
@pytest.mark.parametrize(
    ("lists", "together", "task"),
    [
        (False, 1, {"losses": ["binary_cross_entropy"]}),
        (False, 3, {"losses": ["binary_cross_entropy"]}),
        (True, 1, {"losses": ["binary_cross_entropy"]}),
        (False, 3, {"losses": [{"name": "jrc", "session_name": "user"}], "train_metrics": []}),
        (True, 1, {"losses": ["softmax_cross_entropy"]}),
    ],
)
def test_a_recipe_gives_what_the_long_way_gives(monkeypatch, lists, together, task):
    with monkeypatch.context() as patch:
        patch.setattr(preparers.Preparer, "route", lambda *_: pytest.fail("a batch took the long way"))
        ours = batches(patch, lists, task, by_recipe=True, together=together)
    with monkeypatch.context() as patch:
        theirs = batches(patch, lists, task, by_recipe=False)
    assert len(ours) == len(theirs) == 7
    for (a, *of_a), (b, *of_b) in zip(ours, theirs, strict=True):
        assert of_a == of_b
        assert jax.tree.structure(a) == jax.tree.structure(b)
        jax.tree.map(np.testing.assert_array_equal, a, b)


def test_any_tree_goes_and_comes_back():
    arena = Arena(32)
    mine = arena.empty(5, np.int32)
    mine[:] = np.arange(5)
    shared = np.linspace(0, 1, 7, dtype=np.float32)
    tree = {"mine": mine, "a": shared, "b": shared, "wide": np.arange(40, dtype=np.int32).reshape(8, 5)[:, 1:3]}
    buffer, layout = arena.join(tree)
    assert buffer.ndim == 1
    back = jax.jit(layout.split)(buffer)
    jax.tree.map(np.testing.assert_array_equal, back, tree)
    jax.tree.map(np.testing.assert_array_equal, layout.views(buffer), tree)
    places = dict(
        zip(
            jax.tree.leaves(jax.tree.unflatten(layout.structure, ["a", "b", "mine", "wide"])),
            layout.places,
            strict=True,
        )
    )
    assert places["a"] == places["b"]
