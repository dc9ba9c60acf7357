"""``train.pipeline: stale``: a step looks rows up before the update of the step before it, and nothing else differs."""

import io
import itertools
import re

import jax
import numpy as np
import optax
import pytest

from sparrow import runs
from sparrow.config import ConfigError, train_pipeline
from sparrow.planning.sizes import step_memory
from sparrow.runs.step.program import Program
from sparrow.runs.step.step import lowered_step
from tests.runs.cases import case

STEPS = 5
STALE = ("train.pipeline=stale", "train.batch_size=32", f"train.steps={STEPS}", "evaluate={steps: 1}")


def run(folder, *overrides, **options):
    stream = io.StringIO()
    return runs.train(case(*STALE, *overrides), folder, stream=stream, **options), stream.getvalue()


def numbers(emb, embedding, params):
    """Tables, slots and dense parameters."""
    held = [[emb.table(embedding, name), emb.slots(embedding, name)] for name in emb.tables]
    return [np.asarray(leaf) for leaf in jax.tree.leaves([held, params])]


def of_run(trained):
    state = trained.state.optimizer
    return numbers(trained.program.embedder, state.embedding, state.params)


def delayed(config):
    """The algorithm, plainly: the tables that a step reads lack the last update, the ones that it changes do not."""
    program = Program.of(config)
    pipeline = train_pipeline(config)
    pipeline.prepare = program.preparer(use="train")
    emb, state, tx = program.embedder, program.init(), program.optimizer.tx
    params, dense, rest = state.optimizer.params, state.optimizer.dense, state.rest
    seen = embedding = state.optimizer.embedding
    for prepared in itertools.islice(pipeline, STEPS):
        feed, acts = prepared.feed, emb.lookup(seen, prepared.feed.packed)
        seen = embedding

        def loss(params, acts, rest=rest, feed=feed):
            total, (_, _, after) = program.loss(params, acts, rest, feed)
            return total, after

        (of_params, of_acts), rest = jax.grad(loss, argnums=(0, 1), has_aux=True)(params, acts)
        updates, dense = tx.update(of_params, dense, params)
        params = optax.apply_updates(params, updates)
        embedding = emb.update(embedding, feed.packed, of_acts)
    return numbers(emb, embedding, params)


@pytest.fixture(scope="module")
def stale(tmp_path_factory):
    return run(tmp_path_factory.mktemp("stale") / "run")


def test_the_lookup_is_one_update_late(stale):
    for a, b in zip(of_run(stale[0]), delayed(case(*STALE)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert "train.pipeline is stale" in stale[1]


def test_an_exact_run_differs(stale):
    exact, _ = run(None, "train.pipeline=exact")
    gaps = [np.abs(a - b).max() for a, b in zip(of_run(stale[0]), of_run(exact), strict=True)]
    assert max(gaps) > 1e-3


def test_a_resumed_run_has_the_same_bits(stale, tmp_path):
    run(tmp_path, "train.steps=3")
    again, _ = run(tmp_path, resume=True)
    for a, b in zip(of_run(stale[0]), of_run(again), strict=True):
        np.testing.assert_array_equal(a, b)


def test_several_steps_of_a_call_are_refused():
    with pytest.raises(ConfigError, match=r"train\.steps_per_call: cannot be used with train\.pipeline: stale"):
        Program.of(case("train.pipeline=stale", "train.steps_per_call=2"))


def test_the_plan_counts_the_activations_of_the_next_step():
    def work(pipeline):
        config = case(f"train.pipeline={pipeline}", "train.batch_size=256", "data.evaluate=null")
        program, batches = Program.of(config), train_pipeline(config)
        batches.prepare = program.preparer(use="train")
        return step_memory(program, jax.eval_shape(program.init), (next(iter(batches)).feed,))

    activations = 3 * 256 * 4 * 4  # features, examples, dim, bytes
    assert work("stale") >= work("exact") + activations


def test_tables_are_updated_in_place():
    """Though rows of the next step are looked up in them, too."""
    config = case("train.pipeline=stale", "train.batch_size=32", "data.evaluate=null")
    program, batches = Program.of(config), train_pipeline(config)
    batches.prepare = program.preparer(use="train")
    step = lowered_step(program, jax.eval_shape(program.init), (next(iter(batches)).feed,)).compile().as_text()
    (stack,) = [stack for stack in program.embedder.stacks if stack.dim == 4]
    shape = re.escape(f"f32[{stack.num_rows},4]")
    assert re.search(shape, step)
    assert not re.search(rf"= {shape}\S* copy\(", step)
