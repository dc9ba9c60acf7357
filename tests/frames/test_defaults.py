"""The defaults of `fit` learn what a linear model cannot, and do not give up on it too early."""

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
