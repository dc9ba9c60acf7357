"""Equality with TorchEasyRec's own metrics, really run (tzrec 1.3.16, torchmetrics 1.0.3).

Where the peer is wrong Sparrow differs on purpose; each such test says `peer:` and what the peer does.
"""

import math
from pathlib import Path

import numpy as np
import pytest

from sparrow import metrics
from sparrow.metrics.pointwise import binary_log_loss
from tests.metrics.cases import run

GOLDEN = np.load(Path(__file__).parents[1] / "golden" / "metrics.npz")
equal = pytest.approx
pytestmark = pytest.mark.usefixtures("quick_compiler")


def golden(name):
    return GOLDEN[name.replace("/", ".")]


def data(name, *keys):
    return [golden(f"data_{name}/{key}") for key in keys]


def batches(sizes, predictions, labels, groups=None):
    """Cuts rows into batches, padded with weight 0 to one shape: every metric compiles once."""
    longest, start = len(predictions), 0
    for size in sizes:
        rows = np.minimum(np.arange(start, start + longest), longest - 1)
        batch = {"predictions": predictions[rows], "labels": labels[rows]}
        if groups is not None:
            batch["groups"] = groups[rows]
        yield {**batch, "weights": (np.arange(longest) < size).astype(np.float32)}
        start += size


def value(metric, sizes, *columns):
    return metric.compute(run(metric, *batches(sizes, *columns)))


@pytest.mark.parametrize("split", ["one", "uneven"])
@pytest.mark.parametrize(
    ("case", "thresholds"), [("thr200", 200), ("thr_coarse", 10), ("inside_thr200", 200), ("inside_thr_fine", 1000)]
)
def test_auc(case, thresholds, split):
    p, y = data("binary", "probs_inside" if "inside" in case else "probs", "labels")
    got = value(metrics.AUC(thresholds), golden(f"data_binary/split_{split}"), p, y)
    assert got == equal(golden(f"auc_{case}/value_split_{split}"), rel=1e-6)


def test_auc_histogram_is_the_peers_confusion_matrix():
    p, y = data("binary", "probs", "labels")
    state = run(metrics.AUC(), {"predictions": p, "labels": y})
    confusion = golden("auc_thr200/confmat")  # [threshold, label, called positive]
    for label, name in enumerate(("negative", "positive")):
        called = np.cumsum(metrics.AUC().totals(state)[name][::-1])[::-1]
        np.testing.assert_array_equal(called, confusion[:, label, 1])


def test_auc_of_logits_is_asked_for():
    """peer: takes the sigmoid of a whole batch as soon as one value of it lies outside [0, 1]."""
    z, y = data("binary", "logits", "labels")
    batch = {"predictions": z, "labels": y}
    got = metrics.AUC(from_logits=True).compute(run(metrics.AUC(from_logits=True), batch))
    assert got == equal(golden("auc_logits_sigmoided/value_split_one"), rel=1e-6)
    reason = metrics.AUC().reason(run(metrics.AUC(), batch))
    assert "predictions are not in [0, 1] (for logits, set from_logits=True)" in reason


@pytest.mark.parametrize(("case", "missing"), [("all_negative", "positive"), ("all_positive", "negative")])
def test_auc_of_one_class_is_not_defined(case, missing):
    """peer: 0."""
    batch = {"predictions": golden(f"auc_{case}/probs"), "labels": golden(f"auc_{case}/labels")}
    state = run(metrics.AUC(), batch)
    assert golden(f"auc_{case}/value") == 0
    assert math.isnan(metrics.AUC().compute(state))
    assert metrics.AUC().reason(state) == f"AUC: no {missing} labels"


@pytest.mark.parametrize("split", ["one", "even", "uneven"])
def test_exact_and_grouped_auc(split):
    p, y, groups = data("binary", "probs", "labels", "groups")
    sizes = golden(f"data_binary/split_{split}")
    assert value(metrics.ExactAUC(), sizes, p, y) == equal(golden("auc_thr200/exact_auc"), rel=1e-12)
    state = run(metrics.GroupedAUC(), *batches(sizes, p, y, groups))
    assert metrics.GroupedAUC().compute(state) == equal(golden(f"grouped_auc/value_split_{split}"), rel=1e-6)
    assert metrics.GroupedAUC().compute(state) == equal(golden("grouped_auc/exact_grouped_auc"), rel=1e-12)
    assert metrics.GroupedAUC().details(state) == {"groups": 14, "left_out_groups": 5}


def test_grouped_auc_without_a_group_of_both_classes():
    p, y, groups = (golden(f"grouped_auc_no_valid_group/{key}") for key in ("probs", "labels", "groups"))
    state = run(metrics.GroupedAUC(), {"predictions": p, "labels": y, "groups": groups})
    assert math.isnan(golden("grouped_auc_no_valid_group/value"))
    assert math.isnan(metrics.GroupedAUC().compute(state))
    assert metrics.GroupedAUC().reason(state) == "GroupedAUC: every group has one class only"


@pytest.mark.parametrize("split", ["one", "uneven"])
@pytest.mark.parametrize("average", ["macro", "weighted"])
@pytest.mark.parametrize(("suffix", "thresholds"), [("thr200", 200), ("coarse", 50)])
def test_multiclass_auc(average, suffix, thresholds, split):
    p, y = data("multiclass", "probs", "labels")
    metric = metrics.MulticlassAUC(num_classes=4, thresholds=thresholds, average=average)
    got = value(metric, golden(f"data_multiclass/split_{split}"), p, y)
    assert got == equal(golden(f"multiclass_auc_{average}_{suffix}/value_split_{split}"), rel=1e-6)


@pytest.mark.parametrize("split", ["one", "even", "uneven"])
def test_errors_and_in_batch_xauc(split):
    p, y = data("regression", "preds", "targets")
    sizes = golden(f"data_regression/split_{split}")
    cases = {"mae": metrics.MAE(), "mse": metrics.MSE(), "xauc_in_batch": metrics.XAUC(in_batch=True)}
    for name, metric in cases.items():
        assert value(metric, sizes, p, y) == equal(golden(f"{name}/value_split_{split}"), rel=1e-6)


def test_in_batch_xauc_skips_a_batch_without_pairs():
    """peer: NaN for good after a batch of one row."""
    p, y = data("regression", "preds", "targets")
    metric = metrics.XAUC(in_batch=True)
    assert math.isnan(golden("xauc_in_batch_with_batch_of_one/value"))
    assert value(metric, [5, 1], p, y) == value(metric, [5], p, y)


def test_exact_and_sampled_xauc():
    """peer: draws no pair at all from few rows at the default ratio, and rows out of range from 5000 rows up."""
    p, y = data("regression", "preds", "targets")
    batch = {"predictions": p, "labels": y}
    exact = golden("xauc_in_batch/exact_xauc")
    assert metrics.XAUC().compute(run(metrics.XAUC(), batch)) == equal(exact, rel=1e-12)
    peer_runs = golden("xauc_sampled_ratio/values_200_runs")
    one = metrics.XAUC(sample_ratio=0.1)
    assert one.details(run(one, batch)) == {"pairs": 2868}
    # Both are means of the same number of draws: of the same spread, around the exact value.
    runs = [metrics.XAUC(sample_ratio=0.1, seed=seed) for seed in range(200)]
    values = np.array([metric.compute(run(metric, batch)) for metric in runs])
    deviation = math.sqrt(exact * (1 - exact) / 2868)
    assert abs(values.mean() - exact) < 4 * deviation / math.sqrt(200)
    assert abs(peer_runs.mean() - exact) < 4 * deviation / math.sqrt(200)
    assert values.std() == equal(deviation, rel=0.2)
    few = {"predictions": p[:5], "labels": y[:5]}
    assert 0 <= metrics.XAUC(sample_ratio=1e-3).compute(run(metrics.XAUC(sample_ratio=1e-3), few)) <= 1


def test_grouped_xauc_is_exact():
    """peer: samples pairs with replacement even where it could take them all; its mean of 200 runs is near."""
    p, y, groups = data("regression", "preds", "targets", "groups")
    state = run(metrics.GroupedXAUC(), {"predictions": p, "labels": y, "groups": groups})
    got = metrics.GroupedXAUC().compute(state)
    assert got == equal(golden("grouped_xauc/exact_grouped_xauc"), rel=1e-12)
    peer = golden("grouped_xauc_many_pairs/values_200_runs")
    assert abs(peer.mean() - got) < 4 * peer.std() / math.sqrt(200)
    assert metrics.GroupedXAUC().details(state)["groups"] == golden("grouped_xauc/exact_group_ids").size


@pytest.mark.parametrize("split", ["one", "uneven"])
@pytest.mark.parametrize(
    ("case", "column", "eta"),
    [("ne", "probs_inside", 1e-12), ("ne_exact_zeros_ones", "probs", 1e-12), ("ne_eta", "probs_inside", 1e-3)],
)
def test_normalized_entropy(case, column, eta, split):
    p, y = data("binary", column, "labels")
    got = value(metrics.NormalizedEntropy(eta=eta), golden(f"data_binary/split_{split}"), p, y)
    assert got == equal(golden(f"{case}/value_split_{split}"), rel=1e-6)


def test_normalized_entropy_where_eta_matters():
    p, y = data("binary", "probs_inside", "labels")
    assert value(metrics.NormalizedEntropy(eta=0.45), [40], p, y) == equal(
        golden("ne_big_eta/value_split_one"), rel=1e-6
    )
    for case, label in (("all_negative", 0), ("all_positive", 1)):
        got = value(metrics.NormalizedEntropy(eta=1e-6), [10], p[:10], np.full(10, label))
        assert got == equal(golden(f"ne_{case}/value"), rel=1e-6)


def test_normalized_entropy_of_two_columns():
    """peer: raises with two classes."""
    p, y = data("binary", "probs_inside", "labels")
    batch = {"predictions": np.stack([1 - p, p], axis=1), "labels": y}
    got = metrics.NormalizedEntropy().compute(run(metrics.NormalizedEntropy(), batch))
    assert got == equal(golden("ne/value_split_one"), rel=1e-6)


@pytest.mark.parametrize("split", ["one", "uneven"])
@pytest.mark.parametrize(("case", "top_k"), [("at_1", 1), ("at_k", 3), ("at_more_than_columns", 11)])
def test_recall(case, top_k, split):
    scores, targets = golden(f"recall_{case}/scores"), golden(f"recall_{case}/targets")
    sizes = [20] if split == "one" else [2, 17, 1]
    expected = golden(f"recall_{case}/value_split_{split}")
    assert value(metrics.RecallAtK(top_k), sizes, scores, targets) == equal(expected, rel=1e-6)


def test_recall_of_match_models():
    for case, labels in (("in_batch", np.arange(20)), ("sampled", np.zeros(20, int))):
        similarity = golden(f"recall_match_{case}/similarity")
        got = value(metrics.RecallAtK(top_k=2), [20], similarity, labels)
        assert got == equal(golden(f"recall_match_{case}/value"), rel=1e-6)


@pytest.mark.parametrize(("case", "epsilon"), [("relative_l1", 1e-4), ("relative_l1_eps", 0.05)])
def test_relative_l1(case, epsilon):
    columns = golden(f"{case}/preds"), golden(f"{case}/targets")
    for split, sizes in (("one", [15]), ("uneven", [4, 11])):
        got = value(metrics.RelativeL1(epsilon), sizes, *columns)
        assert got == equal(golden(f"{case}/value_split_{split}"), rel=1e-6)


@pytest.mark.parametrize("split", ["one", "uneven", "with_empty"])
def test_unique_ratio(split):
    codes = golden("unique_ratio/codes")
    got = value(metrics.UniqueRatio(), golden(f"unique_ratio/split_{split}"), codes, codes)
    assert got == equal(golden(f"unique_ratio/value_split_{split}"), rel=1e-6)


def test_accuracy():
    p, y = data("binary", "probs", "labels")
    for case, threshold in (("", 0.5), ("_thr", 0.3)):
        got = value(metrics.Accuracy(threshold), [360], p, y)
        assert got == equal(golden(f"accuracy_binary{case}/value_split_one"), rel=1e-6)
    p, y = data("multiclass", "probs", "labels")
    for top_k in (1, 2):
        got = value(metrics.Accuracy(top_k=top_k), [360], p, y)
        assert got == equal(golden(f"accuracy_multiclass_top{top_k}/value_split_one"), rel=1e-6)


def after_every_update(metric, sizes, *columns):
    state, values = metric.init(), []
    for batch in batches(sizes, *columns):
        state = metric.update(state, **batch)
        values.append(metric.compute(state))
    return np.array(values)


TRAINED = {
    "auc": (lambda step: metrics.DecayedAUC(decay_step=step), ("binary", "probs", "labels")),
    "mae": (lambda step: metrics.Decayed(metrics.MAE(), decay_step=step), ("regression", "preds", "targets")),
    "mse": (lambda step: metrics.Decayed(metrics.MSE(), decay_step=step), ("regression", "preds", "targets")),
    "accuracy": (lambda step: metrics.Decayed(metrics.Accuracy(), decay_step=step), ("binary", "probs", "labels")),
    "accuracy_mc": (
        lambda step: metrics.Decayed(metrics.Accuracy(), decay_step=step),
        ("multiclass", "probs", "labels"),
    ),
    "xauc": (
        lambda step: metrics.Decayed(metrics.XAUC(in_batch=True), decay_step=step),
        ("regression", "preds", "targets"),
    ),
}


@pytest.mark.parametrize(("suffix", "step"), [("step1", 1), ("stepk", 3)])
@pytest.mark.parametrize("case", TRAINED)
def test_decayed_metrics(case, suffix, step):
    """peer: 0 before the first window ends; here it is NaN."""
    make, source = TRAINED[case]
    sizes = golden(f"data_train_splits/split_{'regression' if source[0] == 'regression' else 'binary'}")
    values, expected = after_every_update(make(step), sizes, *data(*source)), golden(f"train_{case}_{suffix}/values")
    assert np.isnan(values[: step - 1]).all()
    assert not expected[: step - 1].any()
    np.testing.assert_allclose(values[step - 1 :], expected[step - 1 :], rtol=1e-6)


def test_decayed_auc_keeps_the_peers_histogram():
    p, y = data("binary", "probs", "labels")
    metric = metrics.DecayedAUC(decay_rate=0.9, decay_step=2)
    state, confusion = metric.init(), golden("decay_auc/confmat")
    for index, batch in enumerate(batches(golden("decay_auc/split"), p, y)):
        state = metric.update(state, **batch)
        called = np.cumsum(metrics.AUC().totals(state.average)["positive"][::-1])[::-1]
        np.testing.assert_allclose(called, confusion[index, :, 1, 1], rtol=1e-6)
        if index:
            assert metric.compute(state) == equal(golden("decay_auc/values")[index], rel=1e-6)


def test_decayed_auc_has_no_stale_value():
    """peer: update, compute, decay, compute returns the value from before the decay."""
    p, y = (column[:180] for column in data("binary", "probs", "labels"))
    metric = metrics.DecayedAUC(decay_step=2)
    first, second = batches([90, 90], p, y)
    state = metric.update(metric.init(), **first)
    assert math.isnan(metric.compute(state))
    assert metric.compute(metric.update(state, **second)) == equal(
        golden("decay_auc_stale_cache/value_fresh"), rel=1e-6
    )


def test_decay_rate():
    p, y = data("regression", "preds", "targets")
    metric = metrics.Decayed(metrics.MAE(), decay_rate=0.5, decay_step=2)
    values = after_every_update(metric, golden("data_train_splits/split_regression"), p, y)
    np.testing.assert_allclose(values[1:], golden("train_default_rate/values")[1:], rtol=1e-6)


def test_a_value_of_zero_is_a_value():
    """peer: takes 0 for "no value yet", so that the next window replaces it."""
    p, y = golden("train_zero_value_rule/preds"), golden("train_zero_value_rule/targets")
    metric = metrics.Decayed(metrics.MAE(), decay_rate=0.9, decay_step=1)
    values = after_every_update(metric, [2] * 4, p.reshape(-1), y.reshape(-1))
    np.testing.assert_allclose(golden("train_zero_value_rule/values")[:2], [0, 1.5])
    errors, expected = [0, 1.5, 4, 0], [0]
    for error in errors[1:]:
        expected.append(0.9 * expected[-1] + 0.1 * error)
    np.testing.assert_allclose(values, expected, rtol=1e-6)


def test_mean_of_losses():
    z, y = data("binary", "logits", "labels")
    losses = np.asarray(binary_log_loss(z, y.astype(np.float32), from_logits=True))
    got = value(metrics.Mean(), golden("data_binary/split_uneven"), losses, y)
    assert got == equal(golden("loss_mean_metric/value"), rel=1e-6)
