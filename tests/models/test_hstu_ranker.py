"""`HSTURanker` against a plain statement of its equations, token by token, without padding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from sparrow import models
from sparrow.data import CANDIDATES
from sparrow.embedding import Jagged
from sparrow.models import Inputs, Sequence

BATCH, LENGTH, MOST, DIM = 4, 5, 3, 4
LENGTHS, COUNTS = np.array([5, 0, 1, 3]), np.array([3, 2, 0, 3])
STU = {"embedding_dim": 6, "num_heads": 2, "hidden_dim": 3, "attention_dim": 2, "scaling_seqlen": 9}
STU |= {"attn_num_layers": 2, "num_position_buckets": 6}
GROUPS = {
    "uih": ["clicks"],
    "uih_action": ["acted"],
    "uih_watchtime": ["watched"],
    "uih_timestamp": ["when"],
    "candidate": ["item", "price"],
    "candidate_timestamp": ["now"],
    "contextual": ["user", "city"],
}
ACTIONS = {"embedding_dim": 2, "bitmasks": [1, 4], "hidden_dim": 3}
WATCH = {"watchtime_thresholds": [2.0], "watchtime_bitmasks": [8]}
UNITS = {"hidden_units": [5], "activation": "silu", "use_ln": True}
CASES = {
    "plain": ({}, {}),
    "times": ({"num_time_buckets": 7, "use_group_norm": True}, {}),
    "log_times": ({"num_time_buckets": 3, "time_bucket_fn": "log", "attn_alpha": 0.3}, {}),
    "near": ({"max_attn_len": 2}, {"concat_contextual_features": True}),
    "semi_local": ({"sla_k1": 2, "sla_k2": 3}, {}),
    "cut": ({"truncation_split_layer": 1, "truncation_tail_len": 2, "sla_k1": 1}, {}),
    "cut_near": ({"truncation_split_layer": 1, "truncation_tail_len": 2, "max_attn_len": 1}, {}),
    "slice": ({}, {"content": {"hidden_dim": 4}}),
    "pad": ({}, {"content": {"hidden_dim": 4, "encoder": "pad"}}),
    "mlp": ({}, {"content": {"hidden_dim": 4, "encoder": "mlp", "uih_mlp": UNITS, "target_mlp": UNITS}}),
    "actions": ({}, {"actions": ACTIONS}),
    "watched": ({}, {"actions": {**ACTIONS, **WATCH}}),
    "unit": ({}, {"postprocessor": "l2norm"}),
    "periods": (
        {"num_time_buckets": 7},
        {"postprocessor": "timestamp_layernorm", "time_periods": [{"unit": 60, "count": 24}, {"unit": 90, "count": 7}]},
    ),
}


def sequence(rng, lengths, size, dim, make=None):
    shape = len(lengths), size, dim
    values = (rng.normal(size=shape) if make is None else make(shape)).astype(np.float32)
    values[np.arange(size) >= lengths[:, None]] = np.nan  # never to be read
    return Sequence(jnp.asarray(values), jnp.asarray(lengths, jnp.int32))


def batch(seed=0):
    rng = np.random.default_rng(seed)
    acts = {
        "clicks": sequence(rng, LENGTHS, LENGTH, DIM),
        "item": sequence(rng, COUNTS, MOST, DIM),
        "user": jnp.asarray(rng.normal(size=(BATCH, 2)), jnp.float32),
        "city": jnp.asarray(rng.normal(size=(BATCH, 2)), jnp.float32),
    }
    numbers = {
        "price": sequence(rng, COUNTS, MOST, 1),
        "acted": sequence(rng, LENGTHS, LENGTH, 1, lambda shape: rng.integers(0, 8, shape)),
        "watched": sequence(rng, LENGTHS, LENGTH, 1, lambda shape: rng.integers(0, 5, shape)),
        "when": sequence(rng, LENGTHS, LENGTH, 1, lambda shape: 2000 + np.cumsum(rng.integers(1, 400, shape), 1)),
        "now": sequence(rng, COUNTS, MOST, 1, lambda shape: rng.integers(5000, 5300, shape)),
    }
    return acts, numbers


def build(stu, channel, seed=0):
    inputs = Inputs(
        acts={"user": 2, "city": 2},
        sequences={"clicks": DIM, "item": DIM, "price": 1, "acted": 1, "watched": 1, "when": 1, "now": 1},
        groups=GROUPS,
    )
    record = {
        "name": "hstu_ranker",
        "channels": [{"stu": {**STU, **stu}, **channel}],
        "mlp": {"hidden_units": [4]},
        "item_hidden_dim": 5,
        "task_towers": [{"task": "click"}, {"task": "kind", "num_classes": 2}],
    }
    return models.registry.from_dict(record).build(inputs, rngs=nnx.Rngs(seed))


def params_of(model):
    """All parameters as NumPy arrays, moved away from their first values, which are often 0 or 1."""
    rng = np.random.default_rng(5)
    _, params, _ = nnx.split(model, nnx.Param, ...)
    params = jax.tree.map(lambda x: x + 0.1 * rng.normal(size=x.shape).astype(np.float32), params)
    nnx.update(model, params)
    return jax.tree.map(lambda x: np.asarray(x, np.float64), nnx.to_pure_dict(params))


def silu(x):
    return x / (1 + np.exp(-x))


def norm(p, x, epsilon=1e-5):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + epsilon) * p["scale"] + p["bias"]


def linear(p, x):
    return x @ p["kernel"] + p.get("bias", 0)


def token_layers(p, x):
    h = linear(p["hidden"], x)
    return norm(p["norm"], linear(p["linear"], h / (1 + np.exp(-norm(p["gate"], h)))))


def mlp(p, x):
    return silu(norm(p["layers"][0]["norm"], linear(p["layers"][0]["linear"], x)))


def attends(i, j, context, history, count, stu, dropped):
    """Whether token i attends to token j; each is its kind and its number within the kind."""
    (kind, a), (other, b) = i, j
    if other == "history" and b < dropped:
        return False
    if stu.get("sla_k1") or stu.get("sla_k2"):
        if other == "candidate":
            return False
        if kind == "candidate":
            return True
        place = {"context": lambda n: n, "history": lambda n: context + n - dropped}
        here, there = place[kind](a), place[other](b)
        near = here - there < stu.get("sla_k1", 0) or there < max(stu.get("sla_k2", 0), context)
        return here >= there and near
    if i == j:
        return True
    if kind == "context":
        return other != "candidate"
    end = {"context": lambda n: 0, "history": lambda n: 1 + n - dropped, "candidate": lambda n: 1 + history - dropped}
    distance = end[kind](a) - end[other](b)
    return 0 < distance <= stu.get("max_attn_len", 99)


def stated(p, stu, channel, x, row):
    """The vector of each candidate of one example, before the tower."""
    own = p["channels"][0]
    n, m = LENGTHS[row], COUNTS[row]
    history = np.asarray(x["clicks"].values, np.float64)[row, :n]
    candidates = np.concatenate([np.asarray(x[k].values, np.float64)[row, :m] for k in ("item", "price")], axis=1)
    content = channel.get("content")
    if content is None:
        tokens, targets = linear(own["linear"], history), linear(own["candidate_linear"], candidates)
    else:
        q, encoder = own["content"], content.get("encoder", "slice")
        h, c = history, candidates[:, :DIM]
        if encoder == "pad":
            h, c = np.concatenate([history, np.tile(q["extra"], (n, 1))], axis=1), candidates
        if encoder == "mlp":
            h, c = mlp(q["own"], history), mlp(q["target"], candidates)
        tokens, targets = token_layers(q["layers"], h), token_layers(q["layers"], c)
    if "actions" in channel:
        q, actions = own["actions"], channel["actions"]
        watched = np.asarray(x["watched"].values)[row, :n, 0]
        bits = np.asarray(x["acted"].values)[row, :n, 0].astype(int)
        for threshold, bit in zip(
            actions.get("watchtime_thresholds", []), actions.get("watchtime_bitmasks", []), strict=True
        ):
            bits = bits | np.where(watched >= threshold, bit, 0)
        masks = [*actions["bitmasks"], *actions.get("watchtime_bitmasks", [])]
        parts = [[q["vectors"][k] * bool(b & mask) for k, mask in enumerate(masks)] for b in bits]
        tokens = tokens + token_layers(q["layers"], np.array(parts).reshape(n, -1 if n else len(masks) * 2))
        targets = targets + token_layers(q["layers"], q["of_candidates"])
    both = np.concatenate([np.asarray(x[k], np.float64)[row] for k in ("user", "city")])
    parts = [both] if channel.get("concat_contextual_features") else [both[:2], both[2:]]
    context = np.stack([linear(own["context"]["layers"][k], part) for k, part in enumerate(parts)])
    c = len(context)
    names = (
        [("context", k) for k in range(c)] + [("history", k) for k in range(n)] + [("candidate", k) for k in range(m)]
    )
    y = np.concatenate([context, tokens, targets]) * np.sqrt(6)
    when = np.asarray(x["when"].values, np.float64)[row, :n, 0]
    now = np.asarray(x["now"].values, np.float64)[row, :m, 0]
    timed = "num_time_buckets" in stu
    for at, (kind, k) in enumerate(names):
        if timed:
            place = {"context": k, "history": c + n - k, "candidate": c}[kind]
            time = {"context": lambda k: 0.0, "history": lambda k: when[k], "candidate": lambda k: now[k]}[kind](k)
            age = max(now[m - 1] - time, 0) / 60
            bucket = np.log(max(age, 1)) if stu.get("time_bucket_fn") == "log" else np.sqrt(age)
            y[at] += own["layers"]["time"][min(int(bucket), stu["num_time_buckets"])]
        else:
            place = {"context": k, "history": c + k, "candidate": c + n}[kind]
        y[at] += own["layers"]["position"][min(place, 5)]
    for index in range(2):
        layer = own["layers"]["layers"][index]
        dropped = 0
        if index >= stu.get("truncation_split_layer", 9):
            dropped = max(n - stu["truncation_tail_len"], 0)
        u, v, q, k = np.split(silu(linear(layer["project"], norm(layer["norm"], y, 1e-6))), [6, 12, 16], axis=1)
        mixed = np.zeros((len(y), 6))
        for i in range(len(y)):
            for j in range(len(y)):
                if attends(names[i], names[j], c, n, m, stu, dropped):
                    for head in range(2):
                        dots = q[i, 2 * head : 2 * head + 2] @ k[j, 2 * head : 2 * head + 2]
                        weight = silu(stu.get("attn_alpha", 2**-0.5) * dots) / 9
                        mixed[i, 3 * head : 3 * head + 3] += weight * v[j, 3 * head : 3 * head + 3]
        if stu.get("use_group_norm"):
            heads = {name: values[:, None] for name, values in layer["mixed_norm"].items()}
            normed = norm(heads, mixed.reshape(len(y), 2, 3), 1e-6).reshape(len(y), 6)
        else:
            normed = norm(layer["mixed_norm"], mixed, 1e-6)
        y = y + np.concatenate([u, mixed, normed * u], axis=1) @ layer["output"]["kernel"]
    y = y[c + n :]
    post = channel.get("postprocessor", "layernorm")
    if post == "l2norm":
        y = y / np.linalg.norm(y, axis=1, keepdims=True)
    if post == "timestamp_layernorm":
        parts = []
        for period in channel["time_periods"]:
            angle = 2 * np.pi * (now // period["unit"] % period["count"]) / period["count"]
            parts += [np.cos(angle), np.sin(angle)]
        y = linear(own["post"]["linear"], np.concatenate([y, np.stack(parts, axis=1)], axis=1))
    if post != "l2norm":
        y = norm(own["post"]["norm"], y)
    return y * token_layers(p["item"], candidates)


@pytest.mark.parametrize("name", CASES)
def test_equals_its_equations(name):
    stu, channel = CASES[name]
    model = build(stu, channel)
    params = params_of(model)
    acts, numbers = batch()
    made = nnx.jit(model)(acts, numbers)
    np.testing.assert_array_equal(made[CANDIDATES], COUNTS)
    for row in range(BATCH):
        if not COUNTS[row]:
            continue
        y = stated(params, stu, channel, {**acts, **numbers}, row)
        y = np.maximum(linear(params["mlp"]["layers"][0]["linear"], y), 0)
        for task, shape in (("click", (MOST,)), ("kind", (MOST, 2))):
            expected = linear(params["towers"]["tasks"][task]["linear"], y)
            found = np.asarray(made[task][row])
            assert found.shape == shape
            got = found[: COUNTS[row]].reshape(expected.shape)
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
            np.testing.assert_array_equal(found[COUNTS[row] :], 0)


def test_two_histories_stand_side_by_side():
    """The state of a candidate after two histories is that after each, concatenated."""
    groups = {"a": ["clicks"], "b": ["views"], "candidate": ["item"]}
    inputs = Inputs(acts={}, sequences={"clicks": DIM, "views": DIM, "item": DIM}, groups=groups)
    record = {
        "name": "hstu_ranker",
        "channels": [{"name": "a", "stu": STU}, {"name": "b", "stu": STU}],
        "item_hidden_dim": 5,
        "task_towers": [{"task": "click"}],
    }
    model = models.registry.from_dict(record).build(inputs, rngs=nnx.Rngs(0))
    rng = np.random.default_rng(1)
    acts = {
        name: sequence(rng, np.array(sizes), 4, DIM)
        for name, sizes in (("clicks", [4, 0, 2, 1]), ("views", [0, 1, 4, 2]))
    }
    acts["item"] = sequence(rng, COUNTS, MOST, DIM)

    @nnx.jit
    def expected(model, acts):
        users = [channel.rank(acts, {}, acts["item"], None) for channel in model.channels]
        y = jnp.concatenate(users, axis=-1) * model.item(acts["item"].clean)
        return jnp.where(acts["item"].mask, model.towers.tasks["click"](y.reshape(-1, 12)).reshape(BATCH, MOST), 0)

    found = nnx.jit(lambda model, acts: model(acts, {})["click"])(model, acts)
    np.testing.assert_allclose(found, expected(model, acts), rtol=1e-5, atol=1e-6)


def test_gradients_are_finite_and_reach_every_parameter():
    stu, channel = CASES["periods"]
    model = build(stu, {**channel, "actions": {**ACTIONS, **WATCH}, "content": {"hidden_dim": 4}})
    apply, params, rest = models.functional(model)
    acts, numbers = batch()

    def loss(params):
        outputs = apply.predict(params, rest, acts, numbers)
        return (outputs["click"] ** 2).sum() + (outputs["kind"] ** 2).sum()

    grads = jax.jit(jax.grad(loss))(params)
    for path, leaf in jax.tree_util.tree_leaves_with_path(grads):
        assert np.isfinite(np.asarray(leaf)).all(), path
        assert np.asarray(leaf).any(), path


@pytest.mark.parametrize(
    ("stu", "channel", "message"),
    [
        ({"truncation_split_layer": 2, "truncation_tail_len": 1}, {}, "must be below attn_num_layers"),
        ({"truncation_tail_len": 1}, {}, "go together"),
        ({}, {"postprocessor": "timestamp_layernorm"}, "time_periods go with the postprocessor"),
        ({}, {"actions": {**ACTIONS, "watchtime_thresholds": [1.0]}}, "must have one length"),
        ({}, {"content": {"hidden_dim": 2, "encoder": "mlp"}}, "uih_mlp and target_mlp go with"),
    ],
)
def test_bad_options(stu, channel, message):
    with pytest.raises(ValueError, match=message):
        build(stu, channel)


def test_times_need_their_groups():
    inputs = Inputs(acts={}, sequences={"clicks": 4, "item": 4}, groups={"uih": ["clicks"], "candidate": ["item"]})
    record = {
        "name": "hstu_ranker",
        "channels": [{"stu": {**STU, "num_time_buckets": 3}}],
        "task_towers": [{"task": "a"}],
    }
    with pytest.raises(ValueError, match="needs the group 'candidate_timestamp'"):
        models.registry.from_dict(record).build(inputs, rngs=nnx.Rngs(0))


def test_times_keep_their_digits_beside_activations_of_16_bits():
    """The same distances give the same outputs, though bfloat16 rounds times near 5000 to multiples of 32."""
    model = build({"num_time_buckets": 7, "time_bucket_increments": 1.0}, {})
    acts, numbers = batch()
    half = jax.tree.map(lambda x: x.astype(jnp.bfloat16) if jnp.issubdtype(x.dtype, jnp.floating) else x, acts)

    def outputs(shift):
        times = {"when": 4990 + shift, "now": 5000 + shift}
        moved = {
            name: numbers[name]._replace(values=jnp.full_like(numbers[name].values, times[name])) for name in times
        }
        return model(half, numbers | moved)["click"]

    np.testing.assert_array_equal(outputs(0), outputs(10))


@pytest.mark.slow
def test_padded_and_jagged_histories_agree():
    """Rows without gaps, with room behind them, give the outputs and gradients of padded ones."""
    model = build({"num_time_buckets": 7, "truncation_split_layer": 1, "truncation_tail_len": 2}, {"actions": ACTIONS})
    acts, numbers = batch()

    def jagged(held):
        places = [row[:length] for row, length in zip(held.values, np.asarray(held.lengths), strict=True)]
        values = jnp.concatenate([*places, jnp.full((3, held.values.shape[2]), 9.0)])
        offsets = jnp.asarray(np.concatenate([[0], np.cumsum(held.lengths)]), jnp.int32)
        return held._replace(jagged=Jagged(values, offsets))

    def loss(model, given, more):
        return sum(jnp.sum(jnp.sin(out)) for name, out in model(given, more).items() if name != CANDIDATES)

    plain = nnx.value_and_grad(loss)(model, acts, numbers)
    rows = [{name: jagged(x) if isinstance(x, Sequence) else x for name, x in part.items()} for part in (acts, numbers)]
    packed = nnx.value_and_grad(loss)(model, *rows)
    for one, two in zip(jax.tree.leaves(plain), jax.tree.leaves(packed), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)
