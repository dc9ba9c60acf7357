"""A run is trained, and its report is opened in Chromium: every chart is drawn, and its numbers are the run's."""

import io
import json

import numpy as np
import pytest

from sparrow import runs
from sparrow.config import train_pipeline
from tests.reports.browser import chromium, look
from tests.reports.pages import charts, values_drawn
from tests.runs.cases import IDS, NAMES, case

OPTIONS = (
    "train.log_every_steps=4",
    "train.traffic=1",
    "train.sparse_optimizer.learning_rate={name: linear, lr: 0.1, end: 0.01, steps: 40}",
    "evaluate.every_steps=10",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    runs.train(case(*OPTIONS), folder, stream=io.StringIO())
    return folder


@pytest.fixture(scope="module")
def page(run):
    return (run / "report.html").read_text()


def lines(run, kind):
    entries = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [entry for entry in entries if entry["kind"] == kind]


@pytest.mark.parametrize("metric", ["loss", "auc", "exact_auc"])
def test_curves_are_drawn_and_equal_the_log(run, page, metric):
    chart = charts(page)[f"metric-{metric}"]
    kinds = {"loss": ("train", "eval"), "auc": ("train", "eval"), "exact_auc": ("eval",)}[metric]
    assert [series["name"] for series in chart["data"]["series"]] == [
        {"train": "training", "eval": "evaluation"}[kind] for kind in kinds
    ]
    for index, kind in enumerate(kinds):
        logged = [(entry["step"], entry[metric]) for entry in lines(run, kind)]
        assert len(logged) == {"train": 10, "eval": 4}[kind]
        series = chart["data"]["series"][index]
        assert list(zip(series["x"], series["y"], strict=True)) == logged
        np.testing.assert_allclose(values_drawn(chart, index), logged, rtol=2e-3)


def test_rates_speed_and_memory(run, page):
    found, train = charts(page), lines(run, "train")
    rate = found["learning-rate"]["data"]["series"]
    assert [series["name"] for series in rate] == ["dense", "tables"]
    assert rate[1]["y"] == [entry["learning_rate/sparse"] for entry in train]
    assert rate[1]["y"][0] > 5 * rate[1]["y"][-1]
    assert found["examples-per-second"]["data"]["series"][0]["y"] == [entry["examples_per_second"] for entry in train]
    memory = found["host-memory"]["data"]
    scale = {"GB": 1e9, "MB": 1e6}[memory["title"].split(", ")[1]]
    np.testing.assert_allclose(np.array(memory["series"][0]["y"]) * scale, [entry["host_memory"] for entry in train])


def test_roc_and_calibration_are_those_of_the_evaluation(run, page):
    found, last = charts(page), lines(run, "eval")[-1]
    x, y = (np.array(found["roc-click"]["data"]["series"][0][axis]) for axis in "xy")
    area = np.sum(np.diff(x) * (y[1:] + y[:-1]) / 2)
    assert area == pytest.approx(last["exact_auc"], abs=1e-3)
    assert f"{area:.4f}" in found["roc-click"]["caption"]
    calibration = found["calibration-click"]["data"]["series"][0]
    rows = np.array([float(about.split()[0].replace(",", "")) for about in calibration["about"]])
    held = json.loads((run / "curves.json").read_text())["tasks"]["click"]
    assert rows.sum() == np.sum(held["positive"]) + np.sum(held["negative"]) == 2048
    # Groups of rows, put together again, are all rows: as many are positive as the labels say.
    assert rows @ np.array(calibration["y"]) == pytest.approx(np.sum(held["positive"]))
    bars = found["scores-click"]["data"]["series"]
    assert sum(bars[1]["y"]) == np.sum(held["positive"])
    assert found["pr-click"]["data"]["series"][0]["y"][-1] == pytest.approx(np.sum(held["positive"]) / 2048)


def test_traffic_is_what_the_batches_hold(run, page):
    traffic = json.loads((run / "traffic.json").read_text())
    assert traffic["batches"] == traffic["counted"] == 40
    batches = [batch.ids for batch, _ in zip(train_pipeline(case(*OPTIONS)), range(40), strict=False)]
    for name in NAMES:
        ids = np.concatenate([batch[name] for batch in batches])
        rows, counts = np.unique(ids[ids >= 0], return_counts=True)
        table = traffic["tables"][name]
        assert (table["rows"], table["touched"], table["lookups"]) == (IDS, len(rows), counts.sum())
        assert dict(table["hottest"]) == dict(zip(rows, counts, strict=True))
        assert table["unique"]["mean"] == pytest.approx(np.mean([len(np.unique(batch[name])) for batch in batches]))
        assert table["hot"] == {"rows": 1, "lookups": counts.max()}
        assert f"{counts.max():,}</span></li>" in page


@pytest.mark.skipif(chromium() is None, reason="Chromium is not installed; `make chromium` installs it where it can")
class TestInChromium:
    @pytest.mark.parametrize("width", [390, 1280])
    def test_it_works_on_phones_and_desks(self, run, page, width, tmp_path):
        seen, complaints = look(page, tmp_path, width)
        assert not complaints
        assert seen["problems"] == []  # neither errors nor requests
        assert seen["width"] == width
        assert seen["overflow"] <= 0  # nothing to scroll sideways
        assert set(seen["charts"]) == set(charts(page))
        for name, chart in seen["charts"].items():
            assert 250 < chart["width"] < width
            assert chart["smallest_text"] >= 10
            assert chart["hover"], name
            assert all(length > 0 for length in chart["paths"])
        last = lines(run, "train")[-1]
        hover = seen["charts"]["metric-loss"]["hover"]
        assert "optimizer step 36" in hover  # nearest to nine tenths of the way
        assert f"training {lines(run, 'train')[-2]['loss']:.6g}" in hover
        assert seen["charts"]["metric-loss"]["hidden"] == 1  # the legend's first line was switched off
        assert last["step"] == 40

    def test_requests_and_errors_would_be_seen(self, page, tmp_path):
        broken = page.replace("</main>", '<img src="http://127.0.0.1:9/x.png"><script>nothing.there</script></main>')
        seen, _ = look(broken, tmp_path, 390)
        assert any("request: http://127.0.0.1:9" in problem for problem in seen["problems"])
        assert any("nothing is not defined" in problem for problem in seen["problems"])
