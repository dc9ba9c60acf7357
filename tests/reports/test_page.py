"""Reports of runs as they come: unfinished, without evaluation, with gaps, very long, with hostile names; compared."""

import json
import math
import re

import pytest

from sparrow.cli import main
from sparrow.reports import write_report
from sparrow.reports.chart import MOST
from tests.reports.pages import charts


def write_run(folder, entries, config="train: {batch_size: 4}\n", end=""):
    folder.mkdir(parents=True)
    text = "".join(json.dumps(entry) + "\n" for entry in entries)
    (folder / "metrics.jsonl").write_text(text + end)
    (folder / "config.yaml").write_text(config)
    return folder


def train(step, **values):
    return {"kind": "train", "step": step, "time": 1e9 + step, "loss": 1 / step, **values}


def evaluation(step, **values):
    return {"kind": "eval", "step": step, "time": 1e9 + step, "loss": 2 / step, **values}


def page_of(*folders, output):
    return write_report(folders, output).read_text()


def test_one_single_point(tmp_path):
    page = page_of(write_run(tmp_path / "run", [train(3)]), output=tmp_path / "out.html")
    chart = charts(page)["metric-loss"]
    assert chart["data"]["series"][0]["y"] == [1 / 3]
    assert page.count("<circle") == 1  # a line of one point would not show
    assert "There is no evaluation yet" in page
    assert "<h2>Tables</h2>" not in page  # nothing was counted
    assert "Not finished: the last line is at step 3" in page


def test_an_unfinished_last_line_is_no_mistake(tmp_path):
    folder = write_run(tmp_path / "run", [train(1), train(2)], end='{"kind": "train", "st')
    chart = charts(page_of(folder, output=tmp_path / "out.html"))["metric-loss"]
    assert chart["data"]["series"][0]["x"] == [1, 2]


def test_values_that_are_not_defined_are_gaps(tmp_path):
    entries = [train(step, auc=None if step in (3, 5) else 0.5 + step / 100) for step in range(1, 8)]
    page = page_of(write_run(tmp_path / "run", entries), output=tmp_path / "out.html")
    chart = charts(page)["metric-auc"]
    assert chart["data"]["series"][0]["y"][2] is None
    assert len(chart["drawn"][0]) == 5
    path = re.search(r'id="metric-auc">.*?<g class="series [^"]*" data-series="0"><path d="([^"]*)"/>(<circle)?', page)
    assert path.group(1).count("M") == 3  # three pieces
    assert path.group(2)  # of which one is a single point
    assert "2 points without a value" in chart["notes"][0]


def test_metrics_that_are_never_defined(tmp_path):
    page = page_of(
        write_run(tmp_path / "run", [train(1, auc=None), evaluation(1, auc=None)]), output=tmp_path / "o.html"
    )
    assert charts(page)["metric-auc"]["drawn"] == {0: [], 1: []}
    assert "not defined" in page


def test_thousands_of_points_are_thinned_and_peaks_stay(tmp_path):
    entries = [train(step, auc=0.9 if step == 7777 else 0.5 + math.sin(step) / 10) for step in range(1, 20_001)]
    chart = charts(page_of(write_run(tmp_path / "run", entries), output=tmp_path / "out.html"))["metric-auc"]
    series = chart["data"]["series"][0]
    assert MOST / 2 < len(series["x"]) <= MOST
    assert (series["x"][0], series["x"][-1]) == (1, 20_000)
    assert series["y"][series["x"].index(7777)] == 0.9
    assert f"{len(series['x']):,} of 20,000 points" in chart["notes"][0]


def test_a_run_that_went_on_is_one_line(tmp_path):
    """Lines after the checkpoint that it went on from were written twice; the later ones count."""
    entries = [train(1), train(2), train(3), {**train(2), "loss": 5.0}, train(4)]
    series = charts(page_of(write_run(tmp_path / "run", entries), output=tmp_path / "o.html"))["metric-loss"]["data"]
    assert (series["series"][0]["x"], series["series"][0]["y"][1]) == ([1, 2, 4], 5.0)


def test_names_are_never_markup(tmp_path):
    name = "<script>alert(1)</script>\"'&amp;"
    folder = write_run(
        tmp_path / "<b>run", [train(1, **{name: 1.0}), train(2, **{name: 2.0})], f"train: {{name: {name!r}}}\n"
    )
    traffic = {"rows": 10, "lookups": 3, "touched": 2, "unique": {"mean": 1.5, "least": 1, "most": 2}}
    traffic |= {"hottest": [[4, 2], [5, 1]], "by_rank": [[1, 2], [2, 1]], "hot": {"rows": 1, "lookups": 2}, "error": 0}
    (folder / "traffic.json").write_text(json.dumps({"batches": 2, "counted": 2, "tables": {name: traffic}}))
    (folder / "environment.json").write_text(json.dumps({"machine": {name: name}, "versions": {}}))
    page = page_of(folder, output=tmp_path / "out.html")
    assert "<script>alert" not in page
    assert "<b>run" not in page
    assert page.count("&lt;script&gt;alert(1)") >= 4  # the metric, the config, the table, the machine
    assert len(charts(page)) == 3


def test_runs_are_compared(tmp_path):
    first = write_run(tmp_path / "a" / "run", [train(1), train(2), evaluation(2, auc=0.7)])
    second = write_run(tmp_path / "b" / "run", [train(1), evaluation(1, mae=0.2)], "train: {batch_size: 8}\n")
    page = page_of(first, second, output=tmp_path / "out.html")
    found = charts(page)
    names = [series["name"] for series in found["metric-loss"]["data"]["series"]]
    assert names == ["a/run, training", "a/run, evaluation", "b/run, training", "b/run, evaluation"]
    assert [series["color"] for series in found["metric-loss"]["data"]["series"]] == [0, 0, 1, 1]
    assert [series["name"] for series in found["metric-auc"]["data"]["series"]] == ["a/run, evaluation"]
    assert '<th scope="row">train.batch_size</th><td>4</td><td>8</td>' in page
    assert '<th scope="row">auc</th><td>0.7000</td><td>—</td>' in page
    assert "auc is in a/run only; mae is in b/run only" in page


def mistakes(folder):
    write_run(folder / "run", [train(1)])
    write_run(folder / "damaged", [train(1)], end="{not json\n" + json.dumps(train(2)) + "\n")
    write_run(folder / "empty", [])
    write_run(folder / "other", [train(1)]).joinpath("traffic.json").write_text("{")
    (folder / "nothing").mkdir()
    (folder / "file").write_text("")
    return {
        ("nowhere",): "nowhere: there is no such folder",
        ("nothing",): "nothing: there is no run: the file metrics.jsonl is missing",
        ("empty",): "holds no numbers yet",
        ("damaged",): "damaged/metrics.jsonl, line 2: is not a line of metrics",
        ("other",): "traffic.json: is not JSON",
        ("run", "run"): "is given twice",
        ("run", "--output", "file/report.html"): "cannot be written",
    }


def test_mistakes_are_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arguments, message in mistakes(tmp_path).items():
        assert main(["report", *arguments]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert len(error.splitlines()) == 1


def test_the_command_says_where_it_is_and_what_is_not_shared(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "a", [evaluation(1, auc=0.5)])
    write_run(tmp_path / "b", [evaluation(1)])
    assert main(["report", "a"]) == 0
    assert capsys.readouterr().out.strip() == "a/report.html"
    assert main(["report", "a", "b"]) == 0
    out, error = capsys.readouterr()
    assert out.strip() == "report.html"
    assert error.strip() == "sparrow: Not every run has every number: auc is in a only."


@pytest.mark.parametrize("values", [[0.0, 0.0], [1e-12, 3e-12], [-5.0, 1e9], [1e300, 2e300], [float("nan")]])
def test_axes_hold_any_values(values):
    from sparrow.reports.axis import Axis
    from sparrow.reports.formatting import compact

    for log in (False, True):
        axis = Axis.around(values, "", log=log)
        places = [axis.at(value) for value in values if math.isfinite(value) and (value > 0 or not log)]
        assert all(-1e-9 <= place <= 1 + 1e-9 for place in places)
        assert len(axis.ticks) >= 2
        assert all(compact(tick) for tick in axis.ticks)
