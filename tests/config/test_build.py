"""What a config builds equals what a person would write by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sparrow as sp
from sparrow import config, dense, losses, metrics, models, schedules
from sparrow.config import ConfigError, DenseOptimizer, MetricUse, Task
from sparrow.feed import NEGATIVE_IDS, POSITIVE_IDS
from sparrow.optimizer import LossScale
from sparrow.tasks import named_metrics, total_loss
from tests.config.examples import valid

PARAMS = {"tower": {"kernel": jnp.array([[1.0, -2.0], [0.5, 3.0]]), "bias": jnp.array([0.1, 0.2])}, "head": jnp.ones(3)}
GRADS = jax.tree.map(lambda p: 3.0 * jnp.cos(p), PARAMS)


def run(tx, steps=3):
    """The parameters after a few updates, computed without jit: the programs are tiny."""
    params, state = PARAMS, tx.init(PARAMS)
    for _ in range(steps):
        updates, state = tx.update(GRADS, state, params)
        params = jax.tree.map(jnp.add, params, updates)
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params)])


CASES = {
    "plain": ({"optimizer": "adam", "learning_rate": 0.1}, lambda: dense.build("adam", 0.1)[0]),
    "hyper-parameters": (
        {"optimizer": {"name": "sgd", "momentum": 0.9, "nesterov": True}, "learning_rate": 0.1},
        lambda: dense.build("sgd", 0.1, momentum=0.9, nesterov=True)[0],
    ),
    "decay, mask and clipping": (
        {
            "optimizer": "adamw",
            "learning_rate": 0.1,
            "weight_decay": 0.5,
            "weight_decay_mask": [".*kernel"],
            "clip_norm": 1.0,
            "clip_value": 0.5,
        },
        lambda: dense.build(
            "adamw", 0.1, weight_decay=0.5, weight_decay_mask=r".*kernel", clip_norm=1.0, clip_value=0.5
        )[0],
    ),
    "l2": (
        {"optimizer": "adagrad", "learning_rate": 0.1, "l2": 0.3},
        lambda: dense.build("adagrad", 0.1, l2=0.3)[0],
    ),
    "schedule": (
        {"optimizer": "sgd", "learning_rate": {"name": "linear", "lr": 1.0, "end": 0.0, "steps": 4}},
        lambda: dense.build("sgd", schedules.linear(1.0, 0.0, 4))[0],
    ),
    "parts": (
        {
            "optimizer": "sgd",
            "learning_rate": 0.1,
            "clip_norm": 2.0,
            "parts": {
                "tower": {"patterns": ["tower/kernel"], "optimizer": "adam", "learning_rate": 0.5, "l2": 0.1},
                "frozen": {"patterns": ["head"], "optimizer": "sgd", "learning_rate": 0.0},
            },
        },
        lambda: dense.build_parts(
            dense.build("sgd", 0.1),
            {"tower": dense.part("tower/kernel", "adam", 0.5, l2=0.1), "frozen": dense.part("head")},
            clip_norm=2.0,
        )[0],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_dense_optimizer(name):
    section, by_hand = CASES[name]
    tx, _ = config.dense_optimizer(DenseOptimizer(**section))
    np.testing.assert_array_equal(run(tx), run(by_hand()))
    # The comparison can tell: a slightly different rate gives other numbers.
    other, _ = config.dense_optimizer(
        DenseOptimizer(**section | {"learning_rate": 0.11}) if name != "schedule" else DenseOptimizer(**CASES["l2"][0])
    )
    assert not np.array_equal(run(other), run(by_hand()))


def test_schedules_of_parts_by_name():
    section = DenseOptimizer(**CASES["parts"][0])
    _, by_name = config.dense_optimizer(section)
    assert {name: float(schedule(0)) for name, schedule in by_name.items()} == pytest.approx(
        {"main": 0.1, "tower": 0.5, "frozen": 0.0}
    )


def test_rules_by_table():
    train = config.from_mapping(
        valid(
            train__table_optimizers=[
                {"tables": ["items"], "optimizer": {"name": "adam", "learning_rate": 0.5}},
                {"tables": ["user_.*"], "optimizer": {"name": "sgd", "learning_rate": 0.0}},
            ]
        )
    ).train
    built = config.table_rules(train, ["items", "user_id", "user_age", "items_2"])
    default = sp.rules.RowwiseAdagrad(learning_rate=0.05)
    frozen = sp.rules.SGD(learning_rate=0.0)
    assert built == {"items": sp.rules.Adam(0.5), "user_id": frozen, "user_age": frozen, "items_2": default}
    with pytest.raises(ConfigError, match=r"^train.table_optimizers: pattern 'items' fully matches none of the names"):
        config.table_rules(train, ["user_id"])


def test_epochs_become_steps():
    by_epoch = {"name": "exponential_decay", "lr": 1.0, "decay_size": 2, "decay_factor": 0.5, "by_epoch": True}
    part = {"patterns": [".*"], "optimizer": "sgd", "learning_rate": by_epoch}
    loaded = config.from_mapping(
        valid(
            train__dense_optimizer={"optimizer": "adam", "learning_rate": by_epoch, "parts": {"all": part}},
            train__sparse_optimizer={"name": "sgd", "learning_rate": by_epoch},
            train__table_optimizers=[{"tables": ["t"], "optimizer": {"name": "adam", "learning_rate": by_epoch}}],
        )
    )
    assert config.counts_epochs(loaded)
    told = config.epochs_in_steps(loaded, 10)
    assert not config.counts_epochs(told)
    assert config.loads(config.dumps(told)) == told
    expected = schedules.exponential_decay(1.0, 2, 0.5, steps_per_epoch=10)
    _, by_name = config.dense_optimizer(told.train.dense_optimizer)
    assert by_name == {"main": expected, "all": expected}
    rules = config.table_rules(told.train, ["t", "u"])
    assert (rules["t"], rules["u"]) == (sp.rules.Adam(expected), sp.rules.SGD(expected))
    train = loaded.train
    with pytest.raises(ConfigError, match=r"^train.dense_optimizer.parts.all.learning_rate: counts epochs"):
        config.dense_optimizer(train.dense_optimizer)
    with pytest.raises(ConfigError, match=r"^train.table_optimizers\[0\].optimizer.learning_rate: counts epochs"):
        config.table_rules(train, ["t"])


def test_optimizer_options():
    table = sp.TableSpec(name="t", vocabulary_size=4, embedding_dim=2, optimizer=sp.rules.SGD(0.1))
    embedder = sp.Embedder([sp.FeatureSpec(name="f", table_spec=table)], backend="xla")
    options = {"clip_global_norm": 2.0, "precision": "bfloat16", "ema": 0.9, "loss_scale": {"init_scale": 8.0}}
    train = config.from_mapping(valid(**{f"train__{name}": value for name, value in options.items()})).train
    built = config.optimizer(train, embedder)
    by_hand = sp.Optimizer(
        embedder,
        built.tx,
        clip_global_norm=2.0,
        precision="bfloat16",
        ema=0.9,
        loss_scale=LossScale(init_scale=8.0),
    )
    assert built == by_hand
    assert built != config.optimizer(config.from_mapping(valid()).train, embedder)


def test_total_loss():
    logits = {"click": jnp.array([0.5, -1.0, 2.0]), "buy": jnp.array([0.1, 0.2, -0.3])}
    columns = {
        "clicked": jnp.array([1.0, 0.0, 1.0]),
        "bought": jnp.array([0.0, 0.0, 1.0]),
        "weight": jnp.array([1.0, 2.0, 3.0]),
    }
    tasks = {
        "click": Task(label="clicked", losses=["binary_cross_entropy", "binary_focal"], sample_weight="weight"),
        "buy": Task(
            label="bought",
            losses=[{"name": "binary_cross_entropy", "label_smoothing": 0.1}],
            weight=0.5,
            task_space_label="clicked",
            out_task_space_weight=0.0,
        ),
    }
    total, terms = total_loss(tasks, logits, columns)
    click = losses.binary_cross_entropy(logits["click"], columns["clicked"])
    click += losses.binary_focal(logits["click"], columns["clicked"])
    buy = losses.binary_cross_entropy(logits["buy"], columns["bought"], label_smoothing=0.1)
    expected = losses.reduce(click, columns["weight"]), 0.5 * losses.reduce(buy, columns["clicked"])
    np.testing.assert_allclose([terms["click"], terms["buy"]], expected, rtol=1e-6)
    np.testing.assert_allclose(total, sum(expected), rtol=1e-6)
    unweighted = {"click": Task(label="clicked", losses=["binary_cross_entropy", "binary_focal"]), "buy": tasks["buy"]}
    assert float(total_loss(unweighted, logits, columns)[0]) != pytest.approx(float(total))
    with pytest.raises(ValueError, match="the losses need the column 'weight'"):
        total_loss(tasks, logits, {key: value for key, value in columns.items() if key != "weight"})


def test_losses_of_other_shapes():
    query, item, negatives = jnp.ones((2, 3)), jnp.eye(2, 3), jnp.zeros((4, 3))
    outputs = {"query": query, "item": item, "negatives": negatives}
    for loss, expected in (
        ("in_batch_softmax", losses.in_batch_softmax(query, item)),
        ("sampled_softmax", losses.sampled_softmax(query, item, negatives)),
    ):
        total, _ = total_loss({"match": Task(label="x", losses=[loss])}, outputs, {})
        np.testing.assert_allclose(total, losses.reduce(expected), rtol=1e-6)
    logits, labels, sessions = jnp.array([[0.1, 0.5], [0.3, -0.2]]), jnp.array([1, 0]), jnp.array([4, 4])
    task = Task(label="y", losses=[{"name": "jrc", "session_name": "session"}])
    total, _ = total_loss({"rank": task}, {"logits": logits}, {"y": labels, "session": sessions})
    np.testing.assert_allclose(total, losses.reduce(losses.jrc(logits, labels, sessions)), rtol=1e-6)


def test_metrics_by_name():
    task = Task(
        label="y",
        losses=["l2"],
        metrics=["auc", {"name": "auc", "thresholds": 10}, {"name": "grouped_auc", "group_by": "user"}],
        train_metrics=[{"name": "decayed", "metric": "mae"}],
    )
    named = named_metrics({"a": task, "b": Task(label="z", losses=["l2"], metrics=["mae"])})
    assert list(named) == ["a/auc", "a/auc(thresholds=10)", "a/grouped_auc(user)", "b/mae"]
    assert named["a/auc(thresholds=10)"].metric == metrics.AUC(thresholds=10)
    assert (named["a/grouped_auc(user)"].group_by, named["b/mae"].task) == ("user", "b")
    assert list(named_metrics({"a": task}, train=True)) == ["decayed(metric=mae)"]
    assert task.train_metrics == (MetricUse(metric=metrics.Decayed(metrics.MAE())),)


def test_assembly():
    built = config.assemble(config.from_mapping(valid(model__wide_dim=2)))
    assert built.ids_of == {"id_0_wide": "id_0", "id_1_wide": "id_1", "id_0": "id_0", "id_1": "id_1"}
    by_hand = {
        name: sp.TableSpec(
            name=name, vocabulary_size=10, embedding_dim=dim, optimizer=sp.rules.RowwiseAdagrad(learning_rate=0.05)
        )
        for name, dim in (("id_0_wide", 2), ("id_1_wide", 2), ("id_0", 4), ("id_1", 4))
    }
    assert {spec.name: spec.table_spec for spec in built.specs} == by_hand
    assert built.inputs == models.Inputs(
        acts={"id_0_wide": 2, "id_1_wide": 2, "id_0": 4, "id_1": 4},
        numbers={"chance": 1},
        groups={"wide": ["id_0_wide", "id_1_wide"], "fm": ["id_0", "id_1"], "deep": ["id_0", "id_1", "chance"]},
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": None}, "model: is required"),
        ({"model__groups__deep": ["id_0", "id_9"]}, "model.groups.deep: unknown feature 'id_9': did you mean 'id_1'?"),
        ({"model__groups__deep": ["id_0"]}, "model.groups: the feature 'chance' is in no group"),
    ],
)
def test_assembly_that_does_not_fit(changes, message):
    with pytest.raises(ConfigError) as error:
        config.assemble(config.from_mapping(valid(**changes)))
    assert str(error.value).startswith(message)


def test_batches_of_a_config_train_its_model():
    """All the parts meet: three steps of the whole config, by hand."""
    from flax import nnx

    loaded = config.from_mapping(valid())
    built = config.assemble(loaded)
    embedder = sp.Embedder(built.specs, backend="xla")
    model = loaded.model.architecture.build(built.inputs, rngs=nnx.Rngs(loaded.train.seed))
    apply, params, rest = models.functional(model)
    optimizer = config.optimizer(loaded.train, embedder)
    state = optimizer.init(embedder.init(jax.random.key(loaded.train.seed)), params)

    def loss_fn(params, acts, rest, numbers, columns):
        outputs, rest = apply.train(params, rest, acts, numbers)
        return total_loss(loaded.tasks, outputs, columns)[0], rest

    step = jax.jit(lambda state, *args: optimizer.step(state, loss_fn, *args, has_aux=True))
    batches = iter(config.train_pipeline(loaded))
    for _ in range(loaded.train.steps):
        batch = next(batches)
        state, info = step(
            state, embedder.pack(built.lookups(batch.ids)), rest, batch.numbers, {**batch.labels, **batch.weights}
        )
        assert np.isfinite(float(info.loss))
    assert int(state.step) == 3
    assert sum(len(batch.labels["label"]) for batch in config.evaluate_pipeline(loaded)) == 8


def test_bpr_of_a_batch_is_that_of_its_pairs():
    """Two sessions, one of them without a negative: three pairs, and only positives count."""
    tasks = {"t": config.Task(label="y", losses=[{"name": "bpr", "session_name": "s"}])}
    logits = jnp.array([1.0, 0.5, -0.5, 2.0])
    columns = {"y": jnp.array([1.0, 0.0, 0.0, 1.0]), "s": jnp.array([0, 0, 0, 1])}
    total, _ = total_loss(tasks, {"logits": logits}, columns)
    pairs = np.log1p(np.exp(-np.array([1.0 - 0.5, 1.0 + 0.5]))).mean()
    assert float(total) == pytest.approx(pairs / 4, rel=1e-6)


def test_bpr_of_two_towers_compares_items():
    tasks = {"t": config.Task(label="y", losses=["bpr"])}
    query, item, negatives = jnp.eye(2), jnp.array([[2.0, 0.0], [0.0, 1.0]]), jnp.array([[1.0, 0.0], [0.0, 1.0]])
    softplus = lambda x: np.log1p(np.exp(x))  # noqa: E731
    total, _ = total_loss(tasks, {"query": query, "item": item}, {})
    assert float(total) == pytest.approx((softplus(-2.0) + softplus(-1.0)) / 2, rel=1e-6)
    outputs = {"query": query, "item": item, "negatives": negatives}
    total, _ = total_loss(tasks, outputs, {})
    rows = [(softplus(-1.0) + softplus(-2.0)) / 2, (softplus(-1.0) + softplus(0.0)) / 2]
    assert float(total) == pytest.approx(np.mean(rows), rel=1e-6)
    # The second drawn item is the one that the second query chose.
    ids = {POSITIVE_IDS: jnp.array([7, 8]), NEGATIVE_IDS: jnp.array([9, 8])}
    total, _ = total_loss(tasks, outputs, ids)
    assert float(total) == pytest.approx((rows[0] + softplus(-1.0)) / 2, rel=1e-6)
