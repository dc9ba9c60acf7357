"""Two-tower and pairwise losses against their equations, written candidate by candidate in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sparrow import losses

BATCH, DIM, NEGATIVES, EXTRA = 5, 3, 4, 2
quick = settings(max_examples=40, deadline=None, derandomize=True)


def floats(*shape):
    return arrays(np.float32, shape, elements=st.floats(-3, 3, width=32))


def ids(*shape):
    return arrays(np.int32, shape, elements=st.integers(0, 5))


temperatures, smoothings = st.floats(0.05, 5), st.floats(0, 0.9)
in_batch, sampled, bpr = jax.jit(losses.in_batch_softmax), jax.jit(losses.sampled_softmax), jax.jit(losses.bpr)


def equal(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-5)


def smoothed_cross_entropy(right, wrong, s):
    """Of one query: the logit of what it chose, those of its true negatives, and the smoothing."""
    log_p = np.array([right, *wrong]) - np.logaddexp.reduce([right, *wrong])
    return -(1 - s) * log_p[0] - s * log_p.mean()


@quick
@given(
    floats(BATCH, DIM), floats(BATCH + EXTRA, DIM), floats(BATCH + EXTRA), ids(BATCH + EXTRA), temperatures, smoothings
)
def test_in_batch_softmax_equals_its_equation(query, item, log_q, item_ids, temperature, s):
    logits = query.astype(np.float64) @ item.astype(np.float64).T / temperature - log_q
    expected = [smoothed_cross_entropy(row[i], row[item_ids != item_ids[i]], s) for i, row in enumerate(logits)]
    options = {"log_q": log_q, "item_ids": item_ids, "temperature": temperature, "label_smoothing": s}
    equal(in_batch(query, item, **options), expected)


@quick
@given(
    floats(BATCH, DIM),
    floats(BATCH, DIM),
    floats(BATCH, NEGATIVES, DIM),
    floats(BATCH),
    floats(BATCH, NEGATIVES),
    ids(BATCH),
    ids(BATCH, NEGATIVES),
    temperatures,
    smoothings,
)
def test_sampled_softmax_equals_its_equation(query, positive, negatives, log_q, log_qs, own, others, temperature, s):
    right = np.einsum("id,id->i", query, positive, dtype=np.float64) / temperature - log_q
    wrong = np.einsum("id,ijd->ij", query, negatives, dtype=np.float64) / temperature - log_qs
    expected = [smoothed_cross_entropy(right[i], wrong[i, others[i] != own[i]], s) for i in range(BATCH)]
    options = {"positive_log_q": log_q, "negative_log_q": log_qs, "positive_ids": own, "negative_ids": others}
    actual = sampled(query, positive, negatives, **options, temperature=temperature, label_smoothing=s)
    equal(actual, expected)


def example(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def test_negatives_shared_by_all_queries_are_each_query_s_own():
    query, positive, shared = example(BATCH, DIM), example(BATCH, DIM) + 1, example(NEGATIVES, DIM)
    log_q, log_qs = example(BATCH), example(NEGATIVES)
    own, others = np.arange(BATCH, dtype=np.int32), np.arange(NEGATIVES, dtype=np.int32)

    def loss(negatives, log_qs, others):
        options = {"positive_log_q": log_q, "negative_log_q": log_qs, "positive_ids": own, "negative_ids": others}
        return sampled(query, positive, negatives, **options)

    tiled = [np.tile(array[None], (BATCH,) + array.ndim * (1,)) for array in (shared, log_qs, others)]
    equal(loss(shared, log_qs, others), loss(*tiled))


def test_in_batch_is_sampled_softmax_with_the_batch_as_sample():
    query, item, log_q = example(BATCH, DIM), example(BATCH, DIM) + 1, example(BATCH)
    item_ids = np.array([3, 1, 2, 9, 4], np.int32)
    ids = {"positive_ids": item_ids, "negative_ids": item_ids}
    actual = sampled(query, item, item, positive_log_q=log_q, negative_log_q=log_q, **ids)
    equal(actual, in_batch(query, item, log_q=log_q, item_ids=item_ids))


def test_accidental_hits_get_no_gradient():
    query, item = example(BATCH, DIM), example(BATCH, DIM) + 1
    item_ids = np.array([7, 7, 1, 2, 3], np.int32)

    def first_two(item):
        return losses.in_batch_softmax(query, item, item_ids=item_ids)[:2]

    jacobian = np.asarray(jax.jit(jax.jacobian(first_two))(item))  # (value, item, dim)
    # Row 0 and row 1 chose the same item: neither pushes the other's embedding of it away.
    assert np.all(jacobian[0, 1] == 0)
    assert np.all(jacobian[1, 0] == 0)
    assert np.all(jacobian[0, [0, 2, 3, 4]] != 0)


def test_a_batch_that_chose_one_item_has_no_negatives():
    query, item_ids = example(BATCH, DIM), np.full(BATCH, 7, np.int32)

    def total(query):
        return losses.in_batch_softmax(query, query, item_ids=item_ids, label_smoothing=0.1).sum()

    value, gradient = jax.jit(jax.value_and_grad(total))(query)
    assert value == 0
    assert np.all(gradient == 0)


def test_ids_on_the_host_may_be_wide_or_strings():
    query, item = example(BATCH, DIM), example(BATCH, DIM) + 1
    narrow = np.array([3, 3, 2, 9, 4], np.int32)
    wide, strings = narrow.astype(np.int64) << 32, narrow.astype(str)
    actual = jax.jit(lambda query: [losses.in_batch_softmax(query, item, item_ids=x) for x in (wide, strings)])(query)
    for values in actual:
        equal(values, in_batch(query, item, item_ids=narrow))


def test_temperature_can_be_learned():
    query, item = example(BATCH, DIM), example(BATCH, DIM) + 1

    def total(temperature):
        return in_batch(query, item, temperature=temperature).sum()

    slope = jax.jit(jax.grad(total))(0.7)
    np.testing.assert_allclose(slope, (total(0.71) - total(0.69)) / 0.02, rtol=1e-2)


@quick
@given(floats(BATCH), floats(BATCH, NEGATIVES), arrays(np.bool_, (BATCH, NEGATIVES)))
def test_bpr_equals_its_equation(positive, negative, taken):
    pairs = np.logaddexp(0, negative.astype(np.float64) - positive[:, None])
    expected = [row[keep].mean() if keep.any() else 0 for row, keep in zip(pairs, taken, strict=True)]
    equal(bpr(positive, negative, taken), expected)


def test_bpr_with_one_negative_each_and_without_a_mask():
    positive, negative = example(BATCH), example(BATCH) + 1
    equal(bpr(positive, negative), np.logaddexp(0, negative - positive))


def test_bpr_padding_may_hold_anything():
    positive, negative = jnp.array([1.0, 2.0]), jnp.array([[0.0, jnp.nan], [jnp.inf, jnp.nan]])
    taken = jnp.array([[True, False], [False, False]])

    def total(positive, negative):
        return losses.bpr(positive, negative, taken).sum()

    value, gradients = jax.jit(jax.value_and_grad(total, argnums=(0, 1)))(positive, negative)
    equal(value, np.log1p(np.exp(-1)))
    slope = 1 / (1 + np.exp(1))
    equal(gradients[0], [-slope, 0])
    equal(gradients[1], [[slope, 0], [0, 0]])


Q, N = jnp.zeros((BATCH, DIM)), jnp.zeros((NEGATIVES, DIM))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: losses.in_batch_softmax(Q, Q, temperature=0.0), "temperature must be a finite number above 0"),
        (lambda: losses.in_batch_softmax(Q, Q, label_smoothing=1.0), "label_smoothing must be .* below 1, got 1.0"),
        (lambda: losses.in_batch_softmax(Q, Q[:-1]), r"item must have shape \(items, 3\) with 5 .* \(4, 3\)"),
        (lambda: losses.in_batch_softmax(Q, Q[:, :2]), r"item must have shape \(items, 3\).* got \(5, 2\)"),
        (lambda: losses.in_batch_softmax(Q[0], Q), r"query must have shape \(batch, dim\), got \(3,\)"),
        (lambda: losses.sampled_softmax(Q, Q, N[:, :2]), r"negatives must have shape .* got \(4, 2\)"),
        (
            lambda: losses.sampled_softmax(Q, Q, N, positive_ids=jnp.arange(5)),
            "positive_ids was given without negative_ids; give both or neither",
        ),
        (
            lambda: losses.sampled_softmax(Q, Q, N, negative_log_q=jnp.zeros(4)),
            "negative_log_q was given without positive_log_q; give both or neither",
        ),
        (lambda: losses.bpr(Q[:, 0], Q[:, 0], Q[:, 0]), "where must be booleans, got float32"),
        (lambda: losses.bpr(Q[:, 0], Q[:4]), r"negative_logits must have shape \(5,\) or \(5, negatives\).* \(4, 3\)"),
    ],
)  # fmt: skip
def test_bad_input(call, message):
    with pytest.raises((TypeError, ValueError), match=rf"^(in_batch_softmax|sampled_softmax|bpr): {message}"):
        call()


def test_negatives_that_are_shared_and_ones_own():
    """Each query has the shared negatives and a block of its own, of which some take part: as if all were its own."""
    rng = np.random.default_rng(4)
    batch, shared, own, dim = 3, 4, 2, 5
    query, item = rng.normal(size=(batch, dim)), rng.normal(size=(batch, dim))
    drawn = rng.normal(size=(shared + batch * own, dim))
    takes_part = rng.random((batch, shared + own)) < 0.6
    blocks = drawn[shared:].reshape(batch, own, dim)
    loss = losses.SampledSoftmax(temperature=0.5, label_smoothing=0.1)
    towers = losses.Towers(*map(jnp.asarray, (query, item, drawn)), takes_part=jnp.asarray(takes_part, jnp.int32))
    made = loss.values(towers, None, ())
    for i in range(batch):
        candidates = np.concatenate(
            [item[i][None], drawn[:shared][takes_part[i, :shared]], blocks[i][takes_part[i, shared:]]]
        )
        logits = candidates @ query[i] / 0.5
        target = np.full(len(logits), 0.1 / len(logits))
        target[0] += 0.9
        assert made[i] == pytest.approx(-(target * (logits - np.log(np.exp(logits).sum()))).sum(), rel=1e-5)
    scores, chosen = towers.ranked()
    assert chosen.tolist() == [0, 0, 0]
    assert np.isneginf(np.asarray(scores)[:, 1:]).tolist() == (~takes_part).tolist()
    one = losses.Towers(*map(jnp.asarray, (query[:1], item[:1], drawn[:6])), takes_part=jnp.ones((1, 6), jnp.int32))
    np.testing.assert_allclose(one.other_scores()[0], query[:1] @ drawn[:6].T, rtol=1e-5)


def test_all_that_a_user_chose_in_the_batch_is_left_out():
    query, item = rng_rows(3, 6, 3), rng_rows(4, 6, 3)
    users, ids = np.array([1, 1, 2, 3, 3, 3]), np.array([7, 8, 7, 8, 9, 8])
    chosen = np.array([[any(users[k] == u and ids[k] == i for k in range(6)) for i in ids] for u in users])
    logits = np.where(chosen & ~np.eye(6, dtype=bool), -np.inf, query @ item.T)
    expected = np.log(np.exp(logits).sum(1)) - np.diag(logits)
    actual = losses.in_batch_softmax(query, item, item_ids=jnp.asarray(ids), user_ids=jnp.asarray(users))
    np.testing.assert_allclose(actual, expected, rtol=1e-5)
    drawn, drawn_ids = rng_rows(5, 4, 3), np.array([7, 8, 9, 10])
    hit = np.array([[any(users[k] == u and ids[k] == i for k in range(6)) for i in drawn_ids] for u in users])
    own = (query * item).sum(1)
    expected = np.log(np.exp(own) + np.exp(np.where(hit, -np.inf, query @ drawn.T)).sum(1)) - own
    known = {"positive_ids": jnp.asarray(ids), "negative_ids": jnp.asarray(drawn_ids), "user_ids": jnp.asarray(users)}
    np.testing.assert_allclose(losses.sampled_softmax(query, item, drawn, **known), expected, rtol=1e-5)


def rng_rows(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_values_use_the_log_q_of_the_towers_unless_switched_off():
    query, item, drawn = rng_rows(0, 3, 2), rng_rows(1, 3, 2), rng_rows(2, 4, 2)
    positive, negative = rng_rows(3, 3), rng_rows(4, 4)
    of_batch = losses.Towers(query, item, positive_log_q=jnp.asarray(positive))
    corrected = losses.in_batch_softmax(query, item, log_q=positive)
    np.testing.assert_array_equal(losses.InBatchSoftmax().values(of_batch, None, []), corrected)
    plain = losses.InBatchSoftmax(log_q=False).values(of_batch, None, [])
    np.testing.assert_array_equal(plain, losses.in_batch_softmax(query, item))
    logs = {"positive_log_q": jnp.asarray(positive), "negative_log_q": jnp.asarray(negative)}
    of_drawn = losses.Towers(query, item, jnp.asarray(drawn), **logs)
    corrected = losses.sampled_softmax(query, item, drawn, **logs)
    np.testing.assert_array_equal(losses.SampledSoftmax().values(of_drawn, None, []), corrected)
    mixed = of_drawn._replace(takes_part=jnp.ones((3, 4), jnp.int32))
    np.testing.assert_allclose(losses.SampledSoftmax().values(mixed, None, []), corrected, rtol=1e-5)


def test_an_item_chosen_by_others_too_is_no_rival_in_the_ranking():
    towers = losses.Towers(jnp.eye(3), jnp.eye(3), positive_ids=jnp.array([4, 4, 5]))
    scores, chosen = towers.ranked()
    assert chosen.tolist() == [0, 1, 2]
    assert np.isneginf(scores).tolist() == [[False, True, False], [True, False, False], [False] * 3]
