"""Runs whose tables have dynamic vocabularies and are in host memory: the bytes of runs with all rows on the device."""

import io
import shutil

import jax.numpy as jnp
import numpy as np
import pytest

from sparrow import runs
from sparrow.data import Tables
from sparrow.embedding import mix64
from tests.runs import victim
from tests.runs.cases import case

BATCH, BAD = 32, 6
"""Examples of a batch, and the step whose loss is not finite."""


def ratings(accumulate):
    """New ids in every batch; one price of the step BAD is zero."""
    generator = np.random.default_rng(3)
    count = 20 * BATCH * accumulate
    users, items = (mix64(generator.zipf(1.2, count).astype(np.uint64) % 700) for _ in range(2))
    price = np.ones(count, np.float32)
    price[(BAD * accumulate - 1) * BATCH + 3] = 0
    labels = (generator.random(count) < 0.4).astype(np.float32)
    return Tables({"user": users.view(np.int64), "item": items.view(np.int64), "price": price, "label": labels})


def config(*overrides, cache=0.7, rows=120, accumulate=1):
    features = [
        {"kind": "id", "name": "user", "embedding_dim": 4, "dynamic": {"rows": rows, "admit": 2, "waiting": 300}},
        {"kind": "id", "name": "item", "embedding_dim": 4, "dynamic": {"rows": rows, "unknown": "zeros"}},
        {"kind": "raw", "name": "price"},
    ]
    memory = {"kind": "host", "cache": cache}
    model = {
        "architecture": {"name": "deepfm", "deep": {"hidden_units": [8]}},
        "groups": {"wide": ["user", "item"], "deep": ["user", "item", "price"]},
        "tables": [] if cache is None else [{"tables": [".*"], "memory": memory}],
    }
    data = {"train": ratings(accumulate), "features": features}
    fixed = (f"train.batch_size={BATCH}", f"train.accumulate={accumulate}", "train.tensorboard=false")
    return case(*fixed, "train.traffic=1", *overrides, data=data, model=model)


def train(folder, *overrides, resume=False, **options):
    return runs.train(config(*overrides, **options), folder, resume=resume, stream=io.StringIO())


def same(*folders):
    """Newest checkpoints of the same bytes; traffic counts the steps in flight, too."""
    victim.assert_same_bytes(*folders, but="traffic")


@pytest.mark.parametrize("accumulate", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_step_that_is_not_finite_gives_the_rows_of_new_ids_back(tmp_path, monkeypatch, accumulate):
    """Steps behind it have moved rows, and new ids have taken the rows of others, when it is found."""
    real = runs.Program.loss

    def loss(self, params, acts, rest, feed):
        total, others = real(self, params, acts, rest, feed)
        return total / jnp.min(feed.numbers["price"]), others

    monkeypatch.setattr(runs.Program, "loss", loss)
    train(tmp_path / "good", f"train.steps={BAD - 1}", cache=None, accumulate=accumulate)
    with pytest.raises(runs.RunError, match=f"step {BAD}: the loss is"):
        train(tmp_path / "bad", "train.steps=20", accumulate=accumulate)
    same(tmp_path / "good", tmp_path / "bad")


def killed(rows, steps, cache):
    """Overrides of the run that is killed: two of its tables are dynamic and in host memory."""
    words = [f"dynamic: {{rows: {rows}, admit: 2}}", f"dynamic: {{rows: {rows}, expire_steps: 5}}", "num_buckets: 2000"]
    features = [f"{{kind: id, name: id_{i}, embedding_dim: 4, {own}}}" for i, own in enumerate(words)]
    return (
        f"train.steps={steps}",
        "train.checkpoint={every_steps: 3, keep: 2}",
        "data.train.ids=2000",
        "data.evaluate.ids=2000",
        f"data.features=[{', '.join(features)}]",
        f"model.tables=[{{tables: ['id_[01].*'], memory: {{kind: host, cache: {cache}}}}}]",
    )


class Varying(victim.Chain):
    """Each session has another cache than the one before it; a run begins with a copy of ``base``, if any."""

    def __init__(self, rows, steps, base, *arguments):
        self._rows, self._steps, self._base = rows, steps, base
        super().__init__((), *arguments)

    @property
    def overrides(self):
        return killed(self._rows, self._steps, (70, 0.95)[self.kills % 2])

    @overrides.setter
    def overrides(self, given):
        pass

    def one(self, kills):
        if self._base is not None and not self.folder.exists():
            shutil.copytree(self._base, self.folder)
        super().one(kills)


@pytest.mark.slow
def test_sigkill_at_any_moment_with_another_cache_and_with_a_grown_capacity(tmp_path):
    """20 kills in one series: until step 15 with 80 rows, then until step 30 with 110 of them."""
    cache, base, kills = tmp_path / "cache", None, 0
    for rows, steps in ((80, 15), (110, 30)):
        whole = tmp_path / f"undisturbed-{rows}"
        if base is not None:
            shutil.copytree(base, whole)
        process = victim.context().Process(target=victim.train, args=(killed(rows, steps, 75), whole, cache))
        process.start()
        process.join(victim.LIMIT)
        assert process.exitcode == 0
        chain = Varying(rows, steps, base, tmp_path / f"series-{rows}" / "run", whole, cache, 11 + rows)
        chain.go(10)
        assert chain.finished
        kills += chain.kills
        base = tmp_path / f"series-{rows}" / "finished-1"
    assert kills == 20
