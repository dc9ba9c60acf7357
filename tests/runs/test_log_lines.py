"""Lines of the log show five metrics; the file has all of them."""

import io
import json

from sparrow import runs
from tests.runs.cases import case

MANY = "tasks.click.metrics=[auc, pr_auc, log_loss, mae, mse, rmse, calibration]"


def test_a_line_shows_five_metrics_and_the_one_that_chooses_the_best_step(tmp_path):
    stream = io.StringIO()
    best_by = "train.checkpoint={best_by: {metric: rmse, mode: min}}"
    runs.train(case(MANY, best_by, "train.steps=2"), tmp_path, stream=stream)
    (line,) = [line for line in stream.getvalue().splitlines() if line.startswith("eval")]
    assert [word for word in line.split() if word.isidentifier()][2:] == [
        *("loss", "rmse", "auc", "pr_auc", "log_loss", "and", "more", "in")
    ]
    assert "and 3 more in metrics.jsonl" in line
    entries = [json.loads(each) for each in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert {"mae", "mse", "calibration"} <= next(each for each in entries if each["kind"] == "eval").keys()
