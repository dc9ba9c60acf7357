"""The reference: sequences padded to one length, all pairs of a sequence in memory. Slow, and readable."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from sparrow.kernels.attention.kind import EVERYTHING, Arrays, Gradients, Kind, Past, time_buckets


def unavailable(kind: Kind, arrays: Arrays) -> str | None:
    """Why this backend cannot run here; None: it can."""
    return None


def forward(kind: Kind, arrays: Arrays) -> tuple[jax.Array, None]:
    """(tokens, heads, width), and nothing for `backward`."""
    return continued(kind, arrays, None), None


def continued(kind: Kind, arrays: Arrays, past: Past | None) -> jax.Array:
    """(tokens, heads, width): the attention of tokens that follow ``past``, to both."""
    tokens, length = arrays.q.shape[0], kind.max_length
    segments, places = token_places(arrays.offsets, tokens)
    at = arrays.offsets[:-1, None] + jnp.arange(length)  # (sequences, length): the token of each place
    at = jnp.where(at < arrays.offsets[1:, None], at, tokens)

    def padded(x: jax.Array) -> jax.Array:
        return x.at[at].get(mode="fill", fill_value=0)

    q, k, v = padded(arrays.q), padded(arrays.k), padded(arrays.v)
    times = None if arrays.times is None else padded(arrays.times)
    lengths, keys = jnp.diff(arrays.offsets), jnp.arange(length)[None]
    queries, key_times = keys, times
    if past is not None:
        before = past.lengths[:, None]
        lengths, queries = lengths + past.lengths, keys + before
        known = jnp.arange(past.k.shape[1])
        keys = jnp.concatenate([jnp.where(known < before, known, EVERYTHING), queries], axis=1)
        k, v = (jnp.concatenate([old.astype(new.dtype), new], axis=1) for old, new in ((past.k, k), (past.v, v)))
        if times is not None and past.times is not None:
            key_times = jnp.concatenate([past.times, times], axis=1)
    seen, distance = visible(kind, arrays, lengths, queries[:, :, None], keys[:, None])
    scores = kind.alpha * jnp.einsum("sihd,sjhd->shij", q, k, preferred_element_type=jnp.float32)
    if arrays.position is not None:
        scores += arrays.position[jnp.clip(distance, 0, len(arrays.position) - 1)][:, None]
    if arrays.time is not None and times is not None and key_times is not None:
        ages = times[:, :, None] - key_times[:, None]
        scores += arrays.time[time_buckets(ages, kind.time_bucket_fn, kind.time_unit, len(arrays.time))][:, None]
    seen = seen[:, None]
    weights = jnp.where(seen, jax.nn.silu(scores), 0) if kind.score == "silu" else masked_softmax(scores, seen)
    out = jnp.einsum("shij,sjhd->sihd", (weights * kind.scale).astype(v.dtype), v, preferred_element_type=jnp.float32)
    result = out.at[segments, places].get(mode="fill", fill_value=jnp.nan)  # sequences that are too long
    there = jnp.arange(tokens) < arrays.offsets[-1]
    return jnp.where(there[:, None, None], result, 0).astype(arrays.v.dtype)


def token_places(offsets: jax.Array, tokens: int) -> tuple[jax.Array, jax.Array]:
    """Return the sequence of each token, past the last for padding, and its number in it; both (tokens,).

    >>> [x.tolist() for x in token_places(jnp.array([0, 2, 2, 3]), 4)]
    [[0, 0, 2, 3], [0, 1, 0, 0]]
    """
    begins = jnp.zeros(tokens, jnp.int32).at[offsets[1:]].add(1, mode="drop")
    segments = jnp.cumsum(begins)
    return segments, jnp.arange(tokens, dtype=jnp.int32) - offsets.at[segments].get(mode="clip")


def backward(kind: Kind, arrays: Arrays, out: jax.Array, held: None, grads: jax.Array) -> Gradients:
    """Return the gradients from that of the result."""
    differentiable = arrays.q, arrays.k, arrays.v, arrays.position, arrays.time

    def of(q: jax.Array, k: jax.Array, v: jax.Array, position: jax.Array, time: jax.Array) -> jax.Array:
        return forward(kind, arrays._replace(q=q, k=k, v=v, position=position, time=time))[0]

    there = jnp.arange(grads.shape[0]) < arrays.offsets[-1]
    _, pullback = jax.vjp(of, *differentiable)
    return Gradients(*pullback(jnp.where(there[:, None, None], grads, 0)))


def visible(kind: Kind, arrays: Arrays, lengths: jax.Array, i: jax.Array, j: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(sequences, queries, keys): whether the query at place i sees the key at place j, and their distance."""
    nothing = jnp.zeros_like(lengths)
    context = (nothing if arrays.contexts is None else arrays.contexts)[:, None, None]
    candidates = (nothing if arrays.candidates is None else arrays.candidates)[:, None, None]
    length = lengths[:, None, None]
    end = length - candidates
    there = (i < length) & (j < length)
    if kind.is_semi_local:
        distance = jnp.minimum(i, end) - jnp.minimum(j, end)
        near = (distance < kind.sla_k1) | (j < jnp.maximum(kind.sla_k2, context))
        return there & (j < end) & ((i >= end) | ((distance >= 0) & near)), distance
    # All of the context is one place, and all candidates are another.
    distance = jnp.clip(i, context - 1, end) - jnp.clip(j, context - 1, end)
    seen = (i == j) | ((distance > 0) & (distance <= kind.max_distance)) | ((i < context) & (j < end))
    return there & seen, distance


def masked_softmax(scores: jax.Array, mask: jax.Array) -> jax.Array:
    """Return the softmax along the last axis over the places where ``mask`` is True; all zeros where there is none.

    Gradients are finite, with an empty row and with any score behind the mask.

    >>> masked_softmax(jnp.array([[0.0, 0.0, 9.0], [1.0, 2.0, 3.0]]), jnp.array([[True, True, False], [False] * 3]))
    Array([[0.5, 0.5, 0. ],
           [0. , 0. , 0. ]], dtype=float32)
    """
    scores = jnp.where(mask, scores.astype(jnp.float32), -jnp.inf)
    largest = jax.lax.stop_gradient(scores.max(axis=-1, keepdims=True))
    powers = jnp.where(mask, jnp.exp(jnp.where(mask, scores - jnp.where(jnp.isfinite(largest), largest, 0), 0)), 0)
    total = powers.sum(axis=-1, keepdims=True)
    return powers / jnp.where(total > 0, total, 1)
