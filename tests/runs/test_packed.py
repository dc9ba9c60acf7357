"""The state between steps as few arrays, as on a GPU: the same, whatever the steps of a call, also after a stop."""

import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparrow import runs
from sparrow.runs.step import packed, step
from tests.runs.cases import case
from tests.runs.test_training import assert_same_bits

RICH = ("train.ema=0.9", "model.architecture.deep={hidden_units: [8], dropout_ratio: 0.5, use_bn: true}")


@pytest.fixture(autouse=True)
def packing(monkeypatch):
    monkeypatch.setattr(step, "packs", lambda embedder: True)


def trained(folder=None, *overrides, **options):
    config = case(*RICH, "train.steps=7", "train.log_every_steps=3", "data.evaluate=null", *overrides)
    return runs.train(config, folder, stream=io.StringIO(), **options)


def test_a_packed_state_holds_each_value():
    state = runs.Program.of(case(*RICH)).init()
    held = packed.PackedState.of(state)
    assert len(jax.tree.leaves(held)) < len(jax.tree.leaves(state)) / 3
    assert_same_bits(held.opened(), state)
    assert_same_bits(jax.jit(packed.opened)(held), state)


def test_tables_and_large_arrays_are_not_copied(monkeypatch):
    monkeypatch.setattr(packed, "SMALL", 64)
    state = runs.Program.of(case(*RICH)).init()
    opened = packed.PackedState.of(state).opened()
    assert_same_bits(opened, state)
    for name, table in state.optimizer.embedding.tables.items():
        assert opened.optimizer.embedding.tables[name] is table
    kept = [own is leaf for own, leaf in zip(*map(jax.tree.leaves, (opened, state)), strict=True) if leaf.size > 16]
    assert all(kept)


def test_steps_of_one_call_have_the_bits_of_single_ones(monkeypatch):
    one, several = trained(), trained(None, "train.steps_per_call=3")
    assert_same_bits(one.state, several.state)
    monkeypatch.setattr(step, "packs", lambda embedder: False)
    for got, plain in zip(jax.tree.leaves(one.state), jax.tree.leaves(trained().state), strict=True):
        if not jnp.issubdtype(got.dtype, jax.dtypes.prng_key):
            np.testing.assert_allclose(got, plain, rtol=1e-4, atol=1e-6)


def test_a_run_that_goes_on_has_the_bits_of_one_that_never_stopped(tmp_path):
    trained(tmp_path, "train.steps=4")
    assert_same_bits(trained(tmp_path, resume=True).state, trained().state)
