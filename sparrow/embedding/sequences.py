"""Ordered rows: `Jagged`, one row per element without gaps, and `Sequence`, padded to one length."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from sparrow.embedding.sharding.shards import Shards


class Sequence(NamedTuple):
    """A history in order for each example, padded to one length. Elements behind an example's length do not count.

    Attributes:
      values: ``(batch, length, dim)``; values past an example's length are arbitrary, and never read.
      lengths: ``(batch,)``, integers from 0 to ``length``.
      jagged: the same elements without gaps, for models that work on these (of a sequence longer than ``length``, more
        elements than here), on one device; None: there is no such form.
      shards: the devices that the examples are split over; None: one device, or unknown.
    """

    values: jax.Array
    lengths: jax.Array
    jagged: Jagged | None = None
    shards: Shards | None = None

    @property
    def rows(self) -> Rows:
        """All elements one after the other, with zeros between them where there is no jagged form."""
        batch, length, dim = self.values.shape
        if self.jagged is None:
            starts = length * jnp.arange(batch, dtype=jnp.int32)
            return Rows(self.clean.reshape(batch * length, dim), starts, self.lengths, self.shards)
        values, offsets = self.jagged.values, self.jagged.offsets
        there = jnp.arange(values.shape[0]) < offsets[-1]
        starts = jnp.maximum(offsets[:-1], offsets[1:] - length)
        return Rows(jnp.where(there[:, None], values, 0), starts, self.lengths, None)

    @property
    def mask(self) -> jax.Array:
        """``(batch, length)``: True where there is an element."""
        return jnp.arange(self.values.shape[1]) < self.lengths[:, None]

    @property
    def clean(self) -> jax.Array:
        """The values with zeros behind each example's length."""
        return jnp.where(self.mask[..., None], self.values, 0)

    @property
    def flat(self) -> jax.Array:
        """``(batch, length * dim + 1)``: the values of an example one after the other, then its length."""
        values = self.clean.reshape(self.values.shape[0], -1)
        return jnp.concatenate([values, self.lengths[:, None].astype(values.dtype)], axis=1)

    @classmethod
    def of_flat(cls, flat: jax.Array, dim: int) -> Sequence:
        """Return the inverse of `flat`.

        >>> Sequence.of_flat(jnp.array([[1.0, 2.0, 0.0, 0.0, 1.0]]), 2).values.tolist()
        [[[1.0, 2.0], [0.0, 0.0]]]
        """
        length = (flat.shape[1] - 1) // dim
        lengths = jnp.clip(flat[:, -1].astype(jnp.int32), 0, length)
        return cls(flat[:, :-1].reshape(flat.shape[0], length, dim), lengths)


class Rows(NamedTuple):
    """The elements of sequences as rows: example i has ``values[starts[i]:starts[i] + lengths[i]]``.

    Attributes:
      values: (size, dim); zeros where no sequence is.
      starts: (batch,) int32.
      lengths: (batch,) int32.
      shards: the devices that all are split over; None: one device.
    """

    values: jax.Array
    starts: jax.Array
    lengths: jax.Array
    shards: Shards | None


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Jagged:
    """Sequences of different lengths, one after the other: sequence i is ``values[offsets[i]:offsets[i + 1]]``.

    >>> seen = Jagged(jnp.array([[1.0], [2.0], [3.0], [0.0]]), jnp.array([0, 2, 2, 3]))
    >>> padded = seen.pad(2)
    >>> padded.values[:, :, 0].tolist(), padded.lengths.tolist()
    ([[1.0, 2.0], [0.0, 0.0], [3.0, 0.0]], [2, 0, 1])
    >>> padded.mask.tolist()
    [[True, True], [False, False], [True, False]]

    On a mesh, every device has such values and offsets for its own examples: all devices' are concatenated.

    Attributes:
      values: (size, dim); rows from ``offsets[-1]`` on are padding.
      offsets: (batch + 1,) int32, from 0, never decreasing.
      shards: the devices that both are split over; None: one device.
    """

    values: jax.Array
    offsets: jax.Array
    shards: Shards | None = dataclasses.field(metadata={"static": True}, default=None)

    @property
    def lengths(self) -> jax.Array:
        """(batch,) int32, the elements of each sequence."""
        lengths: jax.Array = self._each(lambda _, offsets: offsets[1:] - offsets[:-1])
        return lengths

    def _each(self, f: Callable[[jax.Array, jax.Array], Any]) -> Any:
        """Return ``f(values, offsets)``; on a mesh, of each device."""
        if self.shards is None:
            return f(self.values, self.offsets)
        return self.shards.each(f, self.shards.split, self.shards.split)(self.values, self.offsets)

    @property
    def segments(self) -> jax.Array:
        """(size,) int32, the sequence of each row; the number of sequences for padding.

        >>> Jagged(jnp.zeros((4, 1)), jnp.array([0, 2, 2, 3])).segments.tolist()
        [0, 0, 2, 3]
        """

        def own(values: jax.Array, offsets: jax.Array) -> jax.Array:
            rows = jnp.arange(values.shape[0], dtype=jnp.int32)
            found = (jnp.searchsorted(offsets, rows, side="right") - 1).astype(jnp.int32)
            if self.shards is None:
                return found
            each = offsets.shape[0] - 1
            return jnp.where(found < each, found + self.shards.index * each, each * self.shards.count)

        segments: jax.Array = self._each(own)
        return segments

    def pool(self, sizes: Jagged, pooling: str) -> Jagged:
        """Return sequences of elements, each the "sum", "mean" or "sqrtn" of its rows: ``sizes`` has their numbers.

        ``sizes``: (elements, 1) numbers, on every device. An element without rows is zeros.

        >>> rows = Jagged(jnp.array([[1.0], [3.0], [5.0]]), jnp.array([0, 2, 3]))
        >>> sizes = Jagged(jnp.array([[2.0], [0.0], [1.0]]), jnp.array([0, 2, 3]))
        >>> rows.pool(sizes, "mean").values.tolist()
        [[2.0], [0.0], [5.0]]
        """
        elements, rows = sizes.values.shape[0], self.values.shape[0]
        counts = jnp.where(jnp.arange(elements) < sizes.offsets[-1], sizes.values[:, 0], 0).astype(jnp.int32)
        ends = jnp.cumsum(counts)
        place = jnp.arange(rows, dtype=jnp.int32)
        if self.shards is not None:  # each device's rows end in padding
            segments, sequences = self.segments, sizes.offsets.shape[0] - 1
            first = jax.ops.segment_min(place, segments, num_segments=sequences + 1)
            before = jnp.concatenate([jnp.zeros(1, jnp.int32), ends])[sizes.offsets]
            own = jnp.minimum(segments, sequences)
            place = jnp.where(segments < sequences, before[own] + place - first[own], ends[-1] if elements else 0)
        element = jnp.searchsorted(ends, place, side="right")
        sums = jax.ops.segment_sum(self.values, element, num_segments=elements + 1)[:-1]
        if pooling != "sum":
            divisor = jnp.maximum(counts, 1).astype(sums.dtype)[:, None]
            sums = sums / (divisor if pooling == "mean" else jnp.sqrt(divisor))
        return Jagged(sums, sizes.offsets)

    def pad(self, length: int) -> Sequence:
        """Sequences of ``length``: shorter ones end in zeros, of longer ones the last elements are kept.

        Reading and its gradient are both gathers: no sum, and the same bits every time.
        """
        padded: jax.Array = self._each(functools.partial(_padded, length))
        return Sequence(padded, jnp.minimum(self.lengths, length))


def _padded(length: int, values: jax.Array, offsets: jax.Array) -> jax.Array:
    shape = (offsets.shape[0] - 1, length, values.shape[1])
    if 0 in (*shape, values.shape[0]):  # nothing to gather from, or for
        return jnp.zeros(shape, values.dtype)
    return _pad(length, values, offsets)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _pad(length: int, values: jax.Array, offsets: jax.Array) -> jax.Array:
    """(batch, length, dim)."""
    place = jnp.arange(length, dtype=offsets.dtype)
    starts = jnp.maximum(offsets[:-1], offsets[1:] - length)[:, None]
    rows = jnp.where(starts + place < offsets[1:, None], starts + place, values.shape[0])
    return values.at[rows].get(mode="fill", fill_value=0)


def _pad_forward(length: int, values: jax.Array, offsets: jax.Array) -> tuple[jax.Array, Any]:
    return _pad(length, values, offsets), (Jagged(values, offsets).segments, offsets)


def _pad_backward(length: int, held: Any, grads: jax.Array) -> tuple[jax.Array, None]:
    segments, offsets = held
    starts = jnp.maximum(offsets[:-1], offsets[1:] - length)
    place = jnp.arange(len(segments), dtype=offsets.dtype) - starts.at[segments].get(mode="clip")
    # A row that was cut off stands before its sequence's start, padding after the last sequence: neither is read.
    segments = jnp.where(place >= 0, segments, len(starts))
    return grads.at[segments, jnp.maximum(place, 0)].get(mode="fill", fill_value=0), None


_pad.defvjp(_pad_forward, _pad_backward)
