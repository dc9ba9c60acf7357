"""States of histories: candidates and new events after a recorded history are as if all were computed together."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from sparrow import models
from sparrow.models import Sequence
from sparrow.models.sequences.states import flat_states, recorded, states_of_flat
from tests.models import test_hstu_ranker as ranker
from tests.models.cases_sequences import SEQUENCES
from tests.models.plain import Case

HISTORY = ("clicks", "kinds", "when", "acted", "watched")
STU = {"embedding_dim": 6, "num_heads": 2, "hidden_dim": 3, "attention_dim": 2, "scaling_seqlen": 9}
STU |= {"attn_num_layers": 2, "num_position_buckets": 3}
TASKS = [{"task": "click", "mlp": {"hidden_units": [3]}}, {"task": "like", "num_classes": 2}]
ITEMS = {"item_tower": {"input": "items"}}


def cases():
    held = {case.name: case for case in SEQUENCES}
    timed = held["dlrm_hstu"]
    yield dataclasses.replace(timed, groups={k: v for k, v in timed.groups.items() if k != "contextual"})
    yield from (held[name] for name in ("dlrm_hstu_plain", "hstu_match", "sasrec", "hstu_ranker"))
    channels = {"near": {"max_attn_len": 1}, "semi_local": {"sla_k1": 2, "sla_k2": 1}}
    for name, options in channels.items():
        record = {"name": "hstu_ranker", "channels": [{"stu": {**STU, **options}}], "task_towers": TASKS}
        yield Case(f"ranker_{name}", record, {"uih": ["clicks"], "candidate": ["item"]}, None)
    groups = {"uih": ["clicks"], "candidate": ["item"], "contextual": ["user"]}
    yield Case("dlrm_context", {"name": "dlrm_hstu", "hstu": STU, "task_towers": TASKS}, groups, None)
    groups = {"uih": ["clicks"], "kinds": ["kinds"], "candidate": ["item"], "contextual": ["user", "shop"]}
    record = {"name": "hstu_ranker", "channels": [{"stu": STU}, {"stu": STU, "name": "kinds"}], "task_towers": TASKS}
    yield Case("ranker_context", record, groups, None)
    record = {"name": "hstu_retriever", "channel": {"stu": STU}, "output_dim": 3, **ITEMS}
    yield Case("retriever", record, {"uih": ["clicks"], "items": ["item"]}, None)


ALL = list(cases())
APPENDED = [case for case in ALL if case.name != "ranker_context"]


def cut(given, begin, end):
    """The elements of histories from ``begin`` to ``end``, (batch,)."""
    made = dict(given)
    for name in given.keys() & set(HISTORY):
        x = given[name]
        place = jnp.minimum(begin[:, None] + jnp.arange(x.values.shape[1]), x.values.shape[1] - 1)
        values = jnp.take_along_axis(jnp.asarray(x.values), place[..., None], axis=1)
        made[name] = Sequence(values, jnp.clip(jnp.minimum(end, x.lengths) - begin, 0))
    return made


def through_flat(states):
    return states_of_flat(flat_states(states), [state.held.shape[1:] for state in states])


@functools.cache
def compiled(name):
    """Functions of a case's batch, compiled: its predictions, and these with the states of histories cut anywhere."""
    (case,) = [case for case in ALL if case.name == name]
    apply, params = case.functional()
    params = jax.tree.map(jnp.asarray, params)

    @jax.jit
    def run(acts, numbers, begin, end, past):
        with recorded(past) as recorder:
            made = apply.predict(params, {}, cut(acts, begin, end), cut(numbers, begin, end))
        return made, through_flat(recorder.known)

    return jax.jit(lambda *given: apply.predict(params, {}, *given)), run


def outputs(case, begin, end, past=None):
    return compiled(case.name)[1](*case.batch(), begin, end, past)


def close(a, b, rows=slice(None)):
    for name in a.keys() - {"item"}:
        np.testing.assert_allclose(a[name][rows], b[name][rows], rtol=2e-5, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("case", ALL, ids=str)
def test_candidates_read_a_state_as_they_read_the_history(case):
    acts, numbers = case.batch()
    lengths = np.asarray(acts["clicks"].lengths)
    complete = compiled(case.name)[0](acts, numbers)
    made, states = outputs(case, np.zeros_like(lengths), lengths)
    for name, array in complete.items():
        np.testing.assert_array_equal(array, made[name])  # recording changes nothing
    if "query" in complete:
        return
    later, _ = outputs(case, lengths, lengths, states)
    close(complete, later)
    assert not np.allclose(complete["click"], outputs(case, lengths, lengths)[0]["click"], atol=1e-3)


@pytest.mark.parametrize("case", APPENDED, ids=str)
def test_appended_events_are_as_if_they_had_been_there(case):
    lengths = np.asarray(case.batch()[0]["clicks"].lengths)
    complete, expected = outputs(case, np.zeros_like(lengths), lengths)
    one, two = lengths // 3, np.maximum(lengths - 1, 0)
    _, states = outputs(case, np.zeros_like(lengths), one)
    _, states = outputs(case, one, two, states)
    made, states = outputs(case, two, lengths, states)
    close(complete, made, lengths > 0)
    for a, b in zip(states, expected, strict=True):
        np.testing.assert_array_equal(a.lengths, b.lengths)
        np.testing.assert_allclose(a.held, b.held, rtol=2e-5, atol=2e-5)


def test_several_candidates_of_a_model_of_one():
    (case,) = [case for case in ALL if case.name == "hstu_ranker"]
    acts, numbers = case.batch()
    lengths = np.asarray(acts["clicks"].lengths)
    predict, run = compiled(case.name)
    items = jnp.stack([acts["item"], 2 * acts["item"], -acts["item"]], axis=1)
    several = {**acts, "item": Sequence(items, jnp.full(len(lengths), 3))}
    _, states = outputs(case, np.zeros_like(lengths), lengths)
    together, _ = run(several, {}, lengths, lengths, states)
    for place in range(3):
        alone = predict({**acts, "item": items[:, place]}, numbers)
        close(alone, {name: together[name][:, place] for name in alone})


def test_models_whose_states_depend_on_the_request():
    made = {name: ranker.build(*options) for name, options in ranker.CASES.items() if name in ("plain", "times", "cut")}
    assert made["plain"].why_no_states is None
    assert "'contextual' attends to all" in made["plain"].why_no_append
    assert "num_time_buckets" in made["times"].why_no_states
    assert "truncation_split_layer" in made["cut"].why_no_states
    (timed,) = [case for case in SEQUENCES if case.name == "dlrm_hstu"]
    model = models.registry.from_dict(timed.record).build(timed.inputs(), rngs=nnx.Rngs(0))
    assert "has the time of the first candidate" in model.why_no_states
