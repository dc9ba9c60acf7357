"""States of histories: keys and values of every layer, recorded while a model runs, and continued by further tokens.

A model runs inside `recorded`, and is the same program as without it. `Layout` makes a `Pass` for each time that tokens
are joined, and every attention adds its keys and values. With states from before, the model is given the tokens that
are new: elements, candidates, or both; they attend to the known ones, too. Candidates are never recorded.
"""

from __future__ import annotations

import contextlib
import contextvars
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp


class Known(NamedTuple):
    """The arrays that a pass over the tokens of context and history keeps for later passes.

    Attributes:
      lengths: (batch,) int32, the tokens of each example.
      held: (batch, places, width) float32: of each token its time where times are read, then the keys and values of
        each attention; zeros behind the last token.
    """

    lengths: jax.Array
    held: jax.Array


class Pass:
    """One pass over tokens, while it is traced. `Layout` reads and fills it.

    Attributes:
      past: the tokens before; None: there are none.
    """

    def __init__(self, past: Known | None) -> None:
        self.past, self._read = past, 0
        self._lengths: jax.Array | None = None
        self._made: list[jax.Array] = []

    def taken(self, shape: tuple[int, ...]) -> jax.Array:
        """(batch, places, *shape): the next numbers of each known token."""
        assert self.past is not None
        width = math.prod(shape)
        held = self.past.held[:, :, self._read : self._read + width]
        self._read += width
        return held.reshape(*held.shape[:2], *shape)

    def add(self, x: jax.Array, offsets: jax.Array, lengths: jax.Array, most: int) -> None:
        """Add numbers of the tokens ``x``, (tokens, ...), the first ``lengths`` of each example, at most ``most``."""
        place = jnp.arange(most, dtype=jnp.int32)
        rows = jnp.where(place < lengths[:, None], offsets[:-1, None] + place, x.shape[0])
        flat = x.reshape(x.shape[0], -1).astype(jnp.float32)
        new = flat.at[rows].get(mode="fill", fill_value=0)  # (batch, most, width)
        self._lengths = lengths
        if self.past is not None:
            before, places = self.past.lengths, self.past.held.shape[1]
            self._lengths = before + lengths
            at = jnp.arange(places) - before[:, None]
            at = jnp.where((at >= 0) & (at < lengths[:, None]), at, most)
            new = jax.vmap(lambda own, rows: own.at[rows].get(mode="fill", fill_value=0))(new, at)
        self._made.append(new)

    @property
    def known(self) -> Known:
        """The tokens before and those of this pass."""
        assert self._lengths is not None
        made = jnp.concatenate(self._made, axis=2)
        if self.past is None:
            return Known(self._lengths, made)
        return Known(self._lengths, self.past.held + made)  # each place is of one of the two, and zeros of the other


class Recorder:
    """The passes of a model, in the order in which it makes them."""

    def __init__(self, past: Sequence[Known] | None) -> None:
        self._past = None if past is None else list(past)
        self._passes: list[Pass] = []

    def begin(self) -> Pass:
        number = len(self._passes)
        self._passes.append(Pass(None if self._past is None else self._past[number]))
        return self._passes[-1]

    @property
    def known(self) -> list[Known]:
        """The states after the model has run."""
        return [each.known for each in self._passes]


_recorder: contextvars.ContextVar[Recorder | None] = contextvars.ContextVar("recorder", default=None)


@contextlib.contextmanager
def recorded(past: Sequence[Known] | None = None) -> Iterator[Recorder]:
    """Record the passes of the model that runs inside, in this thread; they continue ``past``."""
    recorder = Recorder(past)
    token = _recorder.set(recorder)
    try:
        yield recorder
    finally:
        _recorder.reset(token)


def next_pass() -> Pass | None:
    """Return the pass of a model that is recorded; None: it is not."""
    recorder = _recorder.get()
    return None if recorder is None else recorder.begin()


def flat_states(states: Sequence[Known]) -> jax.Array:
    """(batch, width) float32: all lengths, then all numbers of one example; the rest of a short history is zeros."""
    lengths = [state.lengths[:, None].astype(jnp.float32) for state in states]
    batch = lengths[0].shape[0]
    return jnp.concatenate([*lengths, *(state.held.reshape(batch, -1) for state in states)], axis=1)


def states_of_flat(flat: jax.Array, shapes: Sequence[tuple[int, int]]) -> list[Known]:
    """Return the inverse of `flat_states`, whose numbers have the shapes (batch, *shape).

    >>> (state,) = states_of_flat(jnp.array([[1.0, 5.0, 6.0, 0.0, 0.0]]), [(2, 2)])
    >>> state.lengths.tolist(), state.held.tolist()
    ([1], [[[5.0, 6.0], [0.0, 0.0]]])
    """
    made, at = [], len(shapes)
    for number, (places, width) in enumerate(shapes):
        held = flat[:, at : at + places * width].reshape(flat.shape[0], places, width)
        made.append(Known(jnp.clip(flat[:, number].astype(jnp.int32), 0, places), held))
        at += places * width
    return made
