"""Weights whose combined gradient is the shortest."""

import jax
import numpy as np
import pytest

from sparrow.losses import pareto_weights


def weights(gradients, floors):
    gradients = np.asarray(gradients, np.float64)
    return np.asarray(jax.jit(pareto_weights)((gradients @ gradients.T).astype(np.float32), np.asarray(floors)))


@pytest.mark.parametrize("floors", [[0.0, 0.0], [0.1, 0.3], [0.45, 0.5]])
def test_two_tasks_have_a_closed_form(floors):
    rng = np.random.default_rng(0)
    for scale in (1e-4, 1.0, 1e3):
        for _ in range(20):
            a, b = gradients = scale * rng.normal(size=(2, 5)) * [[1.0], [2.0]]
            best = np.clip((b - a) @ b / ((a - b) @ (a - b)), floors[0], 1 - floors[1])
            np.testing.assert_allclose(weights(gradients, floors), [best, 1 - best], atol=2e-3)


def test_three_tasks_against_all_weights_on_a_grid():
    grid = np.array([(i, j, 100 - i - j) for i in range(101) for j in range(101 - i)]) / 100
    gradients = np.array([[1.0, 0.2, 0.0], [-0.3, 1.0, 0.4], [0.1, -0.5, 1.0]])
    best = grid[np.linalg.norm(grid @ gradients, axis=1).argmin()]
    np.testing.assert_allclose(weights(gradients, np.zeros(3)), best, atol=0.01)


@pytest.mark.parametrize("gradients", [np.zeros((3, 2)), np.ones((3, 2)), [[1, 0], [1, 0], [0, 1]]])
def test_gradients_that_do_not_decide(gradients):
    """Nothing to choose from still gives weights: at least the floors, and 1 in all."""
    made = weights(gradients, [0.2, 0.1, 0.0])
    np.testing.assert_allclose(made.sum(), 1, rtol=1e-5)
    assert (made >= np.array([0.2, 0.1, 0.0]) - 1e-6).all()
