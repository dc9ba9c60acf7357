"""Runs whose tables are in host memory: the bytes of runs with all tables on the device, however they are fed,
evaluated, stopped and resumed.
"""

import io
import json

import numpy as np
import pytest

from sparrow import exports, runs, serving
from sparrow.config import ConfigError
from sparrow.data import DataError
from tests.runs import victim
from tests.runs.cases import NAMES, case

IDS = 2000
FIXED = (
    "train.batch_size=64",
    "train.tensorboard=false",
    "train.log_every_steps=3",
    "train.traffic=1",
    "evaluate={steps: 3}",
)


AHEAD = ("data.ahead=5", "data.threads=3", "evaluate.every_steps=5")


def config(*overrides, cache=0.06, path=None):
    """Two of three features have tables in host memory, their wide ones too."""
    clicks = {"name": "clicks", "impressions": 4096, "fields": 3, "ids": IDS, "chunk_rows": 1024}
    features = [{"kind": "id", "name": name, "num_buckets": IDS, "embedding_dim": 4} for name in NAMES]
    data = {"train": clicks, "evaluate": {**clicks, "start": 1000}, "shuffle_rows": 2048, "features": features}
    tables = []
    if cache is not None:
        memory = {"kind": "host", "cache": cache} | ({} if path is None else {"path": str(path)})
        tables = [{"tables": ["id_[01].*"], "memory": memory}]
    model = {
        "architecture": {"name": "deepfm", "deep": {"hidden_units": [8]}},
        "groups": {"wide": NAMES, "deep": NAMES},
        "tables": tables,
    }
    return case(*FIXED, *overrides, data=data, model=model)


def train(folder, *overrides, resume=False, **options):
    stream = io.StringIO()
    trained = runs.train(config(*overrides, **options), folder, resume=resume, stream=stream)
    return trained, stream.getvalue()


EVALUATED = ("evaluate.every_steps=2", "evaluate.early_stopping={metric: loss, patience: 4, mode: min}")
RECIPES = {
    "accumulated and clipped": ("train.accumulate=2", "train.clip_global_norm=0.001", "train.ema=0.9", *EVALUATED),
    "scaled": ("train.precision=float16", "train.loss_scale={}", "train.non_finite=skip"),
    "bfloat16": ("model.tables[0].dtype=bfloat16",),
}


@pytest.mark.parametrize(
    "recipe", [recipe if not i else pytest.param(recipe, marks=pytest.mark.slow) for i, recipe in enumerate(RECIPES)]
)
def test_equals_a_run_with_all_tables_on_the_device(tmp_path, recipe):
    overrides = ("train.steps=10", *RECIPES[recipe])
    of_device = [text for text in overrides if not text.startswith("model.tables")]
    if recipe == "bfloat16":
        of_device.append("model.tables=[{tables: ['id_[01].*'], dtype: bfloat16}]")
    there, _ = train(tmp_path / "device", *of_device, cache=None)
    here, log = train(tmp_path / "host", *overrides)
    assert here.results == there.results
    assert here.steps == there.steps
    victim.assert_same_bytes(tmp_path / "device", tmp_path / "host")
    assert here.program.host.total.leaving > 50
    assert "cache_hits" in log


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    return folder, train(folder, "train.steps=12")[0]


@pytest.mark.parametrize("overrides", [("data.ahead=0",), pytest.param(AHEAD, marks=pytest.mark.slow)])
def test_resumed_with_another_cache(undisturbed, tmp_path, overrides):
    folder, whole = undisturbed
    train(tmp_path, *overrides, "train.steps=7", cache=0.2)
    resumed, _ = train(tmp_path, *overrides, "train.steps=12", resume=True, cache=200)
    assert resumed.results == whole.results
    victim.assert_same_bytes(folder, tmp_path)


@pytest.mark.slow
def test_moves_between_device_and_host(undisturbed, tmp_path):
    folder, whole = undisturbed
    train(tmp_path, "train.steps=4", cache=None)
    train(tmp_path, "train.steps=8", resume=True)
    resumed, _ = train(tmp_path, "train.steps=12", resume=True, cache=None)
    assert resumed.results == whole.results
    victim.assert_same_bytes(folder, tmp_path)


def test_on_disk(undisturbed, tmp_path):
    trained, _ = train(tmp_path / "run", "train.steps=12", path=tmp_path / "scratch")
    assert trained.results == undisturbed[1].results
    victim.assert_same_bytes(undisturbed[0], tmp_path / "run")


def test_loading_evaluating_exporting_and_predicting(undisturbed, tmp_path):
    folder, whole = undisturbed
    program, state = runs.load(folder)
    assert runs.Evaluator(program)(state) == whole.results
    on_device = runs.load(folder, config("train.steps=12", cache=None))
    made = []
    for number, (own, its_state) in enumerate([(program, state), on_device, (whole.program, whole.state)]):
        exports.export(own, its_state, tmp_path / f"export{number}")
        model = serving.load(tmp_path / f"export{number}")
        made.append(model.predict({name: np.arange(50) * 37 for name in NAMES}))
    for name in made[0]:
        np.testing.assert_array_equal(made[0][name], made[1][name])
        np.testing.assert_array_equal(made[0][name], made[2][name])


def test_starting_from_another_run(undisturbed, tmp_path):
    folder, _ = undisturbed
    start = f"train.start_from={{folder: {folder}}}"
    train(tmp_path / "host", "train.steps=3", start)
    train(tmp_path / "device", "train.steps=3", start, cache=None)
    victim.assert_same_bytes(tmp_path / "host", tmp_path / "device")


@pytest.mark.slow
def test_a_step_that_is_not_finite_leaves_the_rows_as_they_were(tmp_path, monkeypatch):
    """Rows of later steps have moved when it is found."""
    for name in ("good", "bad"):
        train(tmp_path / name, "train.steps=3")
    real = runs.Program.loss

    def loss(self, params, acts, rest, feed):
        total, others = real(self, params, acts, rest, feed)
        return total / np.float32(0), others

    monkeypatch.setattr(runs.Program, "loss", loss)
    with pytest.raises(runs.RunError, match="step 4: the loss is"):
        train(tmp_path / "bad", "train.steps=9", resume=True)
    monkeypatch.undo()
    for name in ("good", "bad"):
        train(tmp_path / name, "train.steps=9", resume=True)
    victim.assert_same_bytes(tmp_path / "good", tmp_path / "bad")


def test_the_log_holds_hits_bytes_and_waits(undisturbed):
    folder, _ = undisturbed
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    trained = [line for line in lines if line["kind"] == "train"]
    for line in trained:
        assert 0 < line["cache_hits"] < 1
        assert line["cache_bytes_in"] > 0
        assert line["cache_waits"] >= 0
    assert trained[-1]["cache_bytes_out"] > 0
    assert "cache hits" in (folder / "report.html").read_text().lower()


@pytest.mark.parametrize(
    ("memory", "message"),
    [
        ("{kind: host, cache: 0}", "cache must be"),
        ("{kind: host, cache: 1.5}", "cache must be a share above 0 and up to 1.0, or a number of rows, got 1.5"),
        ("{kind: ssd}", "host"),
        ("{kind: host, path: ''}", "path"),
    ],
)
def test_bad_options(memory, message):
    with pytest.raises(ConfigError, match=message):
        config(f"model.tables[0].memory={memory}")


def test_a_cache_smaller_than_one_step_ends_the_run_in_one_line(tmp_path):
    with pytest.raises(
        DataError, match=r"table 'id_0_wide': one step needs \d+ rows on the device, and its cache has 9; "
    ):
        train(tmp_path, "train.steps=2", cache=9)


def test_no_room_in_host_memory_or_on_disk(monkeypatch, tmp_path):
    monkeypatch.setattr("sparrow.embedding.host.rows.free_memory", lambda: 1000)
    with pytest.raises(ConfigError, match=r"need .* GB of host memory with their slots, and 1e-06 GB are free"):
        train(tmp_path / "a", "train.steps=2")
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(ConfigError, match="cannot be kept in"):
        train(tmp_path / "b", "train.steps=2", path=blocked)


class Varying(victim.Chain):
    """Each session has another cache than the one before it."""

    @property
    def overrides(self):
        return (*self._overrides, f"model.tables[0].memory.cache={(0.1, 150)[self.kills % 2]}")

    @overrides.setter
    def overrides(self, given):
        self._overrides = given


@pytest.mark.slow
def test_sigkill_at_any_moment(tmp_path):
    """As `test_kills`, with tables in host memory; every other session has another cache."""
    overrides = (
        "train.steps=60",
        "train.checkpoint={every_steps: 3, keep: 2}",
        f"data.train.ids={IDS}",
        f"data.evaluate.ids={IDS}",
        *(f"data.features[{i}].num_buckets={IDS}" for i in range(3)),
        "model.tables=[{tables: [id_0.*], memory: {kind: host, cache: 0.1}}]",
    )
    folder = tmp_path / "undisturbed"
    process = victim.context().Process(target=victim.train, args=(overrides, folder, tmp_path / "cache"))
    process.start()
    process.join(victim.LIMIT)
    assert process.exitcode == 0
    chain = Varying(overrides, tmp_path / "run", folder, tmp_path / "cache", seed=7)
    chain.go(20)
    assert chain.kills == 20
    assert chain.finished
