"""The defaults of `fit` learn what a linear model cannot, do not give up on it too early, and start from a constant."""

import io

import numpy as np
import pytest

import sparrow as sp
from sparrow.metrics import ExactAUC


def rows(count, seed):
    """Users and items that like each other by parity: no column alone shows anything. The best AUC is about 0.82."""
    rng = np.random.default_rng(seed)
    user, item = rng.integers(0, 60, count), rng.integers(0, 50, count)
    liked = rng.random(count) < np.where(user % 2 == item % 2, 0.82, 0.18)
    return {"user": user, "item": item, "price": rng.lognormal(2, 1, count), "y": liked.astype(np.int64)}


@pytest.mark.slow
def test_fit_finds_an_interaction():
    run = sp.fit(rows(4000, 0), "y", stream=io.StringIO(), overrides=["train.tensorboard=false"])
    test = rows(4000, 1)
    metric = ExactAUC()
    area = metric.compute(metric.update(metric.init(), run.predict(test)["y"].astype(np.float32), test["y"]))
    assert area > 0.78


def test_weight_decay_follows_the_batch_size():
    """The same for each occurrence of an id, whose gradient is divided by the batch size."""
    small, large = (sp.guess(rows(200, 0), "y", batch_size=size).config.train for size in (32, 64))
    for rules in zip(
        *([train.sparse_optimizer, train.table_optimizers[0].optimizer] for train in (small, large)), strict=True
    ):
        assert rules[0].weight_decay == pytest.approx(2 * rules[1].weight_decay, rel=0.05)
    assert small.table_optimizers[0].tables == (".*_wide",)
    assert small.table_optimizers[0].optimizer.learning_rate > small.sparse_optimizer.learning_rate
    assert not sp.guess(rows(200, 0), "y", "dcn_v2").config.train.table_optimizers  # it has no linear part


def test_training_starts_from_the_best_constant():
    frame = rows(500, 0)
    frame["price"] = frame["price"] + 100
    loss = sp.guess(frame, "price").config.tasks["price"].losses[0]
    assert (loss.mean, loss.std) == pytest.approx((frame["price"].mean(), frame["price"].std()), rel=1e-5)
    frame["rare"] = (np.arange(500) % 50 == 0).astype(np.int64)
    assert sp.guess(frame, "rare").config.tasks["rare"].losses[0].prior == pytest.approx(0.02)
    assert sp.guess(frame, "y").config.tasks["y"].losses[0].prior == 0.5  # about even


@pytest.mark.slow
def test_fit_of_numbers_far_from_zero():
    """Two epochs of 600 rows are 34 steps, in which a model that starts at 0 does not get near -100."""
    rng = np.random.default_rng(0)
    user = rng.integers(0, 40, 1200)
    effect = rng.normal(0, 12, 40)[user]
    table = {"user": user, "x": rng.normal(size=1200), "y": -100 + effect + rng.normal(0, 3, 1200)}
    train, test = ({name: values[part] for name, values in table.items()} for part in (slice(600), slice(600, None)))
    run = sp.fit(train, "y", stream=io.StringIO(), epochs=2, overrides=["train.tensorboard=false"])
    error = np.sqrt(np.mean((run.predict(test)["y"] - test["y"]) ** 2))
    assert error < 6
