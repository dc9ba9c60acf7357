"""Losses of several candidates equal those of rows without padding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparrow.config import Task
from sparrow.data import CANDIDATES
from sparrow.tasks import predictions, total_loss

COUNTS = np.array([3, 0, 2, 1])
ROWS = np.repeat(np.arange(4), COUNTS)
PLACES = np.concatenate([np.arange(count) for count in COUNTS])
TASKS = {
    "click": Task(label="clicked", losses=["binary_cross_entropy"], sample_weight="weight"),
    "like": Task(label="liked", losses=[{"name": "jrc", "session_name": "user"}], weight=0.5),
    "buy": Task(label="bought", losses=["binary_cross_entropy"], task_space_label="clicked", out_task_space_weight=0.0),
}


def padded(rng, *shape, padding=0.0):
    values = rng.normal(size=(4, 3, *shape)).astype(np.float32)
    values[np.arange(3) >= COUNTS[:, None]] = padding
    return values


def batch():
    rng = np.random.default_rng(0)
    outputs = {"click": padded(rng), "like": padded(rng, 2), "buy": padded(rng), CANDIDATES: COUNTS}
    columns = {name: (padded(rng) > 0).astype(np.float32) for name in ("clicked", "bought")}
    columns["liked"] = (padded(rng) > 0).astype(np.int32)
    return outputs, {**columns, "weight": rng.random(4).astype(np.float32), "user": np.array([0, 1, 0, 2])}


def test_padding_counts_nowhere():
    outputs, columns = batch()
    flat = {name: values[ROWS, PLACES] for name, values in outputs.items() if name != CANDIDATES}
    rows = {name: values[ROWS] if values.ndim == 1 else values[ROWS, PLACES] for name, values in columns.items()}
    expected, terms = total_loss(TASKS, flat, rows)
    found, own = jax.jit(lambda outputs, columns: total_loss(TASKS, outputs, columns))(outputs, columns)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    for task, term in terms.items():
        np.testing.assert_allclose(own[task], term, rtol=1e-6)


def test_padding_has_no_gradient():
    outputs, columns = batch()
    counts = outputs.pop(CANDIDATES)
    grads = jax.grad(lambda outputs: total_loss(TASKS, {**outputs, CANDIDATES: counts}, columns)[0])(
        jax.tree.map(jnp.asarray, outputs)
    )
    there = np.arange(3) < COUNTS[:, None]
    for name, grad in grads.items():
        assert np.asarray(grad)[there].any(), name
        assert not np.asarray(grad)[~there].any(), name


def test_predictions_keep_the_shape_of_candidates():
    outputs, _ = batch()
    made = predictions(TASKS, jax.tree.map(jnp.asarray, outputs))
    assert made["like"].shape == (4, 3)  # of two classes, the probability of one
    np.testing.assert_allclose(made["click"], 1 / (1 + np.exp(-outputs["click"])), rtol=1e-6)
    np.testing.assert_array_equal(made[CANDIDATES], COUNTS)


def test_a_label_of_another_shape():
    outputs, columns = batch()
    with pytest.raises(ValueError, match=r"the label 'clicked' must have shape \(batch, 3\), a number for each"):
        total_loss(TASKS, outputs, {**columns, "clicked": np.zeros((4, 2), np.float32)})
