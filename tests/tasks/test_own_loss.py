"""A loss from outside the package, as examples/custom_loss.py writes it: its predictions are counts everywhere."""

import importlib.util
import json
from pathlib import Path

import pytest

from sparrow import losses, runs, serving

EXAMPLE = Path(__file__).parents[2] / "examples" / "custom_loss.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("custom_loss", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    losses.registry._records.pop("poisson_counts")


@pytest.fixture(scope="module")
def made(example, tmp_path_factory):
    folder = tmp_path_factory.mktemp("counts")
    return folder, example.main(folder, steps=40)


def test_predictions_are_counts(made):
    """Trained, predicted to a file, exported and served: the raw outputs have a mean near -0.1."""
    _, found = made
    assert found["mean of the labels"] == pytest.approx(1.05, abs=0.15)
    assert found["mean of the predictions"] == pytest.approx(found["mean of the labels"], rel=0.1)
    assert found["mean of the served predictions"] == pytest.approx(found["mean of the predictions"], rel=1e-5)


def test_evaluation_judges_the_same_predictions(made):
    _, found = made
    evaluated, by_hand = found["mean absolute error of evaluation"], found["mean absolute error of the predictions"]
    assert evaluated == pytest.approx(by_hand, rel=1e-5)


def test_the_meaning_is_written_down(made):
    folder, _ = made
    outputs = serving.load(folder / "exported").signature["predict"]["outputs"]
    assert next(iter(outputs.values()))["meaning"] == "expected count"


def test_a_run_of_it_is_loaded_again(made):
    """The config of the run names the loss."""
    folder, _ = made
    assert runs.saved_config(folder / "run").tasks["visits"].losses[0] == losses.registry.make("poisson_counts")
    assert json.loads((folder / "exported" / "export.json").read_text())["tasks"]["visits"]["label"] == "visits"
