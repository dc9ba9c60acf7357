"""Reading and writing configs."""

import dataclasses
import json
import re
from pathlib import Path

import pytest

from sparrow import config
from sparrow.config import ConfigError
from sparrow.config.torcheasyrec.messages import MESSAGES
from sparrow.rules import Adam
from tests.config.examples import valid


@pytest.mark.parametrize("form", ["yaml", "json"])
@pytest.mark.parametrize("defaults", [False, True])
def test_round_trip(form, defaults):
    # The name of the folder would be a number without quotes.
    loaded = config.from_mapping(valid(train__loss_scale=True, train__checkpoint={"keep": 3}, model_dir="1e5"))
    assert config.loads(config.dumps(loaded, form, defaults), form) == loaded


def test_load_by_ending(tmp_path):
    expected = config.from_mapping(valid())
    (tmp_path / "a.json").write_text(json.dumps(valid()))
    (tmp_path / "a.yaml").write_text(config.dumps(expected))
    (tmp_path / "a.py").write_text(f"config = {valid()!r}")
    (tmp_path / "b.py").write_text(f"from sparrow.config import Config\nconfig = Config(**{valid()!r})")
    for name in ("a.json", "a.yaml", "a.py", "b.py"):
        assert config.load(tmp_path / name) == expected
        assert config.load(tmp_path / name, ["train.steps=7"]).train.steps == 7


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.toml", b"", "unknown ending '.toml'"),
        ("a.csv", b"", "unknown ending '.csv': Valid names: .config, .json, .py, .yaml, .yml; `sparrow init"),
        ("a.yaml", b"\xff\xfe\x00", "is not a text file in UTF-8"),
        ("a.py", b"x = 1", "must define 'config', a Config or a dict; got None"),
        ("none.yaml", None, "No such file or directory"),
        ("none.py", None, "there is no such file"),
    ],
)
def test_files_that_cannot_be_loaded(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError) as error:
        config.load(tmp_path / name)
    assert str(error.value).startswith(f"{tmp_path / name}: {message}")


def test_overrides_reach_everything():
    loaded = config.from_mapping(
        valid(),
        overrides=[
            "train.sparse_optimizer={name: adam, learning_rate: 1e-3}",
            "train.sparse_optimizer.beta1=0.8",
            "train.dense_optimizer.optimizer.beta2=0.99",  # where only the optimizer's name was written
            "tasks.click.losses[0].label_smoothing=0.1",
            "data.features[0].embedding_dim=16",
            "train.checkpoint.keep=2",
            "model_dir=null",
        ],
    )
    assert loaded.train.sparse_optimizer == Adam(learning_rate=0.001, beta1=0.8)
    assert loaded.train.dense_optimizer.optimizer.beta2 == 0.99
    assert loaded.tasks["click"].losses[0].label_smoothing == 0.1
    assert loaded.data.features[0].embedding_dim == 16
    assert loaded.train.checkpoint.keep == 2
    # and nothing else
    assert loaded.data.features[1] == config.from_mapping(valid()).data.features[1]


def test_a_config_cannot_be_changed():
    loaded = config.from_mapping(valid())
    with pytest.raises(dataclasses.FrozenInstanceError):
        loaded.train.steps = 5


def test_every_problem_is_told_at_once():
    with pytest.raises(ConfigError) as error:
        config.from_mapping(valid(train__steps="x", train__seed=-1, tasks__click__label=3))
    assert len(error.value.problems) == 3


def test_the_documentation_names_what_torcheasyrec_may_hold():
    """Every supported field of the data and training messages stands in the table, and no other word does."""
    text = (Path(__file__).parents[2] / "docs" / "migrate" / "torcheasyrec_fields.md").read_text()
    words = set(re.findall(r"`(\w+)`", text))
    fields = {field for kind in ("TrainConfig", "DataConfig") for field in MESSAGES[kind]}
    quiet = {
        "sparse_optimizer",
        "dense_optimizer",
        "dataset_type",
        "num_workers",
        "pin_memory",
        "fg_threads",
        "in_order",
    }
    supported = {
        field
        for kind in ("TrainConfig", "DataConfig")
        for field, spec in MESSAGES[kind].items()
        if spec.kind != "refused"
    }
    assert supported - quiet <= words
    assert {word for word in words if word.startswith(("save_", "fg_", "odps_", "input_"))} <= fields | {
        "fg_encoded_default_value",
        "input_fields",
    }
