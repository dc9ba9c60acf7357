"""`jagged_attention`: attention within sequences that lie one after the other, without padding."""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Iterator
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from sparrow import fields
from sparrow.kernels.attention import cuda, native, padded
from sparrow.kernels.attention.kind import EVERYTHING, Arrays, Gradients, Kind, Past, Score, TimeBucket
from sparrow.kernels.device_kind import preferred
from sparrow.kernels.warning import warn_once
from sparrow.registry import nearest


class Backend(Protocol):
    """A way to compute an attention. `forward` also returns what `backward` needs besides the arrays and the result."""

    def unavailable(self, kind: Kind, arrays: Arrays) -> str | None: ...
    def forward(self, kind: Kind, arrays: Arrays) -> tuple[jax.Array, Any]: ...
    def backward(self, kind: Kind, arrays: Arrays, out: jax.Array, held: Any, grads: jax.Array) -> Gradients: ...


BACKENDS: dict[str, Backend] = {"xla": padded, "native": native, "cuda": cuda}


def jagged_attention(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    offsets: jax.Array,
    *,
    max_length: int,
    score: Score = "silu",
    alpha: float = 1.0,
    scale: float = 1.0,
    contexts: jax.Array | None = None,
    candidates: jax.Array | None = None,
    max_distance: int | None = None,
    sla_k1: int = 0,
    sla_k2: int = 0,
    position_bias: jax.Array | None = None,
    time_bias: jax.Array | None = None,
    times: jax.Array | None = None,
    time_bucket_fn: TimeBucket = "sqrt",
    time_unit: float = 1.0,
    past: Past | None = None,
    backend: str = "auto",
) -> jax.Array:
    """Attention of the tokens of a sequence to one another, ``(tokens, heads, width)`` in the dtype of ``v``.

    ::

        s_ij  = alpha <q_i, k_j> + position_bias[p_i - p_j] + time_bias[bucket(t_i - t_j)]       of each head
        out_i = scale Σ_j silu(s_ij) v_j               score "silu", no division: the length of a history counts
        out_i = scale Σ_j softmax(s_i)_j v_j           score "softmax"

    over the j that i sees. A sequence is context, then history, then candidates; p is a token's place in it, where all
    of the context is one place, and all candidates are another. A token sees itself and, at a distance of at most
    ``max_distance``, all before it but candidates; the context sees all of itself and of the history. So a sequence
    that is all context has no order: every token sees every other. With sla_k1 or sla_k2 a token of context or
    history sees instead the sla_k1 newest up to itself and, before it, the first sla_k2 (at least all of the context),
    and a candidate sees context and history, not itself.

    Differentiable in q, k, v and the two biases; the same bits every time. Sums are in float32.

    >>> q = k = jnp.zeros((4, 1, 1))
    >>> v = jnp.arange(4.0)[:, None, None]
    >>> two = jnp.array([0, 3, 4])  # sequences of 3 tokens and of 1
    >>> jagged_attention(q, k, v, two, max_length=3, score="softmax")[:, 0, 0].tolist()
    [0.0, 0.5, 1.0, 3.0]

    Args:
      q: (tokens, heads, dim).
      k: (tokens, heads, dim).
      v: (tokens, heads, width).
      offsets: (sequences + 1,) integers, from 0, never decreasing; sequence s is the tokens from ``offsets[s]`` to
        ``offsets[s + 1]``. Tokens from ``offsets[-1]`` on are padding, finite numbers of no meaning: the result is 0.
      max_length: no sequence is longer.
      score: "silu" or "softmax".
      alpha: the factor of the products.
      scale: the factor of the result.
      contexts: (sequences,) integers, how many of the first tokens are context; None: none.
      candidates: (sequences,) integers, how many of the last tokens are candidates; None: none.
      max_distance: the largest distance in place; None: any.
      sla_k1: the newest that a token sees; 0 with sla_k2=0: no such limit.
      sla_k2: the first that a token sees.
      position_bias: (buckets,) by distance in place; larger distances have the last one.
      time_bias: (buckets,) by bucket of the distance in time.
      times: (tokens,) when each was; with ``time_bias``.
      time_bucket_fn: a distance d has bucket √(d / time_unit), or "log": log(max(d / time_unit, 1)), rounded down.
      time_unit: the unit of time.
      past: keys and values of tokens before these, which see them as if all were computed together; ``contexts`` are
        among them. Computed by "xla", whose memory is tokens times keys.
      backend: "auto", or one of "xla" (padded, the reference), "native" (CPU), "cuda" (NVIDIA GPU).
    """
    _check(q, k, v, offsets, times, time_bias)
    fields.choice("score", score, ("silu", "softmax"))
    fields.choice("time_bucket_fn", time_bucket_fn, ("sqrt", "log"))
    if 0 in (*q.shape, *v.shape, offsets.shape[0] - 1, max_length):
        return jnp.zeros_like(v)
    reach = EVERYTHING if max_distance is None else max_distance
    kind = Kind(score, alpha, scale, max_length, reach, sla_k1, sla_k2, time_bucket_fn, time_unit)
    integers = [None if x is None else x.astype(jnp.int32) for x in (offsets, contexts, candidates)]
    numbers = [None if x is None else jnp.asarray(x, jnp.float32) for x in (position_bias, time_bias, times)]
    arrays = Arrays(q, k, v, *integers, *numbers)  # type: ignore[arg-type]
    if past is not None:
        return padded.continued(kind, arrays, past)
    return _attend(kind, chosen(backend, kind, arrays), arrays)


def _check(q: Any, k: Any, v: Any, offsets: Any, times: Any, time_bias: Any) -> None:
    shapes = f"q {q.shape}, k {k.shape}, v {v.shape}"
    if q.ndim != 3 or q.shape != k.shape or v.ndim != 3 or v.shape[:2] != q.shape[:2]:
        raise ValueError(f"q and k must be (tokens, heads, dim) and v (tokens, heads, width), got {shapes}")
    if offsets.ndim != 1 or offsets.shape[0] < 1:
        raise ValueError(f"offsets must be (sequences + 1,), got {offsets.shape}")
    if (times is None) != (time_bias is None):
        raise ValueError("times and time_bias go together; give both or neither")


_only_xla: contextvars.ContextVar[bool] = contextvars.ContextVar("only_xla", default=False)


@contextlib.contextmanager
def portable_attention() -> Iterator[None]:
    """Let backend "auto" be "xla" in this thread: for programs that run elsewhere, without this package's kernels."""
    token = _only_xla.set(True)
    try:
        yield
    finally:
        _only_xla.reset(token)


def is_portable() -> bool:
    """Whether this thread is in `portable_attention`."""
    return _only_xla.get()


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _attend(kind: Kind, backend: str, arrays: Arrays) -> jax.Array:
    return BACKENDS[backend].forward(kind, arrays)[0]


def _attend_forward(kind: Kind, backend: str, arrays: Arrays) -> tuple[jax.Array, Any]:
    out, held = BACKENDS[backend].forward(kind, arrays)
    return out, (arrays, out, held)


def _attend_backward(kind: Kind, backend: str, held: Any, grads: jax.Array) -> tuple[Arrays]:
    arrays, out, more = held
    found = BACKENDS[backend].backward(kind, arrays, out, more, grads)
    nothing = arrays._replace(**dict.fromkeys(arrays._fields))
    return (nothing._replace(**found._asdict()),)


_attend.defvjp(_attend_forward, _attend_backward)


def chosen(backend: str, kind: Kind, arrays: Arrays) -> str:
    """Return the name of the backend that runs."""
    if backend not in (*BACKENDS, "auto"):
        raise ValueError(f"unknown backend '{backend}': {nearest(backend, [*BACKENDS, 'auto'])}")
    if backend == "auto":
        backend = "xla" if is_portable() else preferred()
        if reason := BACKENDS[backend].unavailable(kind, arrays):
            warn_once(f"attention runs on the slower 'xla' backend, because '{backend}' cannot run it: {reason}")
            return "xla"
    elif reason := BACKENDS[backend].unavailable(kind, arrays):
        raise ValueError(f"backend '{backend}' cannot run this attention: {reason}")
    return backend
