"""Configs of TorchEasyRec: the example of every supported field is read as written."""

import pytest

from sparrow import config, dense, losses, metrics, rules, schedules
from sparrow.data import ComboFeature, IdFeature, Parquet, RawFeature, SequenceFeature
from sparrow.models import MLP, registry
from sparrow.optimizer import LossScale
from tests.config.examples import EVERYTHING


@pytest.fixture(scope="module")
def everything():
    return config.import_config(EVERYTHING, "everything.config")


def test_everything_round_trips(everything):
    assert config.loads(config.dumps(everything)) == everything
    assert config.loads(config.dumps(everything, "json", defaults=True), "json") == everything
    assert config.loads(EVERYTHING, "config", overrides=["train.batch_size=1"]).train.batch_size == 1


def test_training(everything):
    train = everything.train
    # Two micro-batches make a step, so that sizes in TorchEasyRec's steps are halved.
    assert train.sparse_optimizer == rules.RowwiseAdagrad(
        learning_rate=schedules.exponential_decay(
            0.01,
            decay_size=100,
            decay_factor=0.9,
            staircase=False,
            warmup_size=10,
            warmup_learning_rate=1e-4,
            min_learning_rate=1e-4,
        ),
        weight_decay=0.001,
        weight_decay_mode="decouple",
        max_gradient=2.5,
    )
    main = train.dense_optimizer
    assert main.optimizer == dense.Adam(beta1=0.8, beta2=0.99, eps=1e-7, amsgrad=True)
    assert (main.l2, main.weight_decay, main.clip_norm, main.clip_value) == (0.1, 0.0, 5.0, None)
    assert main.learning_rate == schedules.manual_steps(0.003, (50, 100), (0.002, 0.001), warmup=True)
    first, second = main.parts.values()
    assert (first.patterns, first.optimizer) == (("deep/.*",), dense.AdamW())
    assert (first.weight_decay, first.l2) == (0.2, 0.0)
    assert first.learning_rate == schedules.cosine_annealing(
        0.004, t_max=3, warmup_size=1, min_learning_rate=1e-5, by_epoch=True
    )
    # A part without a schedule follows the main one, from its own base rate.
    assert second.learning_rate == schedules.manual_steps(0.5, (50, 100), (0.002, 0.001), warmup=True)
    assert second.optimizer == dense.SGD(momentum=0.8, nesterov=True)
    assert (train.steps, train.epochs, train.batch_size, train.accumulate) == (500, None, 64, 2)
    assert (train.precision, train.loss_scale) == ("float16", LossScale(1024.0, 3.0, 0.25, 100))
    assert (train.ema, train.log_every_steps, train.tensorboard) == (0.99, 25, True)
    assert train.summaries == (
        *("loss", "learning_rate", "parameter", "gradient", "gradient_norm", "global_gradient_norm"),
    )
    assert train.checkpoint == config.Checkpoint(every_steps=250, keep=3)
    assert train.table_optimizers == (config.TableOptimizer(tables=["shop"], optimizer=rules.SGD(0.0)),)
    # Evaluated at every checkpoint.
    assert everything.evaluate == config.Evaluate(
        steps=7, batch_size=128, use_ema=False, log_every_steps=3, every_steps=250
    )
    assert everything.model_dir == "experiments/everything"


def test_data(everything):
    data = everything.data
    assert (data.train, data.evaluate) == (Parquet(("train/*.parquet", "more.parquet")), Parquet("eval.parquet"))
    assert (data.shuffle_rows, data.drop_remainder) == (16 * 64, True)
    assert {feature.name: feature for feature in data.features} == {
        "user": IdFeature(
            "user",
            column="uid",
            table="people",
            num_buckets=100,
            embedding_dim=8,
            pooling="mean",
            default=7,
            separator="|",
        ),
        "friend": IdFeature(
            "friend",
            column="friend",
            table="people",
            num_buckets=100,
            embedding_dim=8,
            pooling="mean",
            separator="\x1d",
        ),
        "item": IdFeature(
            "item", column="iid", hash_bucket_size=1000, embedding_dim=8, separator="\x1d", pooling="sum"
        ),
        "shop": IdFeature(
            "shop",
            column="shop",
            vocabulary={"a": 2, "b": 3, "": 0},
            unknown=1,
            default="",
            embedding_dim=8,
            separator="\x1d",
            pooling="sum",
        ),
        "city": IdFeature("city", column="city", vocabulary="c.txt", embedding_dim=8, separator="\x1d", pooling="sum"),
        "price": RawFeature("price", column="price", dim=2, separator=",", mean=1.5, std=2.0, missing=0.5),
        "clicks": RawFeature("clicks", column="clicks", separator="\x1d", log10_above=0.01, log10_default=-3.0),
        "rank": RawFeature("rank", column="rank", separator="\x1d", mean=1.0, std=10.0),
        "tags": IdFeature(
            "tags",
            column="tags",
            hash_bucket_size=20,
            embedding_dim=8,
            separator="|",
            weight_separator=":",
            pooling="sum",
        ),
        "age": RawFeature("age", column="age", boundaries=(18.0, 30.5), embedding_dim=8, separator="\x1d"),
        "user_shop": ComboFeature("user_shop", cross=("uid", "shop"), hash_bucket_size=50, embedding_dim=8),
        "seen__item": SequenceFeature(
            "seen__item",
            column="seen__iid",
            table="seen_items",
            hash_bucket_size=1000,
            embedding_dim=8,
            max_length=20,
            separator="|",
            keep="first",
            default="0",
            pooling="mean",
        ),
        "bought": SequenceFeature(
            "bought",
            column="bought",
            num_buckets=9,
            embedding_dim=8,
            max_length=5,
            separator=";",
            keep="first",
            default=0,
            pooling="sum",
        ),
    }


def test_model_and_tasks(everything):
    deep = MLP((32, 16), dropout_ratio=(0.1, 0.2), activation="gelu", use_bn=True, bias=False)
    final = MLP((8,), dropout_ratio=0.3, use_ln=True)
    assert everything.model.architecture == registry.make("deepfm", deep=deep, final=final)
    assert everything.model.wide_dim == 2
    assert everything.model.groups == {
        "wide": ("user", "item"),
        "fm": ("user", "friend", "item"),
        "deep": (
            "user",
            "item",
            "shop",
            "city",
            "price",
            "clicks",
            "rank",
            "tags",
            "age",
            "user_shop",
            "seen__item",
            "bought",
        ),
    }
    assert everything.model.tables == (
        config.TableOptions(tables=["people_wide", "item_wide"], initializer={"name": "constant", "value": 0.0}),
        config.TableOptions(tables=["item"], initializer={"name": "uniform", "low": -0.01, "high": 0.02}),
        config.TableOptions(tables=["tags"], dtype="float16"),
    )
    (task,) = everything.tasks.values()
    assert (task.label, task.sample_weight) == ("clk", "weight")
    assert task.losses == (losses.BinaryCrossEntropy(label_smoothing=0.1), losses.BinaryFocal(gamma=1.0, alpha=0.25))
    assert [use.metric for use in task.metrics] == [
        metrics.AUC(thresholds=100),
        metrics.Accuracy(threshold=0.4),
        metrics.GroupedAUC(),
        metrics.NormalizedEntropy(eta=1e-6),
        metrics.MAE(),
        metrics.MSE(),
        metrics.XAUC(sample_ratio=0.5),
        metrics.XAUC(max_pairs=1000),
        metrics.XAUC(in_batch=True),
        metrics.GroupedXAUC(),
    ]
    assert [use.group_by for use in task.metrics if use.group_by] == ["user_key", "user_key"]
    assert [use.metric for use in task.train_metrics] == [
        metrics.DecayedAUC(thresholds=50, decay_rate=0.8, decay_step=10),
        metrics.Decayed(metrics.MAE(), decay_rate=0.9, decay_step=100),
    ]
