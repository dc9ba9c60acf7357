"""Losses that a model computes by itself are part of the total, by name."""

import jax.numpy as jnp
import numpy as np
import pytest

from sparrow.config import Task
from sparrow.losses import L2
from sparrow.tasks import total_loss

LABELS = {"y": jnp.array([1.0, 3.0]), "w": jnp.array([1.0, 3.0])}
OUTPUTS = {"logits": jnp.zeros(2), "loss/hint": jnp.array([2.0, 6.0]), "loss/penalty": jnp.asarray(0.5)}


def test_their_means_are_added():
    total, terms = total_loss({"task": Task(label="y", losses=(L2(),))}, OUTPUTS, LABELS)
    assert {name: float(term) for name, term in terms.items()} == {"task": 5.0, "hint": 4.0, "penalty": 0.5}
    assert float(total) == 9.5


def test_values_of_examples_have_their_weights():
    _, terms = total_loss({"task": Task(label="y", losses=(L2(),), sample_weight="w")}, OUTPUTS, LABELS)
    np.testing.assert_allclose(terms["hint"], (2 * 1 + 6 * 3) / 4, rtol=1e-6)


def test_a_task_of_the_same_name_is_refused():
    with pytest.raises(ValueError, match="the task 'hint' has the name of one of the model's own losses; rename"):
        total_loss({"hint": Task(label="y", losses=(L2(),))}, OUTPUTS, LABELS)
