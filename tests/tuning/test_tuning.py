"""A search: fields and values, bad trials that end early, a stop in the middle, the report."""

import json

import pytest

from sparrow import config, runs, tuning
from sparrow.cli import main
from sparrow.errors import ConfigError
from sparrow.tuning import searched
from tests.runs.cases import case


@pytest.mark.parametrize("text", ["a=3..2", "a=0..1:log", "a=x||y", "a=1|1"])
def test_values_that_cannot_be_searched(text):
    with pytest.raises(ConfigError):
        searched(text)


RATE = "train.dense_optimizer.learning_rate=1e-4..0.1:log"


@pytest.fixture
def tiny(tmp_path):
    (tmp_path / "tiny.yaml").write_text(config.dumps(case("train.steps=2", "evaluate.every_steps=1")))
    return tmp_path


def test_from_the_command_line(tiny, capsys):
    arguments = ["tune", str(tiny / "tiny.yaml"), RATE, "train.batch_size=8|16", "train.seed=1"]
    arguments += ["--folder", str(tiny / "tune"), "--metric", "auc"]
    assert main([*arguments, "--trials", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition("  ")[0] for line in lines[-4:-2]] == ["trial 1/2", "trial 2/2"]
    assert main([*arguments, "--trials", "3"]) == 0  # goes on
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition("  ")[0] for line in lines if line.startswith("trial")] == ["trial 3/3"]
    report = (tiny / "tune" / "report.md").read_text()
    assert "3 trials by `auc` (higher is better)" in report
    assert report.count("| trials/") == 3
    best = config.load(tiny / "tune" / "best.yaml")
    assert best.train.seed == 1
    assert main(["tune", str(tiny / "tiny.yaml"), "train.seed=1..3", "--folder", str(tiny / "tune")]) == 2
    assert "another folder" in capsys.readouterr().err
    assert main(["tune", str(tiny / "tiny.yaml"), "train.sed=1..3", "--folder", str(tiny / "x")]) == 2
    assert "did you mean 'seed'" in capsys.readouterr().err


class Result:
    def __init__(self, results, steps):
        self.results, self.steps = results, steps


def of_rate(script):
    """A training that only calls its watch, by the learning rate."""

    def train(loaded, folder, *, resume, overwrite, stream, watch):
        folder.mkdir(parents=True, exist_ok=True)
        script["trained"].append((str(folder), resume))
        rate = loaded.train.dense_optimizer.learning_rate
        for step in range(1, 6):
            value = step / 10 - rate
            (folder / "checkpoints" / str(step)).mkdir(parents=True, exist_ok=True)
            if script.get("stop") == (len(script["trained"]), step):
                raise KeyboardInterrupt
            if watch(step, {"auc": value}):
                break
        return Result({"auc": value}, step)

    return train


def test_bad_trials_end_early_and_a_stopped_search_goes_on(tiny, monkeypatch):
    script = {"trained": [], "stop": (3, 2)}
    monkeypatch.setattr(runs, "train", of_rate(script))
    lines = []

    def search():
        return tuning.tune(
            lambda overrides: config.load(tiny / "tiny.yaml", overrides),
            tiny / "tune",
            [searched("train.dense_optimizer.learning_rate=1e-4..1.0")],
            trials=12,
            metric="auc",
            log=lines.append,
        )

    with pytest.raises(KeyboardInterrupt):
        search()
    tuned = search()
    assert len(script["trained"]) == 13
    assert script["trained"][3] == (str(tiny / "tune" / "trials" / "0002"), True)  # the third goes on
    assert any("continues" in line for line in lines)
    early = [line for line in lines if "stopped early" in line]
    assert early
    assert 0 < tuned.value <= 0.5
    assert json.dumps(tuned.overrides).startswith('["train.dense_optimizer.learning_rate=')
    report = (tiny / "tune" / "report.md").read_text()
    assert f"12 trials by `auc` (higher is better), {len(early)} stopped early." in report
    assert "`train.dense_optimizer.learning_rate`: -1.00" in report
