"""Batches as one array: the same parts whichever way they were made."""

import jax
import numpy as np
import pytest

from sparrow import config as configs
from sparrow import runs
from sparrow.data import Tables
from sparrow.kernels import feed
from sparrow.runs.loop import feed as feeds
from sparrow.runs.loop.transfer import Arena, Buffers


def clicks(rows=100, missing=True):
    rng = np.random.default_rng(0)
    item = rng.integers(0, 50, rows).astype(object)
    if missing:
        item[::7] = None
    return Tables(
        {
            "item": item.tolist(),
            "user": rng.integers(0, 30, rows),
            "price": rng.random(rows),
            "label": rng.integers(0, 2, rows),
            "weight": rng.random(rows),
        },
        chunk_rows=30,
    )


def program():
    return configs.from_mapping(
        {
            "train": {
                "sparse_optimizer": {"name": "sgd", "learning_rate": 0.01},
                "dense_optimizer": {"optimizer": "sgd", "learning_rate": 0.001},
                "batch_size": 16,
                "epochs": 1,
            },
            "tasks": {"click": {"label": "label", "losses": ["binary_cross_entropy"], "sample_weight": "weight"}},
            "data": {
                "train": {"name": "parquet", "path": "unused"},
                "features": [
                    {"kind": "id", "name": "item", "num_buckets": 50, "embedding_dim": 4},
                    {"kind": "id", "name": "user", "hash_bucket_size": 20, "embedding_dim": 4},
                    {"kind": "raw", "name": "price", "log": True},
                ],
            },
            "model": {
                "architecture": {"name": "deepfm", "deep": {"hidden_units": [4]}},
                "groups": {"wide": ["item", "user"], "deep": ["item", "user", "price"]},
            },
        }
    )


def parts(monkeypatch, at_once):
    from sparrow.config.building import assemble

    if not at_once:
        monkeypatch.setattr(feeds.Preparer, "at_once", lambda *_: None)
    config = program()
    made = runs.Program.of(config)
    preparer = made.preparer()
    pipeline = assemble._pipeline(config, clicks(), preparer, batch_size=16, shuffle_rows=20)
    used = []
    fill = feeds.Recipe.fill
    monkeypatch.setattr(feeds.Recipe, "fill", lambda *arguments: used.append(1) or fill(*arguments))
    found = [jax.device_get(prepared.feed.parts) for prepared in pipeline]
    assert bool(used) == at_once
    return found


@pytest.mark.skipif(feed.unavailable() is not None, reason="the recipe is compiled code's")
def test_a_recipe_gives_what_the_long_way_gives(monkeypatch):
    with monkeypatch.context() as patch:
        ours = parts(patch, at_once=True)
    with monkeypatch.context() as patch:
        theirs = parts(patch, at_once=False)
    assert len(ours) == len(theirs) == 7
    for a, b in zip(ours, theirs, strict=True):
        assert jax.tree.structure(a) == jax.tree.structure(b)
        jax.tree.map(np.testing.assert_array_equal, a, b)


def test_any_tree_goes_and_comes_back():
    arena = Arena(32)
    mine = arena.empty(5, np.int32)
    mine[:] = np.arange(5)
    shared = np.linspace(0, 1, 7, dtype=np.float32)
    tree = {"mine": mine, "a": shared, "b": shared, "wide": np.arange(40, dtype=np.int32).reshape(8, 5)[:, 1:3]}
    buffer, layout = Buffers().send(arena, tree)
    assert buffer.ndim == 1
    back = jax.jit(layout.split)(buffer)
    jax.tree.map(np.testing.assert_array_equal, back, tree)
    places = dict(
        zip(
            jax.tree.leaves(jax.tree.unflatten(layout.structure, ["a", "b", "mine", "wide"])),
            layout.places,
            strict=True,
        )
    )
    assert places["a"] == places["b"]
