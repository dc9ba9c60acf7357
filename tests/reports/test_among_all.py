"""Metrics among all items share a chart, and axes do not magnify noise."""

from sparrow.reports.learning import learning_charts
from sparrow.reports.recorded import RecordedRun
from tests.reports.test_page import evaluation, write_run


def run(folder):
    numbers = [(10, 0.20, 0.9000), (20, 0.21, 0.9001)]
    entries = [evaluation(step, catalog_recall_at_20=recall, catalog_mrr=0.1, auc=auc) for step, recall, auc in numbers]
    return write_run(folder / "run", entries)


def test_one_question_is_one_chart(tmp_path):
    charts = {chart.id: chart for chart in learning_charts([RecordedRun.read(run(tmp_path))])}
    assert set(charts) == {"metric-loss", "metric-catalog", "metric-auc"}
    assert [line.name for line in charts["metric-catalog"].series] == ["recall_at_20", "mrr"]
    axis = charts["metric-auc"].y
    assert axis.high - axis.low >= 0.05 * 0.9
