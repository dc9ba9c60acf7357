"""Best steps, epochs, smoothed lines, lines that hide each other, sizes, times: the data behind each of them."""

import json
import math

import pytest

from sparrow.reports import compare
from sparrow.reports.learning import smoothed
from sparrow.reports.recorded import RecordedRun
from sparrow.reports.tiles import seconds, speed, tiles
from tests.reports.pages import charts
from tests.reports.test_page import evaluation, page_of, train, write_run

STOPPING = "evaluate: {early_stopping: {metric: auc, mode: max, patience: 2}}\n"
ENVIRONMENT = {
    "sessions": [
        {
            "began": 1e9,
            "step": 0,
            "ended": "stopped early: no better auc than 0.8 in 2 evaluations",
            "seconds": {"training": 6.0, "evaluation": 3.0, "compilation": 1.0},
            "examples_per_second": 1234.5,
        }
    ],
    "epoch_ends": [10, 20, 30, 40],
    "model": {"tables": 2, "table_rows": 500, "table_parameters": 8000, "dense_parameters": 321},
    "training_rows": 640,
    "evaluation_rows": 64,
}


@pytest.fixture
def stopped(tmp_path):
    """A run that was best at step 20 of 40."""
    scores = {10: 0.7, 20: 0.8, 30: 0.75, 40: 0.79}
    entries = [train(step) for step in range(1, 41)] + [evaluation(step, auc=auc) for step, auc in scores.items()]
    folder = write_run(tmp_path / "run", entries, STOPPING)
    (folder / "environment.json").write_text(json.dumps(ENVIRONMENT))
    counts = {"score": [0.1, 0.9], "positive": [1.0, 3.0], "negative": [4.0, 0.0]}
    worse = {"score": [0.1, 0.9], "positive": [3.0, 1.0], "negative": [0.0, 4.0]}
    curves = {"step": 40, "tasks": {"click": worse}, "best": {"step": 20, "tasks": {"click": counts}}}
    (folder / "curves.json").write_text(json.dumps(curves))
    return folder


def test_the_best_step_is_marked_and_its_numbers_come_first(stopped, tmp_path):
    page = page_of(stopped, output=tmp_path / "out.html")
    found = charts(page)
    for name in ("metric-loss", "metric-auc"):
        assert found[name]["data"]["marks"] == [[20, "best, step 20"]]
    assert page.count('class="ring"') == 1  # on the metric that decides
    shown = {tile.name: (tile.value, tile.note) for tile in tiles(RecordedRun.read(stopped))}
    assert shown["auc"] == ("0.8000", "at the end 0.7900")
    assert shown["best step by auc"] == ("20", "of 40, epoch 2")
    assert "Stopped early at step 40" in page
    assert "no better auc than 0.8 in 2 evaluations" in page
    assert "From the best evaluation, after step 20." in page
    assert "area 0.8750" in found["roc-click"]["caption"]


@pytest.mark.parametrize(("mode", "step"), [("max", 20), ("min", 10)])
def test_the_criterion_of_checkpoints_decides_first(stopped, mode, step):
    (stopped / "config.yaml").write_text(
        f"train: {{checkpoint: {{best_by: {{metric: auc, mode: {mode}}}}}}}\n{STOPPING}"
    )
    assert RecordedRun.read(stopped).best.step == step


def test_runs_without_a_criterion_show_their_end(stopped, tmp_path):
    (stopped / "config.yaml").write_text("train: {}\n")
    (stopped / "curves.json").write_text(json.dumps({"step": 40, "tasks": {}}))
    run = RecordedRun.read(stopped)
    assert run.best is None
    assert next(tile for tile in tiles(run) if tile.name == "auc").value == "0.7900"
    assert charts(page_of(stopped, output=tmp_path / "out.html"))["metric-auc"]["data"]["marks"] == []


def test_compared_runs_show_their_best(stopped, tmp_path):
    other = write_run(tmp_path / "other", [evaluation(5, auc=0.6)])
    assert compare([stopped, other]).numbers["auc"] == [0.8, 0.6]
    page = page_of(stopped, other, output=tmp_path / "out.html")
    assert '<th scope="row">best step</th><td>20</td><td>—</td>' in page


def test_epochs_are_an_axis(stopped, tmp_path):
    chart = charts(page_of(stopped, output=tmp_path / "out.html"))["metric-auc"]
    assert chart["data"]["epochs"] == [10, 20, 30, 40]
    run = RecordedRun.read(stopped)
    assert [run.epoch_at(step) for step in (0, 5, 10, 25, 40, 45)] == [0, 0.5, 1, 2.5, 4, 4.5]
    (stopped / "environment.json").write_text(json.dumps({"epoch_ends": list(range(5, 205, 5))}))
    page = page_of(stopped, output=tmp_path / "out.html")
    axis = page.partition('class="axis epochs"')[2].partition("</g>")[0]
    assert 4 <= axis.count("<path") <= 8  # of 40 epochs


def test_training_loss_is_smoothed_with_each_line_behind_it(tmp_path):
    entries = [train(step, loss=1 + (-1) ** step / 2, auc=0.5) for step in range(1, 101)]
    chart = charts(page_of(write_run(tmp_path / "run", entries), output=tmp_path / "out.html"))["metric-loss"]
    raw, smooth = chart["data"]["series"]
    assert (raw["name"], smooth["name"]) == ("training, each line", "training")
    assert raw["y"] == [entry["loss"] for entry in entries]
    assert max(abs(y - 1) for y in smooth["y"][5:-5]) < 0.2
    assert "training is smoothed" in chart["notes"][0]


def test_smoothing_keeps_gaps_and_does_not_lag():
    assert smoothed([1.0] * 10) is None
    line = smoothed([float(x) for x in range(100)])
    assert line[50] == pytest.approx(50)
    with_gap = smoothed([1.0] * 30 + [math.nan] + [1.0] * 30)
    assert math.isnan(with_gap[30])
    assert with_gap[31] == pytest.approx(1.0)


def test_lines_that_hide_each_other_are_told_apart(tmp_path):
    entries = [evaluation(step, auc=0.5 + step / 100) for step in range(1, 9)]
    same = [write_run(tmp_path / name, entries) for name in "ab"]
    other = write_run(tmp_path / "c", [evaluation(step, auc=0.9 - step / 100) for step in range(1, 9)])
    page = page_of(*same, other, output=tmp_path / "out.html")
    chart = charts(page)["metric-auc"]
    assert chart["notes"] == ["“b, evaluation” lies on “a, evaluation”"]
    body = page.partition('id="metric-auc"')[2].partition("</figure>")[0]
    assert 'class="series c1 d0 over" data-series="1"' in body
    assert 'class="series c2 d0" data-series="2"' in body


def test_rows_parameters_speed_and_times(stopped, tmp_path):
    run = RecordedRun.read(stopped)
    shown = {tile.name: (tile.value, tile.note) for tile in tiles(run)}
    assert shown["training rows"] == ("640", "evaluation 64")
    assert shown["table rows"] == ("500", "in 2 tables")
    assert shown["parameters"] == ("8,321", "321 outside of tables")
    assert shown["examples per second"] == ("1,234", "training steps alone")
    assert speed(run) == 1234.5
    assert seconds(run) == {"training": 6.0, "compilation": 1.0, "evaluation": 3.0}
    page = page_of(stopped, output=tmp_path / "out.html")
    assert "training steps <b>6 s</b> <small>60.0%</small>" not in page  # only beside charts of speed
    (stopped / "metrics.jsonl").write_text(json.dumps(train(1, examples_per_second=5.0)) + "\n")
    assert "training steps <b>6 s</b> <small>60.0%</small>" in page_of(stopped, output=tmp_path / "out.html")


@pytest.mark.parametrize(
    ("counted", "heading"), [(3, "<h2>Tables <small>sampled</small></h2>"), (9, "<h2>Tables</h2>")]
)
def test_sampled_tables_are_so_in_their_heading(tmp_path, counted, heading):
    folder = write_run(tmp_path / "run", [train(1)])
    table = {
        "rows": 5,
        "lookups": 8,
        "touched": 2,
        "unique": {"mean": 2.0, "least": 1, "most": 2},
        "hottest": [[3, 6], [1, 2]],
        "words": ["a <b>", None],
        "by_rank": [[1, 6], [2, 2]],
        "hot": {"rows": 1, "lookups": 6},
        "error": 0,
    }
    traffic = {"batches": 9, "counted": counted, "tables": {"item": table}}
    (folder / "traffic.json").write_text(json.dumps(traffic))
    page = page_of(folder, output=tmp_path / "out.html")
    assert heading in page
    assert '<span class="id" title="row 3">a &lt;b&gt;</span>' in page
    assert '<span class="id" title="row 1">row 1</span>' in page
