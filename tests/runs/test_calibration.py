"""`calibrate`: probabilities are scaled by held-out rows, and everything that predicts uses the scaling."""

import io

import jax.numpy as jnp
import numpy as np
import pytest

import sparrow as sp
from sparrow import config, runs
from sparrow.losses import Platt
from sparrow.runs.evaluating.evaluation import Evaluator
from sparrow.runs.loop.progress import Best, Progress
from tests.runs.cases import IDS, NAMES, case

MORE = ["train.sparse_optimizer={name: adagrad, learning_rate: 0.5}", "train.dense_optimizer.learning_rate=0.02"]


def frame(rows=2_000):
    rng = np.random.default_rng(0)
    user, item = rng.integers(0, 300, rows), rng.integers(0, 40, rows)
    chance = 1 / (1 + np.exp(-(rng.normal(0, 1.0, 300)[user] + rng.normal(0, 1.0, 40)[item])))
    return {"user_id": user, "item_id": item, "y": (rng.random(rows) < chance).astype(int)}


def log_loss(labels, predicted):
    return float(-np.mean(np.where(labels == 1, np.log(predicted), np.log1p(-predicted))))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    data = {name: values[:1_500] for name, values in frame().items()}
    held = {name: values[1_500:] for name, values in frame().items()}
    folder = tmp_path_factory.mktemp("calibrated") / "run"
    run = sp.fit(data, target="y", evaluate=held, epochs=6, overrides=MORE, folder=folder, stream=io.StringIO())
    return run, held


def test_a_fit_scales_probabilities_and_chooses_the_best_step_by_them(trained):
    run, held = trained
    assert run.config.evaluate.early_stopping.metric == "calibrated_log_loss"
    platt = run.config.tasks["y"].calibration
    assert 0 < platt.slope < 0.9  # it was learned by heart
    assert run.results["calibrated_log_loss"] < run.results["log_loss"] - 0.01
    found = log_loss(held["y"], run.predict(held)["y"].astype(np.float64))
    assert found == pytest.approx(run.results["calibrated_log_loss"], abs=2e-3)
    assert run.evaluate()["log_loss"] == pytest.approx(found, abs=1e-5)
    assert run.evaluate()["auc"] == pytest.approx(run.results["auc"], abs=1e-3)


def test_a_loaded_run_and_its_export_predict_the_same(trained, tmp_path):
    run, held = trained
    loaded = runs.load(run.folder)
    assert loaded.config.tasks["y"].calibration == run.config.tasks["y"].calibration
    rows = {name: values for name, values in held.items() if name != "y"}
    np.testing.assert_array_equal(loaded.predict(rows)["y"], run.predict(rows)["y"])
    run.export(tmp_path / "export")
    np.testing.assert_allclose(sp.serving.load(tmp_path / "export").predict(rows)["y"], run.predict(rows)["y"], 1e-5)


def test_the_scaling_is_right_on_the_rows_that_it_was_fitted_to():
    score = np.linspace(0.02, 0.98, 40)
    truth = 1 / (1 + np.exp(-(0.5 * np.log(score / (1 - score)) - 0.3)))
    platt, loss = Platt.of({"score": score, "positive": 1e6 * truth, "negative": 1e6 * (1 - truth)})
    assert platt == pytest.approx((0.5, -0.3), abs=1e-4)
    assert loss == pytest.approx(-np.mean(truth * np.log(truth) + (1 - truth) * np.log1p(-truth)))
    np.testing.assert_allclose(platt(jnp.asarray(score)), truth, rtol=1e-3)


@pytest.mark.parametrize(("positive", "negative"), [([5.0, 0.0], [0.0, 5.0]), ([0.0, 0.0], [3.0, 3.0])])
def test_wrong_orders_and_single_classes_give_a_finite_scaling_that_keeps_the_order(positive, negative):
    platt, loss = Platt.of({"score": [0.2, 0.8], "positive": positive, "negative": negative})
    assert platt.slope > 0
    assert np.isfinite(loss)


def test_the_calibrated_loss_of_a_model_that_becomes_worse_than_chance_has_no_jump():
    def found(positive):
        return Platt.of({"score": [0.01, 0.99], "positive": [50.0, positive], "negative": [50.0, 100 - positive]})

    (better, one), (worse, other) = found(50.5), found(49.5)
    assert better.slope >= worse.slope > 0
    assert abs(one - other) < 1e-3
    assert found(1.0)[1] < 0.7  # one half of the rows is positive, or fewer: about the loss of a constant


def test_calibration_of_numbers_is_refused():
    with pytest.raises(config.ConfigError, match="calibrate needs a first loss of probabilities"):
        config.from_mapping({"tasks": {"y": {"label": "y", "losses": ["l2"], "calibrate": True}}})


def test_a_checkpoint_of_an_earlier_version_has_no_loss_of_the_best_step():
    kept = Progress(best=Best(3, 0.9, 0.2)).to_dict()
    assert Progress.from_dict(kept).best == Best(3, 0.9, 0.2)
    assert Progress.from_dict({**kept, "best": [3, 0.9]}).best.loss is None


def test_calibration_without_rows_to_evaluate_on_is_refused(tmp_path):
    with pytest.raises(
        config.ConfigError, match=r"tasks\.click\.calibrate: true needs rows that are held out"
    ) as found:
        runs.train(case("tasks.click.calibrate=true", "data.evaluate=null"), tmp_path / "run", stream=io.StringIO())
    assert "data.split" in str(found.value)


def test_each_task_has_its_own_scaling():
    data = frame(1_200)
    data["z"] = 1 - data["y"] * (np.arange(1_200) % 4 > 0)
    held = {name: values[800:] for name, values in data.items()}
    rows = {name: values[:800] for name, values in data.items()}
    run = sp.fit(rows, target=["y", "z"], model="mmoe", evaluate=held, epochs=3, overrides=MORE, stream=io.StringIO())
    assert run.config.tasks["y"].calibration != run.config.tasks["z"].calibration
    made = run.predict(held)
    for task in "yz":
        found = log_loss(held[task], made[task].astype(np.float64))
        assert found == pytest.approx(run.results[f"{task}/calibrated_log_loss"], abs=5e-3)
        assert found < run.results[f"{task}/log_loss"]


SCALED = ("tasks.click.calibrate=true", "evaluate={every_steps: 2}", "train.checkpoint={every_steps: 2}")


def test_a_resumed_run_has_the_same_scaling(tmp_path):
    complete = runs.train(case(*SCALED, "train.steps=6"), tmp_path / "complete", stream=io.StringIO())
    scalings = []
    for steps in (4, 4, 6):  # the second evaluates nothing
        more = case(*SCALED, f"train.steps={steps}")
        run = runs.train(more, tmp_path / "run", resume=True, stream=io.StringIO())
        scalings.append(run.config.tasks["click"].calibration)
    assert scalings[0] is not None
    assert scalings[0] == scalings[1] != scalings[2]
    assert scalings[2] == complete.config.tasks["click"].calibration


def test_deltas_of_a_timed_export_keep_the_scaling_of_the_complete_one(tmp_path):
    """The first export is complete, at step 3, after an evaluation; its scaling is compiled into its programs."""
    settings = (*SCALED, "train.steps=6", "export={every_steps: 3}")
    run = runs.train(case(*settings), tmp_path / "run", stream=io.StringIO())
    first = runs.load(tmp_path / "run", step=2).config.tasks["click"].calibration
    model, rows = sp.serving.load(tmp_path / "run" / "export"), {name: np.arange(IDS) for name in NAMES}
    assert (model.version.step, model.version.delta) == (6, 1)
    last = run.config.tasks["click"].calibration
    assert first != last
    p = np.clip(run.predict(rows)["click"].astype(np.float64), 1e-7, 1 - 1e-7)
    plain = (np.log(p / (1 - p)) - last.intercept) / last.slope
    expected = 1 / (1 + np.exp(-(first.slope * plain + first.intercept)))
    np.testing.assert_allclose(model.predict(rows)["click"], expected, rtol=1e-4)


def test_of_equal_best_steps_the_one_with_the_least_loss_is_used(tmp_path, monkeypatch):
    values = iter([(0.6, 0.1), (0.7, 0.5), (0.7, 0.4), (0.7, 0.45)])
    monkeypatch.setattr(Evaluator, "__call__", lambda *_: dict(zip(("auc", "loss"), next(values), strict=True)))
    best_by = "train.checkpoint={best_by: {metric: auc, mode: max}}"
    run = runs.train(case("evaluate={every_steps: 1}", "train.steps=4", best_by), tmp_path, stream=io.StringIO())
    assert (run.step, run.results["loss"]) == (3, 0.4)
