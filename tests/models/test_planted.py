"""Models learn what they are made for, and a simpler model does not: features are given, no tables are trained."""

import functools

import jax
import numpy as np
import optax
import pytest
from flax import nnx

from sparrow import losses, metrics, models
from sparrow.models import Inputs, Sequence, extra_losses

BATCH, DIM, ITEMS, LENGTH = 256, 6, 40, 6
VECTORS = np.random.default_rng(7).normal(size=(ITEMS, DIM)).astype(np.float32)


def units(*hidden):
    return {"hidden_units": list(hidden)}


def auc(scores, labels):
    metric = metrics.ExactAUC()
    return metric.compute(metric.update(metric.init(), scores, labels))


def cross_entropy(outputs, labels):
    terms = [losses.binary_cross_entropy(outputs[name], label) for name, label in labels.items()]
    return sum(losses.reduce(values) for values in [*terms, *extra_losses(outputs).values()])


def softmax_of_items(outputs, labels):
    return losses.reduce(losses.in_batch_softmax(outputs["query"], outputs["item"], temperature=0.2))


def trained(record, inputs, batches, steps, loss=cross_entropy, rate=0.01):
    """Train on ``batches(seed) -> (acts, numbers, labels)``; return predictions for fresh examples and their labels."""
    model = models.registry.from_dict(record).build(inputs, rngs=nnx.Rngs(0))
    apply, params, rest = models.functional(model)
    optimizer = optax.adam(rate)

    @jax.jit
    def step(params, state, acts, numbers, labels):
        grads = jax.grad(lambda p: loss(apply.train(p, rest, acts, numbers)[0], labels))(params)
        updates, state = optimizer.update(grads, state)
        return optax.apply_updates(params, updates), state

    state = optimizer.init(params)
    for seed in range(steps):
        params, state = step(params, state, *batches(seed))
    acts, numbers, labels = batches(10**6)
    return jax.jit(apply.predict)(params, rest, acts, numbers), labels


# ---- products of features


def products(seed):
    """A yes where two vectors point the same way: each alone says nothing."""
    rng = np.random.default_rng(seed)
    acts = {name: rng.normal(size=(BATCH, DIM)).astype(np.float32) for name in ("user", "item")}
    return acts, {}, {"logits": ((acts["user"] * acts["item"]).sum(axis=1) > 0).astype(np.float32)}


ACTS = {"user": DIM, "item": DIM}
ALL = {"all": ["user", "item"]}
MASKS = {"n_mask_blocks": 2, "hidden_dim": 32, "top_mlp": units(16)}
LAYER = {"lcb_feature_num": 2, "fmb_feature_num": 2, "feature_num_mlp": units(16)}


def auc_of_products(record, groups=ALL, steps=250):
    outputs, labels = trained(record, Inputs(ACTS, groups=groups), products, steps)
    return auc(outputs["logits"], labels["logits"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "record",
    [
        {"name": "dcn_v1", "cross_num": 3, "deep": units(32), "final": units(16)},
        {"name": "dcn_v2", "cross_num": 2, "low_rank": 8, "final": units(16)},
        {"name": "mask_net", "mask_net_module": MASKS},
        {"name": "wukong", "wukong_layers": [LAYER, LAYER], "final": units(16)},
        {"name": "xdeepfm", "cin_layer_size": [8, 4], "deep": units(4), "final": units(16)},
        {"name": "deepfm", "deep": units(4)},
        {"name": "dlrm", "final": units(8)},
    ],
    ids=lambda record: record["name"],
)
def test_products_are_found(record):
    both = ["user", "item"]
    wide = {"wide": both, "deep": both}
    groups = {"dlrm": {"sparse": both}, "xdeepfm": wide, "deepfm": wide}
    assert auc_of_products(record, groups.get(record["name"], ALL)) > 0.9


@pytest.mark.slow
def test_products_are_not_linear():
    assert auc_of_products({"name": "multi_tower", "towers": [{"input": "all"}]}) < 0.6


def sizes(seed):
    """A yes where the user's first number is larger than the item's, whatever their signs."""
    acts, numbers, _ = products(seed)
    return acts, numbers, {"logits": (np.abs(acts["user"][:, 0]) > np.abs(acts["item"][:, 0])).astype(np.float32)}


@pytest.mark.slow
def test_towers_find_sizes_that_are_not_linear():
    def of_towers(**tower):
        towers = [{"input": name, **tower} for name in ("user", "item")]
        inputs = Inputs(ACTS, groups={"user": ["user"], "item": ["item"]})
        outputs, labels = trained({"name": "multi_tower", "towers": towers}, inputs, sizes, 250)
        return auc(outputs["logits"], labels["logits"])

    assert of_towers(mlp=units(16)) > 0.95
    assert of_towers() < 0.6


# ---- histories


def histories(seed, label):
    """Items seen before, a candidate, and the label that ``label`` makes of their ids and the lengths."""
    rng = np.random.default_rng([seed, 3])
    seen, lengths = rng.integers(0, ITEMS, (BATCH, LENGTH)), rng.integers(1, LENGTH + 1, BATCH)
    places = rng.integers(0, lengths)
    candidate = np.where(rng.random(BATCH) < 0.5, seen[np.arange(BATCH), places], rng.integers(0, ITEMS, BATCH))
    acts = {
        "item": VECTORS[candidate],
        "clicks": Sequence(VECTORS[seen], lengths.astype(np.int32)),
        "pooled": np.stack([VECTORS[row[:length]].mean(axis=0) for row, length in zip(seen, lengths, strict=True)]),
    }
    return acts, {}, label(seen, lengths, candidate)


def was_seen(seen, lengths, candidate):
    there = (seen == candidate[:, None]) & (np.arange(LENGTH) < lengths[:, None])
    return there.any(axis=1).astype(np.float32)


def was_last(seen, lengths, candidate):
    return (seen[np.arange(BATCH), lengths - 1] == candidate).astype(np.float32)


def auc_of_histories(record, groups, label=was_seen, steps=200, output="logits"):
    sequences = {"clicks": DIM} if any("clicks" in names for names in groups.values()) else {}
    used = {name: DIM for name in ("item", "pooled") if any(name in names for names in groups.values())}

    def batches(seed):
        acts, numbers, labels = histories(seed, label)
        return {name: acts[name] for name in (*used, *sequences)}, numbers, {output: labels}

    outputs, labels = trained(record, Inputs(used, groups=groups, sequences=sequences), batches, steps)
    return auc(outputs[output], labels[output])


DIN = {"name": "multi_tower_din", "din_towers": [{"input": "history", "attn_mlp": units(16)}], "final": units(32, 16)}
DIN_GROUPS = {"deep": ["item"], "history": ["item", "clicks"]}


def test_din_learns_whether_the_candidate_was_in_the_history():
    din = auc_of_histories({**DIN, "towers": [{"input": "deep"}]}, DIN_GROUPS)
    pooled = {"name": "multi_tower", "towers": [{"input": "all"}], "final": units(32, 16)}
    assert din > 0.93
    assert auc_of_histories(pooled, {"all": ["item", "pooled"]}) < din - 0.1


STU = {"embedding_dim": 16, "num_heads": 2, "hidden_dim": 8, "attention_dim": 8, "scaling_seqlen": LENGTH}
HSTU = {"name": "dlrm_hstu", "hstu": {**STU, "attn_num_layers": 2}, "task_towers": [{"task": "seen"}], "mlp": units(16)}


@pytest.mark.slow
def test_hstu_learns_whether_the_candidate_was_the_last():
    groups = {"uih": ["clicks"], "candidate": ["item"]}
    hstu = auc_of_histories(HSTU, groups, was_last, steps=400, output="seen")
    din = auc_of_histories({**DIN, "towers": [{"input": "deep"}]}, DIN_GROUPS, was_last, steps=400)
    assert hstu > 0.95
    assert din < hstu - 0.03  # it does not know the order


@pytest.mark.slow
def test_tdm_knows_the_window():
    tdm = {"name": "tdm", "windows_len": [3, 3], "attn_mlp": units(32), "final": units(32, 16)}
    attending = auc_of_histories(tdm, {"history": ["item", "clicks"]}, steps=400)
    assert attending > 0.9
    pooled = {"name": "multi_tower", "towers": [{"input": "all"}], "final": units(32, 16)}
    assert auc_of_histories(pooled, {"all": ["item", "pooled"]}, steps=400) < attending - 0.05


SUCCESSOR = np.random.default_rng(1).permutation(ITEMS)


def successors(seed):
    """The item chosen follows from the last one of the history, whatever else is in it."""
    acts, numbers, (seen, lengths) = histories(seed, lambda seen, lengths, candidate: (seen, lengths))
    chosen = SUCCESSOR[seen[np.arange(BATCH), lengths - 1]]
    return {**acts, "item": VECTORS[chosen]}, numbers, chosen


def next_item_is_found(record, groups):
    """Train on the softmax over the batch's items; return how often the nearest of all items is the one chosen."""
    used = {name: DIM for name in ("item", "pooled") if any(name in names for names in groups.values())}
    sequences = {"clicks": DIM} if any("clicks" in names for names in groups.values()) else {}

    def batches(seed):
        acts, numbers, chosen = successors(seed)
        return {name: acts[name] for name in (*used, *sequences)}, numbers, chosen

    inputs = Inputs(used, groups=groups, sequences=sequences)
    outputs, chosen = trained(record, inputs, batches, 400, softmax_of_items)
    item = np.asarray(outputs["item"])
    vectors = np.stack([item[chosen == i].mean(axis=0) if (chosen == i).any() else -item[0] for i in range(ITEMS)])
    return ((np.asarray(outputs["query"]) @ vectors.T).argmax(axis=1) == chosen).mean()


@pytest.mark.slow
def test_hstu_match_knows_the_order():
    item = {"input": "items", "mlp": units(16)}
    both = {"item_tower": item, "output_dim": 16, "similarity": "cosine"}
    hstu = {"name": "hstu_match", "hstu": {**STU, "attn_num_layers": 2}, "history_input": "history", **both}
    dssm = {"name": "dssm_v2", "user_tower": {"input": "users", "mlp": units(32)}, **both}
    ordered = next_item_is_found(hstu, {"history": ["clicks"], "items": ["item"]})
    assert ordered > 0.8
    assert next_item_is_found(dssm, {"users": ["pooled"], "items": ["item"]}) < ordered - 0.2


def interests(seed, item_in_history=True):
    """Two interests per user, clusters of items; the item chosen is of either."""
    rng = np.random.default_rng([seed, 5])
    centers = np.eye(DIM, dtype=np.float32)
    both = np.stack([rng.permutation(DIM)[:2] for _ in range(64)])
    seen = both[np.arange(64)[:, None], rng.integers(0, 2, (64, LENGTH))]
    chosen = both[np.arange(64), rng.integers(0, 2, 64)]
    noise = functools.partial(rng.normal, 0, 0.1)
    acts = {
        "user": np.zeros((64, DIM), np.float32),
        "clicks": Sequence((centers[seen] + noise(size=(64, LENGTH, DIM))).astype(np.float32), np.full(64, LENGTH)),
        "item": (centers[chosen] + noise(size=(64, DIM))).astype(np.float32),
    }
    return acts, {}, (both, chosen)


def nearest_cluster_is_of_the_user(record, groups, loss=softmax_of_items):
    used = {name: DIM for name in ("user", "item") if any(name in names for names in groups.values())}

    def batches(seed):
        acts, numbers, labels = interests(seed)
        return {name: acts[name] for name in (*used, "clicks")}, numbers, labels

    outputs, (both, chosen) = trained(
        record, Inputs(used, groups=groups, sequences={"clicks": DIM}), batches, 200, loss
    )
    item = np.asarray(outputs["item"])
    clusters = np.stack([item[chosen == c].mean(axis=0) for c in range(DIM)])
    queries = np.asarray(outputs.get("interests", outputs["query"][:, None]))
    best = (queries @ clusters.T).argmax(axis=2)  # (users, interests)
    found = [len(set(row) & set(mine)) / 2 for row, mine in zip(best, both, strict=True)]
    return np.mean(found)


@pytest.mark.slow
def test_mind_finds_both_interests():
    tower = {
        "input": "users",
        "history_input": "history",
        "user_mlp": units(4),
        "capsule_config": {"high_dim": 8, "max_seq_len": LENGTH, "max_k": 3},
        "concat_mlp": units(16),
    }
    mind = {"name": "mind", "user_tower": tower, "item_tower": {"input": "items", "mlp": units(16)}, "output_dim": 8}
    groups = {"users": ["user"], "history": ["clicks"], "items": ["item"]}
    match = {"name": "hstu_match", "hstu": STU, "item_tower": {"input": "items", "mlp": units(16)}, "output_dim": 8}
    several = nearest_cluster_is_of_the_user(mind, groups)
    one = nearest_cluster_is_of_the_user(
        {**match, "similarity": "cosine", "history_input": "history"}, {"history": ["clicks"], "items": ["item"]}
    )
    assert several > 0.75
    assert 0.4 < one <= 0.5  # one vector is nearest to one cluster, and that one is right


# ---- domains and distillation


def domains(seed):
    rng = np.random.default_rng([seed, 9])
    x, domain = rng.normal(size=(BATCH, DIM)).astype(np.float32), rng.integers(0, 2, BATCH)
    labels = ((x[:, 0] > 0) == (domain == 1)).astype(np.float32)
    return {"item": x, "page": np.eye(2, dtype=np.float32)[domain]}, {}, {"click": labels}


@pytest.mark.slow
def test_pepnet_turns_with_the_domain():
    record = {"name": "pepnet", "task_towers": [{"task": "click", "mlp": units(16)}], "ppnet": units(16)}
    acts, groups = {"item": DIM, "page": 2}, {"all": ["item"], "domain": ["page"], "uia": ["page"]}
    outputs, labels = trained(record, Inputs(acts, groups=groups), domains, 250)
    assert auc(outputs["click"], labels["click"]) > 0.9

    def renamed(seed):
        acts, numbers, labels = domains(seed)
        return acts, numbers, {"logits": labels["click"]}

    beside = {"name": "multi_tower", "towers": [{"input": "all"}]}  # the domain as one more feature of a linear model
    outputs, labels = trained(beside, Inputs(acts, groups={"all": ["item", "page"]}), renamed, 250)
    assert auc(outputs["logits"], labels["logits"]) < 0.6


# ---- several tasks


def directions(seed):
    """Each task depends on a number of its own."""
    x = np.random.default_rng([seed, 11]).normal(size=(BATCH, 2)).astype(np.float32)
    return {"item": x}, {}, {"click": (x[:, 0] > 0).astype(np.float32), "buy": (x[:, 1] > 0).astype(np.float32)}


@pytest.mark.slow
def test_ple_and_mmoe_have_experts_for_each_task():
    """Experts of one number: a single shared one cannot serve two tasks, one for each can."""
    narrow = {"hidden_units": [1], "activation": "tanh"}
    towers = {"task_towers": [{"task": "click"}, {"task": "buy"}]}
    ple = {"name": "ple", "extraction_networks": [{"expert_num_per_task": 1, "task_expert_net": narrow}], **towers}
    shared = {"name": "mmoe", "num_experts": 1, "expert_mlp": narrow, **towers}
    gated = {**shared, "num_experts": 4}

    def worst(record):
        inputs = Inputs({"item": 2}, groups={"all": ["item"]})
        outputs, labels = trained(record, inputs, directions, 250)
        return min(auc(outputs[task], labels[task]) for task in labels)

    assert worst(ple) > 0.97
    assert worst(gated) > 0.95  # each task has a gate over the experts
    assert worst(shared) < 0.85


@pytest.mark.slow
def test_dbmtl_reads_the_layers_of_a_related_task():
    """The layers of a purchase are linear; only through those of the click does it know products."""
    linear = {"hidden_units": [8], "activation": "none"}
    click, buy = {"task": "click", "mlp": units(32, 16)}, {"task": "buy"}

    def batches(seed):
        acts, numbers, labels = products(seed)
        return acts, numbers, dict.fromkeys(("click", "buy"), labels["logits"])

    def of_buy(tower):
        record = {"name": "dbmtl", "task_towers": [click, tower]}
        outputs, labels = trained(record, Inputs(ACTS, groups=ALL), batches, 300)
        return auc(outputs["buy"], labels["buy"])

    assert of_buy({**buy, "relation_tower_names": ["click"], "relation_mlp": linear}) > 0.85
    assert of_buy(buy) < 0.6


@pytest.mark.slow
def test_the_light_network_follows_the_booster():
    record = {"name": "rocket_launching", "booster_mlp": units(32, 16), "light_mlp": units(16)}

    def batches(seed):
        acts, numbers, labels = products(seed)
        return acts, numbers, {"light": labels["logits"], "booster": labels["logits"]}

    def with_hint(loss):
        outputs, labels = trained(record, Inputs(ACTS, groups=ALL), batches, 300, loss)
        assert set(outputs) == {"light", "booster"}  # no loss in evaluation
        light, booster = np.asarray(outputs["light"]), np.asarray(outputs["booster"])
        return auc(light, labels["light"]), np.square(light - booster).mean()

    def alone(outputs, labels):
        return cross_entropy({name: outputs[name] for name in labels}, labels)

    (score, near), (_, far) = with_hint(cross_entropy), with_hint(alone)
    assert score > 0.85
    assert near < 0.7 * far
