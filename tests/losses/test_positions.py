"""Losses at every position against NumPy statements, in blocks and in one piece."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparrow.losses import BPR, GBCE, InBatchSoftmax, Positions, SampledSoftmax, outputs

TOKENS, DRAWN, DIM = 13, 7, 5
RNG = np.random.default_rng(0)
TABLE = RNG.normal(size=(9, DIM)).astype(np.float32)
KEYS, DRAWN_KEYS = RNG.integers(0, 9, TOKENS), RNG.integers(0, 9, DRAWN)
WEIGHTS = np.array([1.0] * 11 + [0.0] * 2, np.float32)
LOG_Q = np.log(RNG.uniform(0.2, 2.0, DRAWN)).astype(np.float32)
QUERY = RNG.normal(size=(TOKENS, DIM)).astype(np.float32)


def given(query=QUERY, table=TABLE):
    integers = [jnp.asarray(x, jnp.int32) for x in (KEYS, DRAWN_KEYS, np.zeros(TOKENS))]
    query, table = jnp.asarray(query), jnp.asarray(table)
    return Positions(
        *(query, table[KEYS], integers[0], jnp.asarray(WEIGHTS), integers[2]),
        *(table[DRAWN_KEYS], integers[1], jnp.asarray(LOG_Q)),
    )


def softmax(own, others, temperature, smoothing=0.0):
    """Minus the logarithm of the softmax of ``own``; scores are corrected already."""
    every = np.append(own / temperature, others)
    log_p = every - np.log(np.exp(every).sum())
    return -(1 - smoothing) * log_p[0] - smoothing * log_p.mean()


def statement(loss, token):
    query, table = QUERY.astype(np.float64), TABLE.astype(np.float64)
    own, scores = query[token] @ table[KEYS[token]], query[token] @ table[DRAWN_KEYS].T
    negative = KEYS[token] != DRAWN_KEYS
    if isinstance(loss, SampledSoftmax):
        corrected = scores / loss.temperature - (LOG_Q if loss.log_q else 0)
        return softmax(own, corrected[negative], loss.temperature, loss.label_smoothing)
    if isinstance(loss, InBatchSoftmax):
        there = KEYS[:11] if not loss.log_q else np.unique(KEYS[:11])  # corrected: each item of the batch once
        return softmax(own, query[token] @ table[there[there != KEYS[token]]].T / loss.temperature, loss.temperature)
    if isinstance(loss, GBCE):
        beta = 1 - loss.calibration * (1 - min(np.exp(LOG_Q).mean(), 1))
        pairs = np.log1p(np.exp(scores[negative])).sum()
        return (beta * np.log1p(np.exp(-own)) + pairs) / (1 + negative.sum())
    return np.log1p(np.exp(scores[negative] - own)).mean()


LOSSES = [
    SampledSoftmax(0.5, label_smoothing=0.1),
    SampledSoftmax(log_q=False),
    InBatchSoftmax(0.7),
    InBatchSoftmax(log_q=False),
    GBCE(0.6),
    GBCE(0.0),
    BPR(),
]


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("cells", [2**22, 30])
def test_values_and_slopes(loss, cells, monkeypatch):
    monkeypatch.setattr(outputs, "CELLS", cells)
    values = jax.jit(lambda query: loss.values(given(query), None, ()))(QUERY)
    expected = [statement(loss, token) for token in range(11)]
    np.testing.assert_allclose(values[:11], expected, rtol=2e-6)

    def total(query, table):
        return (loss.values(given(query, table), None, ()) * WEIGHTS).sum()

    grads = jax.grad(total, (0, 1))(jnp.asarray(QUERY), jnp.asarray(TABLE))
    monkeypatch.setattr(outputs, "CELLS", 2**22)
    for found, plain in zip(grads, jax.grad(total, (0, 1))(jnp.asarray(QUERY), jnp.asarray(TABLE)), strict=True):
        assert np.isfinite(found).all()
        np.testing.assert_allclose(found, plain, rtol=1e-5, atol=1e-6)


def test_scores_of_all_tokens_and_items_are_never_in_memory(monkeypatch):
    tokens, items = 4096, 4096
    monkeypatch.setattr(outputs, "CELLS", 2**16)

    def total(query, table):
        ids = jnp.arange(tokens, dtype=jnp.int32)
        every = Positions(query, table[:tokens], ids, jnp.ones(tokens), ids * 0, table, jnp.arange(items), None)
        return SampledSoftmax().values(every, None, ()).sum()

    shapes = [jax.ShapeDtypeStruct((size, 8), jnp.float32) for size in (tokens, items)]
    program = jax.jit(jax.grad(total, (0, 1))).lower(*shapes).compile()
    assert program.memory_analysis().temp_size_in_bytes < 4 * 2**20  # all scores would be 64 MB


def test_drawn_negatives_are_needed():
    without = given()._replace(negatives=None, negative_keys=None)
    with pytest.raises(ValueError, match=r"none are drawn; add data\.negatives"):
        SampledSoftmax().values(without, None, ())
    with pytest.raises(ValueError, match="calibration needs alpha"):
        GBCE().values(given()._replace(negative_log_q=None), None, ())
