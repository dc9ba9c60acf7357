"""Each model learns a planted truth in seconds, with tables, through `sparrow.Optimizer`."""

import functools

import jax
import numpy as np
import optax
import pytest
from flax import nnx

import sparrow as sp
from sparrow import losses, metrics, models
from sparrow.data import ClickLog
from sparrow.models import MLP, BayesTaskTower, ExtractionNetwork, Inputs, TaskTower, extra_losses

SIZE = 512


class Trainer:
    """A model and its tables: a training step and predictions, jitted."""

    def __init__(self, record, rows, groups, numbers=None, loss=None, precision="float32"):
        """``rows``: by feature, the vocabulary size and the dim of its table."""
        rule = sp.rules.Adagrad(0.1)
        small = jax.nn.initializers.normal(0.05)
        self.embedder = sp.Embedder(
            [
                sp.FeatureSpec(
                    name=name,
                    table_spec=sp.TableSpec(
                        name=name, vocabulary_size=size, embedding_dim=dim, optimizer=rule, initializer=small
                    ),
                )
                for name, (size, dim) in rows.items()
            ]
        )
        inputs = Inputs({name: dim for name, (_, dim) in rows.items()}, numbers or {}, groups)
        self.build = functools.partial(models.registry.from_dict(record).build, inputs)
        self.optimizer = sp.Optimizer(self.embedder, optax.adam(0.01), precision=precision)
        self.loss = loss
        self.reset()

    def reset(self, seed=0):
        self.apply, params, self.rest = models.functional(self.build(rngs=nnx.Rngs(seed)))
        self.state = self.optimizer.init(self.embedder.init(jax.random.key(seed)), params)

    @functools.cached_property
    def _step(self):
        def loss_fn(params, acts, rest, numbers, labels):
            outputs, rest = self.apply.train(params, rest, acts, numbers)
            return self.loss(outputs, labels), rest

        def step(state, rest, batch, numbers, labels):
            state, info = self.optimizer.step(state, loss_fn, batch, rest, numbers, labels, has_aux=True)
            return state, info.aux

        return jax.jit(step, donate_argnums=(0, 1))

    @functools.cached_property
    def _predict(self):
        def predict(state, rest, batch, numbers):
            return self.apply.predict(state.params, rest, self.embedder.lookup(state.embedding, batch), numbers)

        return jax.jit(predict)

    def train(self, ids, numbers, labels):
        self.state, self.rest = self._step(self.state, self.rest, self.embedder.pack(ids), numbers, labels)

    def predict(self, ids, numbers):
        return self._predict(self.state, self.rest, self.embedder.pack(ids), numbers)


def auc(scores, labels):
    metric = metrics.ExactAUC()
    return metric.compute(metric.update(metric.init(), scores, labels))


def click_loss(outputs, labels):
    return losses.reduce(losses.binary_cross_entropy(outputs["logits"], labels))


FIELDS = ["a", "b", "c", "d"]
DATA = ClickLog(fields=4, ids=40)
DEEPFM = {"name": "deepfm", "deep": {"hidden_units": [16]}}
DLRM = {"name": "dlrm", "dense_mlp": {"hidden_units": [8]}, "final": {"hidden_units": [16]}}


def click_trainer(record, precision):
    rows, numbers = dict.fromkeys(FIELDS, (40, 8)), {}
    if record["name"] == "deepfm":
        rows |= {f"{field}_wide": (40, 1) for field in FIELDS}
        groups = {"wide": [f"{field}_wide" for field in FIELDS], "deep": FIELDS}
    else:
        groups, numbers = {"sparse": FIELDS, "dense": ["popularity"]}, {"popularity": 4}
    trainer = Trainer(record, rows, groups, numbers, click_loss, precision)

    def features(batch):
        ids = {name: batch.ids[:, FIELDS.index(name[0])] for name in rows}
        return ids, {"popularity": -np.log1p(batch.ids).astype(np.float32)} if numbers else {}

    return trainer, features


@pytest.mark.parametrize(
    ("record", "precision", "margin"),
    # DLRM has no weight per id, and needs longer for the part of the truth that is one.
    [(DEEPFM, "float32", 0.02), (DEEPFM, "bfloat16", 0.02), (DLRM, "float32", 0.05)],
    ids=["deepfm", "deepfm_bfloat16", "dlrm"],
)
def test_ranking(record, precision, margin):
    trainer, features = click_trainer(record, precision)
    held_out = DATA.batch(10_000, 4096)
    ids, numbers = features(held_out)
    before = auc(trainer.predict(ids, numbers)["logits"], held_out.labels)
    for batch in DATA.batches(150, SIZE):
        trainer.train(*features(batch), batch.labels)
    after = auc(trainer.predict(ids, numbers)["logits"], held_out.labels)
    best = auc(np.log(held_out.probabilities / (1 - held_out.probabilities)), held_out.labels)
    assert before < 0.6
    assert best - margin < after <= best + 0.01


@pytest.mark.slow
def test_wide_and_deep_remembers_crosses():
    """Each pair of ids has a label of its own: the wide part has a weight for it, layers over the two ids guess."""
    labels_of = np.random.default_rng(5).integers(0, 2, (40, 40)).astype(np.float32)
    deep = {"hidden_units": [8]}
    models_ = {
        "wide_and_deep": ({"name": "wide_and_deep", "deep": deep}, {"wide": ["pair"], "deep": ["a", "b"]}),
        "deep": ({"name": "multi_tower", "towers": [{"input": "deep", "mlp": deep}]}, {"deep": ["a", "b"]}),
    }

    def score(name):
        record, groups = models_[name]
        rows = {"a": (40, 4), "b": (40, 4), "pair": (1600, 1)}
        used = [feature for names in groups.values() for feature in names]
        trainer = Trainer(record, {feature: rows[feature] for feature in used}, groups, loss=click_loss)

        def ids(seed, size):
            a, b = np.random.default_rng(seed).integers(0, 40, (2, size))
            every = {"a": a, "b": b, "pair": 40 * a + b}
            return {feature: every[feature] for feature in used}, labels_of[a, b]

        for seed in range(80):
            train_ids, labels = ids(seed, SIZE)
            trainer.train(train_ids, {}, labels)
        held_out, labels = ids(10_000, 4096)
        return auc(trainer.predict(held_out, {})["logits"], labels)

    assert score("wide_and_deep") > 0.95
    assert score("deep") < 0.75


def test_same_seed_same_bits():
    trainer, features = click_trainer({**DEEPFM, "final": {"hidden_units": [4], "dropout_ratio": 0.2}}, "float32")

    def run(seed):
        trainer.reset(seed)
        for batch in DATA.batches(3, 64):
            trainer.train(*features(batch), batch.labels)
        return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves((trainer.state.params, trainer.state.embedding))]

    first = run(0)
    assert run(0) == first
    assert run(1) != first


CLUSTERS, USERS, ITEMS = 8, 64, 40


def choices(seed, size):
    """Users choose items of their own cluster, any of them."""
    rng = np.random.default_rng(seed)
    users = rng.integers(0, USERS, size)
    return users, users % CLUSTERS + CLUSTERS * rng.integers(0, ITEMS // CLUSTERS, size)


def in_batch(outputs, item_ids):
    values = losses.in_batch_softmax(outputs["query"], outputs["item"], temperature=0.2, item_ids=item_ids)
    return losses.reduce(values)


def sampled(outputs, item_ids):
    size = len(outputs["query"])
    ids = {"positive_ids": item_ids[:size], "negative_ids": item_ids[size:]}
    values = losses.sampled_softmax(outputs["query"], outputs["item"], outputs["negatives"], temperature=0.2, **ids)
    return losses.reduce(values)


def augmented(outputs, item_ids):
    return in_batch(outputs, item_ids) + sum(losses.reduce(values) for values in extra_losses(outputs).values())


@pytest.mark.slow
def test_dat_knows_users_by_their_augmented_vectors():
    """All users look alike: two plain towers rank as for one user, augmented vectors learn what each of them chose."""
    towers = {
        "user_tower": {"input": "user", "mlp": {"hidden_units": [16]}},
        "item_tower": {"input": "item", "mlp": {"hidden_units": [16]}},
        "output_dim": 8,
        "similarity": "cosine",
    }
    rows = {"constant": (1, 8), "item_id": (ITEMS, 8), "user_augment": (USERS, 8), "item_augment": (ITEMS, 8)}
    groups = {"user": ["constant"], "item": ["item_id"]}
    augments = {"user augment": ["user_augment"], "item augment": ["item_augment"]}

    def hit_rate(record, names, groups, loss):
        trainer = Trainer({**towers, **record}, {name: rows[name] for name in names}, groups, loss=loss)

        def ids(users, items):
            every = {"constant": 0 * users, "user_augment": users, "item_id": items, "item_augment": items}
            return {name: every[name] for name in names}

        for seed in range(120):
            users, items = choices(seed, 128)
            trainer.train(ids(users, items), {}, items)
        users, items = np.arange(USERS), np.resize(np.arange(ITEMS), USERS)
        outputs = trainer.predict(ids(users, items), {})
        best = (np.asarray(outputs["query"]) @ np.asarray(outputs["item"])[:ITEMS].T).argmax(axis=1)
        return (best % CLUSTERS == users % CLUSTERS).mean()

    assert hit_rate(DAT, list(rows), {**groups, **augments}, augmented) > 0.9
    assert hit_rate({"name": "dssm_v2"}, list(rows)[:2], groups, in_batch) < 0.3


DAT = {"name": "dat", "user_augment": "user augment", "item_augment": "item augment", "negatives": "in_batch"}


@pytest.mark.parametrize(
    ("name", "loss"),
    [
        ("dssm", in_batch),
        ("dssm", sampled),
        pytest.param("dssm_v2", in_batch, marks=pytest.mark.slow),
        pytest.param("dat", augmented, marks=pytest.mark.slow),
    ],
)
def test_matching(name, loss):
    """A model that does not know the user has one best item for all, which is of one cluster of eight."""
    record = {
        "name": name,
        "user_tower": {"input": "user", "mlp": {"hidden_units": [16]}},
        "item_tower": {"input": "item", "mlp": {"hidden_units": [16]}},
        "output_dim": 8,
        "similarity": "cosine",
        "negatives": loss.__name__,
    }
    rows = {"user_id": (USERS, 8), "item_id": (ITEMS, 8)}
    groups = {"user": ["user_id"], "item": ["item_id"]}
    if loss is augmented:
        record |= DAT
        rows |= {"user_augment": (USERS, 8), "item_augment": (ITEMS, 8)}
        groups |= {"user augment": ["user_augment"], "item augment": ["item_augment"]}
    trainer = Trainer(record, rows, groups, loss=loss)

    def ids(users, items):
        every = {"user_id": users, "user_augment": users, "item_id": items, "item_augment": items}
        return {name: every[name] for name in rows}

    def hit_rate():
        """How often the best of all items is of the user's cluster."""
        users, items = np.arange(USERS), np.arange(ITEMS)
        outputs = trainer.predict(ids(users, np.resize(items, USERS + ITEMS)), {})
        vectors = np.concatenate([outputs["item"], outputs.get("negatives", np.zeros((0, 8)))])[:ITEMS]
        scores = np.asarray(outputs["query"]) @ vectors.T
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
        metric = metrics.HitRateAtK(top_k=1)
        relevant = (users[:, None] % CLUSTERS == items % CLUSTERS).astype(np.float32)
        return float(metric.compute(metric.update(metric.init(), scores, relevant)))

    before = hit_rate()
    for seed in range(80):
        users, items = choices(seed, 128)
        if loss is sampled:
            items = np.concatenate([items, np.random.default_rng([seed, 1]).integers(0, ITEMS, 64)])
        trainer.train(ids(users, items), {}, items)
    assert before < 0.4
    assert hit_rate() > 0.95


def two_tasks(seed, size):
    """Clicks and purchases: the user's taste counts for one and against the other."""
    truth = np.random.default_rng(0)
    taste, quality, price = truth.normal(0, 1.5, 30), truth.normal(0, 1, 20), truth.normal(0, 1, 20)
    rng = np.random.default_rng([seed, 2])
    users, items = rng.integers(0, 30, size), rng.integers(0, 20, size)
    log_odds = {"click": taste[users] + quality[items], "buy": price[items] - taste[users]}
    labels = {task: (rng.logistic(size=size) < odds).astype(np.float32) for task, odds in log_odds.items()}
    return {"user": users, "item": items}, labels, log_odds


def task_loss(outputs, labels):
    total, _ = losses.combine({task: losses.binary_cross_entropy(outputs[task], labels[task]) for task in labels})
    return total


NORMED = MLP((16,), use_bn=True, dropout_ratio=0.1)
CLICK_AND_BUY = (TaskTower("click"), TaskTower("buy"))
RELATED = BayesTaskTower("buy", MLP((8,)), relation_tower_names=("click",), relation_mlp=MLP((8,)))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("mmoe", {"expert_mlp": NORMED, "task_towers": CLICK_AND_BUY}),
        pytest.param(
            "ple",
            {"extraction_networks": (ExtractionNetwork(1, NORMED),) * 2, "task_towers": CLICK_AND_BUY},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "dbmtl",
            {"bottom_mlp": NORMED, "task_towers": (BayesTaskTower("click", MLP((8,))), RELATED)},
            marks=pytest.mark.slow,
        ),
    ],
    ids=["mmoe", "ple", "dbmtl"],
)
def test_multi_task(name, options):
    record = models.registry.to_dict(models.registry.make(name, **options))
    rows = {"user": (30, 8), "item": (20, 8)}
    trainer = Trainer(record, rows, {"all": ["user", "item"]}, loss=task_loss)
    ids, labels, log_odds = two_tasks(10_000, 4096)

    def aucs():
        outputs = trainer.predict(ids, {})
        return {task: auc(outputs[task], labels[task]) for task in labels}

    before = aucs()
    for seed in range(150):
        train_ids, train_labels, _ = two_tasks(seed, SIZE)
        trainer.train(train_ids, {}, train_labels)
    after, best = aucs(), {task: auc(log_odds[task], labels[task]) for task in labels}
    for task in labels:
        assert before[task] < 0.65
        assert best[task] - 0.02 < after[task] <= best[task] + 0.01
