"""Encoders: padding, truncation, empty histories and those of one element."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from sparrow import models
from sparrow.kernels import time_buckets
from sparrow.models import HSTU, MLP, Capsules, Encoded, Inputs, Sequence
from sparrow.models.retrievers.mind import masked_softmax
from sparrow.models.sequences import (
    PoolingEncoder,
    SelfAttention,
    SimpleAttention,
    TargetAttention,
    WindowAttention,
    encoders,
    gathers,
)
from sparrow.models.sequences.gathers import small_lookup
from sparrow.models.sequences.layout import Layout, Tokens, no_rows

DIM, LENGTHS = 4, np.array([3, 0, 1, 2], np.int32)
VALUES = np.random.default_rng(0).normal(size=(4, 3, DIM)).astype(np.float32)
QUERY = np.random.default_rng(1).normal(size=(4, DIM)).astype(np.float32)
STU = HSTU(DIM, num_heads=2, hidden_dim=3, attention_dim=2, scaling_seqlen=8, attn_num_layers=2)


def group_of(dim, query_dim):
    inputs = Inputs(acts={"item": query_dim}, sequences={"clicks": dim}, groups={"history": ["item", "clicks"]})
    return inputs.sequence_group("history")


GROUP = group_of(DIM, DIM)
WITH_QUERY = {
    "target": lambda: TargetAttention(GROUP, attn_mlp=MLP((5,)), rngs=nnx.Rngs(0)),
    "simple": lambda: SimpleAttention(GROUP),
    "windows": lambda: WindowAttention(GROUP, attn_mlp=MLP((5,)), windows_len=(2, 4), rngs=nnx.Rngs(0)),
}
WITHOUT = {
    "sum": lambda: PoolingEncoder(GROUP, pooling_type="sum"),
    "mean": lambda: PoolingEncoder(GROUP),
    "self": lambda: SelfAttention(GROUP, multihead_attn_dim=6, num_heads=2, rngs=nnx.Rngs(0)),
    "capsules": lambda: Capsules(high_dim=3, max_seq_len=9, max_k=2).build(DIM, rngs=nnx.Rngs(0)),
    "hstu": lambda: STU.build(rngs=nnx.Rngs(0)),
}


@functools.cache
def encoder(name):
    """Made before the first test, and not while tests are collected: initial values are compiled."""
    return {**WITH_QUERY, **WITHOUT}[name]()


@pytest.fixture(scope="module", autouse=True)
def _encoders():
    for name in (*WITH_QUERY, *WITHOUT):
        encoder(name)  # outside of any trace


def encode(name, values, lengths):
    """One vector per example, whatever the encoder."""
    sequence = Sequence(jnp.asarray(values), jnp.asarray(lengths))
    if name in WITH_QUERY:
        return encoder(name)(sequence, jnp.asarray(QUERY))
    if name == "hstu":
        x, layout = encoder(name)(tokens_of(sequence))
        return layout.newest(x)
    made = encoder(name)(sequence)
    return made[0].reshape(len(lengths), -1) if name == "capsules" else made


def tokens_of(sequence, context=None):
    """The tokens of a history, after those of context."""
    batch, most, dim = sequence.values.shape
    context = jnp.zeros((batch, 0, dim)) if context is None else context
    return Tokens(context, sequence.rows, no_rows(sequence.rows), most, 0)


every_encoder = pytest.mark.parametrize("name", [*WITH_QUERY, *WITHOUT])


@every_encoder
def test_padding_changes_nothing(name):
    expected = jax.jit(encode, static_argnums=0)(name, VALUES, LENGTHS)
    longer = np.concatenate([VALUES, np.full((4, 4, DIM), np.nan, np.float32)], axis=1)
    longer[np.arange(7) >= LENGTHS[:, None]] = np.nan

    def total(values):
        made = encode(name, values, LENGTHS)
        return jnp.sum(jnp.sin(made)), made

    grads, made = jax.jit(jax.grad(total, has_aux=True))(jnp.asarray(longer))
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-6)
    assert np.isfinite(grads).all()
    assert not np.asarray(grads)[np.arange(7) >= LENGTHS[:, None]].any()
    assert np.asarray(grads)[0, :3].all()


@every_encoder
def test_empty_history_is_zero(name):
    made = np.asarray(jax.jit(encode, static_argnums=0)(name, VALUES, LENGTHS))
    kept = QUERY[1] if name == "windows" else []
    np.testing.assert_array_equal(made[1, : made.shape[1] - len(kept)], 0)
    np.testing.assert_array_equal(made[1, made.shape[1] - len(kept) :], kept)
    assert np.abs(made[[0, 2, 3]]).max(axis=1).all()


@pytest.mark.parametrize("name", ["sum", "mean", "target", "simple"])
def test_one_element_is_itself(name):
    np.testing.assert_allclose(encode(name, VALUES, LENGTHS)[2], VALUES[2, 0], rtol=1e-6)


def test_pooling():
    totals = np.stack([row[:length].sum(axis=0) for row, length in zip(VALUES, LENGTHS, strict=True)])
    np.testing.assert_allclose(encode("sum", VALUES, LENGTHS), totals, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        encode("mean", VALUES, LENGTHS), totals / np.maximum(LENGTHS, 1)[:, None], rtol=1e-5, atol=1e-6
    )


def test_simple_attention():
    scores = VALUES[0] @ QUERY[0]
    weights = np.exp(scores) / np.exp(scores).sum()
    np.testing.assert_allclose(encode("simple", VALUES, LENGTHS)[0], weights @ VALUES[0], rtol=1e-5)


def test_self_attention():
    """One example at a time, in plain words."""
    attention = encoder("self")

    def linear(layer, x):
        return x @ np.asarray(layer.kernel[...], np.float64) + (
            0 if layer.bias is None else np.asarray(layer.bias[...])
        )

    for row in (0, 3):
        x = VALUES[row, : LENGTHS[row]].astype(np.float64)
        q, k, v = linear(attention.query, x), linear(attention.key, x), linear(attention.value, x)
        heads = []
        for head in (slice(0, 3), slice(3, 6)):
            scores = np.exp(q[:, head] @ k[:, head].T / np.sqrt(3))
            heads.append(scores / scores.sum(axis=1, keepdims=True) @ v[:, head])
        expected = linear(attention.output, np.concatenate(heads, axis=1)).mean(axis=0)
        np.testing.assert_allclose(encode("self", VALUES, LENGTHS)[row], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "make",
    [
        lambda n: PoolingEncoder(GROUP, max_length=n),
        lambda n: SimpleAttention(GROUP, max_length=n),
        lambda n: TargetAttention(GROUP, attn_mlp=MLP((5,)), max_length=n, rngs=nnx.Rngs(0)),
        lambda n: SelfAttention(GROUP, multihead_attn_dim=6, num_heads=2, max_length=n, rngs=nnx.Rngs(0)),
    ],
)
def test_max_length_keeps_the_first(make):
    arguments = (jnp.asarray(QUERY),) if make(2).attends else ()
    cut = make(2)(Sequence(jnp.asarray(VALUES), jnp.asarray(LENGTHS)), *arguments)
    short = Sequence(jnp.asarray(VALUES[:, :2]), jnp.minimum(jnp.asarray(LENGTHS), 2))
    np.testing.assert_allclose(cut, make(None)(short, *arguments), rtol=1e-6)


def test_a_later_element_changes_no_earlier_state():
    later = VALUES.copy()
    later[0, 2] += 1
    layers = encoder("hstu")
    before, after = (layers(tokens_of(Sequence(jnp.asarray(v), jnp.asarray(LENGTHS))))[0] for v in (VALUES, later))
    np.testing.assert_array_equal(before[:2], after[:2])  # of the first history
    assert (np.asarray(before[2]) != np.asarray(after[2])).any()


def test_times_and_their_buckets_go_together():
    history = Sequence(jnp.asarray(VALUES), jnp.asarray(LENGTHS))
    tokens = tokens_of(history)._replace(times=Sequence(jnp.zeros((4, 3, 1)), history.lengths))
    with pytest.raises(ValueError, match="HSTU reads times by num_time_buckets, and num_time_buckets is missing"):
        encoder("hstu")(tokens)


def test_log_buckets():
    assert time_buckets(jnp.array([0.0, 1.0, 2.8, 20.2, 1e9]), "log", 1.0, 9).tolist() == [0, 0, 1, 3, 8]


def test_an_element_before_the_first():
    sequence = Sequence(jnp.asarray(VALUES), jnp.asarray(LENGTHS))
    x, layout = Layout.join(tokens_of(sequence, jnp.asarray(QUERY)[:, None]))
    np.testing.assert_array_equal(x[layout.offsets[:-1]], QUERY)
    np.testing.assert_array_equal(x[1:4], VALUES[0])


def test_softmax_of_large_scores():
    made = masked_softmax(jnp.array([[1e4, 1e4, np.nan]]), jnp.array([[True, True, False]]))
    np.testing.assert_array_equal(made, [[0.5, 0.5, 0.0]])


INPUTS = Inputs(
    acts={"item": 4},
    sequences={"clicks": 4, "kinds": 2},
    groups={"history": ["item", "clicks", "kinds"], "deep": ["item"]},
)


@pytest.mark.parametrize(
    ("acts", "message"),
    [
        ({"clicks": (3, 4), "kinds": (2, 2)}, "the sequences 'clicks' and 'kinds' must have one length, got 3 and 2"),
        ({"clicks": (3, 5), "kinds": (3, 2)}, r"'clicks' must have values of shape \(batch, length, 4\), as in Inputs"),
        ({"clicks": (3, 4)}, "feature 'kinds' must be a Sequence, and is missing"),
    ],
)
def test_bad_batches(acts, message):
    batch = {name: Sequence(jnp.zeros((2, *shape)), jnp.zeros(2, int)) for name, shape in acts.items()}
    with pytest.raises(ValueError, match=message):
        INPUTS.sequence_group("history").sequence(batch, {})


def test_bad_groups():
    with pytest.raises(ValueError, match="group 'history' takes single features, but 'clicks' is a sequence in order"):
        INPUTS.group("history")
    with pytest.raises(ValueError, match="group 'deep' needs a sequence in order, and has none"):
        INPUTS.sequence_group("deep")
    with pytest.raises(ValueError, match=r"is in both Inputs.acts and Inputs.sequences; name it once"):
        Inputs(acts={"item": 4}, sequences={"item": 4})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: TargetAttention(group_of(4, 5), attn_mlp=MLP((4,)), rngs=nnx.Rngs(0)),
            "attention needs a candidate of 1 to 4 numbers",
        ),
        (
            lambda: SelfAttention(GROUP, multihead_attn_dim=6, num_heads=4, rngs=nnx.Rngs(0)),
            "multiple of num_heads=4, got 6",
        ),
        (
            lambda: WindowAttention(GROUP, attn_mlp=MLP((4,)), windows_len=(), rngs=nnx.Rngs(0)),
            "windows_len must be a list of at least one",
        ),
        (lambda: PoolingEncoder(GROUP, pooling_type="max"), "pooling_type must be one of 'sum', 'mean', got 'max'"),
        (lambda: HSTU(4, 1, 4, 4, 8, time_bucket_fn="cube"), "time_bucket_fn must be one of 'sqrt', 'log', got 'cube'"),
        (lambda: HSTU(4, 0, 4, 4, 8), "HSTU.num_heads must be an integer of at least 1, got 0"),
    ],
)
def test_bad_options(make, message):
    with pytest.raises(ValueError, match=message):
        make()


ENCODERS = [
    {"name": "pooling_encoder", "input": "history", "pooling_type": "sum", "max_length": 2},
    {"name": "din_encoder", "input": "history", "attn_mlp": {"hidden_units": [4]}},
    {"name": "simple_attention", "input": "other"},
    {"name": "multi_window_din_encoder", "input": "history", "attn_mlp": {"hidden_units": [4]}, "windows_len": [1, 2]},
    {"name": "self_attention_encoder", "input": "other", "multihead_attn_dim": 4, "num_heads": 2},
]


def test_encoders_in_front_of_any_model():
    """The model gets the encoders' results behind its own features, and nothing of the histories."""
    groups = {"all": ["item"], "history": ["item", "clicks", "kinds"], "other": ["item", "clicks"]}
    inputs = Inputs(acts={"item": 4}, sequences={"clicks": 4, "kinds": 2}, groups=groups)
    records = [encoders.from_dict(record) for record in ENCODERS]
    assert [encoders.from_dict(encoders.to_dict(record)) for record in records] == records
    assert {record["name"] for record in ENCODERS} == set(encoders.names())
    linear = models.registry.from_dict({"name": "multi_tower", "towers": [{"input": "all"}]})
    model = Encoded(linear, inputs, {"all": records}, rngs=nnx.Rngs(0))
    clicks = Sequence(jnp.asarray(VALUES), jnp.asarray(LENGTHS))
    kinds = Sequence(jnp.asarray(VALUES[:, :, :2]), jnp.asarray(LENGTHS))
    made = model({"item": jnp.asarray(QUERY), "clicks": clicks, "kinds": kinds}, {})["logits"]
    both = Sequence(jnp.concatenate([clicks.values, kinds.values], axis=2), clicks.lengths)
    parts = [jnp.asarray(QUERY)]
    for encoder, record in zip(model.encoders, ENCODERS, strict=True):
        sequence = both if record["input"] == "history" else clicks
        attends = ("attention" in record["name"] and "self" not in record["name"]) or "din" in record["name"]
        assert encoder.attends == attends
        parts.append(encoder(sequence, jnp.asarray(QUERY)) if attends else encoder(sequence))
    np.testing.assert_allclose(made, model.model.logits(jnp.concatenate(parts, axis=1)), rtol=1e-5, atol=1e-6)
    assert hash(nnx.graphdef(model)) is not None


@pytest.mark.parametrize(
    ("group", "record", "message"),
    [
        ("al", ENCODERS[1], "MultiTower reads no group 'al': did you mean 'all'?"),
        ("all", {**ENCODERS[1], "input": "histories"}, "there is no group 'histories': did you mean 'history'?"),
        (
            "all",
            {**ENCODERS[2], "input": "history"},
            "needs a candidate as long as an element of the history, 6; got 4",
        ),
        ("all", {**ENCODERS[3], "max_length": 3}, "has the length of its windows; remove max_length"),
    ],
)
def test_bad_encoders(group, record, message):
    inputs = Inputs(
        acts=INPUTS.acts, sequences=INPUTS.sequences, groups={"history": INPUTS.groups["history"], "all": ["item"]}
    )
    linear = models.registry.from_dict({"name": "multi_tower", "towers": [{"input": "all"}]})
    with pytest.raises(ValueError, match=re.escape(message)):
        Encoded(linear, inputs, {group: [encoders.from_dict(record)]}, rngs=nnx.Rngs(0))


@pytest.mark.parametrize(("size", "rows"), [(6, 8), (3, 40)])  # many of them, and few
def test_rows_that_are_taken_and_put_back(size, rows):
    rng = np.random.default_rng(0)
    to = rng.permutation(rows)[:size]
    to[1] = rows  # zeros
    x, weights = rng.normal(size=(rows, 2)), rng.normal(size=(size, 2))
    got, pullback = jax.vjp(gathers.Order.of(jnp.asarray(to), rows).take, jnp.asarray(x, jnp.float32))
    there, want = to < rows, np.zeros((rows, 2))
    want[to[there]] = weights[there]
    np.testing.assert_allclose(got, np.where(there[:, None], x[np.minimum(to, rows - 1)], 0), rtol=1e-6)
    np.testing.assert_allclose(pullback(jnp.asarray(weights, jnp.float32))[0], want, rtol=1e-6)


@pytest.mark.parametrize("ones", [14, 2**28])
def test_gradients_of_a_lookup_in_a_small_table(ones, monkeypatch):
    rng = np.random.default_rng(0)
    table, weights = (jnp.asarray(rng.normal(size=(7, 3)), jnp.float32) for _ in range(2))
    rows = jnp.array([0, 3, 9, -2, 6, 6, 1])  # two are clipped

    def total(table):
        return (small_lookup(table, rows) * weights).sum()

    scattered = jax.grad(total)(table)
    np.testing.assert_allclose(scattered[6], weights[2] + weights[4] + weights[5], rtol=1e-6)
    monkeypatch.setattr(gathers, "platform", lambda: "gpu")
    monkeypatch.setattr(gathers, "ONES", ones)
    np.testing.assert_allclose(jax.grad(total)(table), scattered, rtol=1e-6)


@pytest.mark.parametrize("count", [5, 9, 20])
def test_gradients_of_a_lookup_by_place(count, monkeypatch):
    """Two candidates at most share the place after the history; a table may have fewer rows than there are places."""
    rng = np.random.default_rng(0)
    offsets, ends, tokens = np.array([0, 8, 8, 10, 16]), np.array([6, 0, 1, 6]), 18
    places = np.concatenate([np.minimum(np.arange(n), end) for n, end in zip(np.diff(offsets), ends, strict=True)])
    places = jnp.asarray(np.pad(places, (0, tokens - len(places))), jnp.int32)
    table, weights = jnp.asarray(rng.normal(size=(count, 3)), jnp.float32), rng.normal(size=(tokens, 3))
    weights[offsets[-1] :] = 0
    held = jnp.asarray(offsets, jnp.int32), jnp.asarray(ends, jnp.int32)

    def total(table):
        return (gathers.place_lookup(8, 2, table, places, *held) * weights).sum()

    scattered = jax.grad(total)(table)
    monkeypatch.setattr(gathers, "platform", lambda: "gpu")
    np.testing.assert_allclose(jax.grad(total)(table), scattered, rtol=1e-5, atol=1e-6)


def test_many_tokens_are_padded_to_whole_blocks():
    @jax.jit
    def joined(values, lengths):
        rows = Sequence(values, lengths).rows
        x, layout = Layout.join(Tokens(jnp.zeros((3, 1, 2)), rows, no_rows(rows), 400, 0))
        return x, layout.offsets

    x, offsets = joined(jnp.ones((3, 400, 2)), jnp.array([400, 7, 300]))
    assert x.shape == (1280, 2)
    assert offsets.tolist() == [0, 401, 409, 710]
    assert float(x.sum()) == 2 * 707
