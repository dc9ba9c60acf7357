"""Runs whose tables are in host memory: the bytes of runs with all tables on the device."""

import io

import numpy as np
import pytest

from sparrow import exports, runs, serving
from sparrow.config import ConfigError
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
    here, _ = train(tmp_path / "host", *overrides)
    assert here.results == there.results
    assert here.steps == there.steps
    victim.assert_same_bytes(tmp_path / "device", tmp_path / "host")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    return folder, train(folder, "train.steps=12")[0]


@pytest.mark.slow
def test_moves_between_device_and_host(undisturbed, tmp_path):
    folder, whole = undisturbed
    train(tmp_path, "train.steps=4", cache=None)
    train(tmp_path, "train.steps=8", resume=True)
    resumed, _ = train(tmp_path, "train.steps=12", resume=True, cache=None)
    assert resumed.results == whole.results
    victim.assert_same_bytes(folder, tmp_path)


def test_tables_on_disk_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="tables on disk are not supported; leave path out"):
        config(path=tmp_path)


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
