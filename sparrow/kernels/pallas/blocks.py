"""How the kernels see memory: a program has a tile in hand, some rows by some columns, and walks ragged runs."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from sparrow.kernels.platform import platform

WHOLE = pl.BlockSpec(memory_space=pl.ANY)  # the kernels index into whole arrays; nothing is cut for them


class Place(NamedTuple):
    """Where the entries of a tile's rows lie, one for every row."""

    at: jax.Array  # (rows,) the row of `Entries.values`
    gain: jax.Array | None = None  # (rows,) what it is multiplied by


class Entries(NamedTuple):
    """What a kernel sums: entry p is the row of ``values`` that ``locate`` finds for position p."""

    values: Any  # (any, dim) in memory
    locate: Callable[[jax.Array, jax.Array], Place]  # (positions, mask) -> places


@dataclasses.dataclass(frozen=True)
class Tile:
    """What one program has in hand at a time.

    Attributes:
      rows: how many rows; a power of two.
      columns: the length of a row in the block: ``dim``, or the next power of two.
      dim: the length of a row in memory.
      warps: how many warps share the tile.
      unroll: how many entries of every row are on their way from memory before the first is added.
    """

    rows: int
    columns: int
    dim: int
    warps: int
    unroll: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a block of values. One row is a vector, and what belongs to it a scalar that all threads share."""
        return (self.columns,) if self.rows == 1 else (self.rows, self.columns)

    def lanes(self) -> jax.Array:
        """(rows,) 0, 1, 2, ...; where there is one row, 0."""
        return jnp.int32(0) if self.rows == 1 else lax.iota(jnp.int32, self.rows)

    def spread(self, x: jax.Array) -> jax.Array:
        """One value per row as a block."""
        return jnp.broadcast_to(x if self.rows == 1 else x[:, None], self.shape)

    def over_rows(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of a row's values as one of a block."""
        return function if self.rows == 1 else jax.vmap(function)

    def load(self, ref: Any, at: jax.Array, mask: jax.Array, **how: Any) -> jax.Array:
        """(rows, columns): row ``at[k]`` of ``ref`` where ``mask[k]``, and zeros elsewhere."""
        view, inside = self._view(ref, at, mask)
        return triton.load(view, mask=inside, other=jnp.zeros((), ref.dtype), **how)

    def store(self, ref: Any, at: jax.Array, mask: jax.Array, value: jax.Array, **how: Any) -> None:
        """Row ``at[k]`` of ``ref`` becomes ``value[k]`` where ``mask[k]``."""
        view, inside = self._view(ref, _past_the_end(ref, at, mask), mask)
        triton.store(view, value, mask=inside, **how)

    def fetch(self, ref: Any, place: Place, mask: jax.Array) -> jax.Array:
        """(rows, columns) float32: what lies at ``place``, times its gain; zeros where masked or out of range."""
        inside = mask & (place.at >= 0) & (place.at < ref.shape[0])
        value = self.load(ref, place.at, inside).astype(jnp.float32)
        return value if place.gain is None else value * self.spread(place.gain)

    def _view(self, ref: Any, at: jax.Array, mask: jax.Array) -> tuple[Any, jax.Array]:
        columns = lax.broadcasted_iota(jnp.int32, self.shape, len(self.shape) - 1)
        inside = self.spread(mask)
        if self.columns != self.dim:
            inside = inside & (columns < self.dim)
        return ref.at[self.spread(at), columns], inside

    def locate(self, starts: jax.Array, lengths: jax.Array, entries: Entries, done: jax.Array | int) -> list[Place]:
        """Where the next ``unroll`` of every row's ``lengths`` entries from ``starts`` lie, after ``done`` of them."""
        return [entries.locate(starts + (done + i), done + i < lengths) for i in range(self.unroll)]

    def ragged_sum(self, starts: jax.Array, lengths: jax.Array, entries: Entries, places: list[Place]) -> jax.Array:
        """(rows, columns) float32: for each k, the sum of entries ``starts[k]`` to ``starts[k] + lengths[k]``.

        Memory answers late, so every round fetches ``unroll`` entries, and locates those of the next round, before
        it adds the first. What the caller has asked of memory before is on its way at the same time.

        Args:
          starts: (rows,) int32.
          lengths: (rows,) int32, 0 for rows that are not in use.
          entries: how entries are found and read.
          places: where the first ones lie, from `locate`.
        """

        def fetch(done: jax.Array | int, places: list[Place]) -> tuple[list[jax.Array], list[Place]]:
            values = [self.fetch(entries.values, place, done + j < lengths) for j, place in enumerate(places)]
            return values, self.locate(starts, lengths, entries, done + self.unroll)

        def body(i: jax.Array, carry: tuple[jax.Array, list[Place]]) -> tuple[jax.Array, list[Place]]:
            total, places = carry
            values, places = fetch(i * self.unroll, places)
            return functools.reduce(operator.add, values, total), places

        values, places = fetch(0, places)
        # From zero on, so that a sum of negative zeros has one sign, however many masked zeros follow.
        total: jax.Array = functools.reduce(operator.add, values, jnp.zeros_like(values[0]))
        rounds = lax.div(jnp.max(lengths) + (self.unroll - 1), self.unroll)
        total, _ = lax.fori_loop(1, rounds, body, (total, places))
        return total


def gather(ref: Any, at: jax.Array, mask: jax.Array, other: Any) -> jax.Array:
    """``ref[at]`` where ``mask``, else ``other``; ``ref`` is a vector."""
    return triton.load(ref.at[at], mask=mask, other=jnp.asarray(other, ref.dtype))


def scatter(ref: Any, at: jax.Array, mask: jax.Array, value: jax.Array) -> None:
    """``ref[at] = value`` where ``mask``; ``ref`` is a vector."""
    triton.store(ref.at[_past_the_end(ref, at, mask)], value, mask=mask)


def _past_the_end(ref: Any, at: jax.Array, mask: jax.Array) -> jax.Array:
    """Where to store: in interpret mode a store writes the old value where it is masked out, so it must not hit what
    another lane writes. Past the end nothing is written.
    """
    return jnp.where(mask, at, ref.shape[0]) if interpreted() else at


def call(
    kernel: Callable[..., None],
    programs: int,
    inputs: tuple[jax.Array, ...],
    outputs: tuple[jax.ShapeDtypeStruct, ...],
    warps: int,
    aliases: dict[int, int] | None = None,
) -> tuple[jax.Array, ...]:
    """Runs ``kernel`` as ``programs`` programs over whole arrays; on CPU in interpret mode."""
    results: Any = pl.pallas_call(
        kernel,
        grid=(programs,),
        in_specs=[WHOLE] * len(inputs),
        out_specs=[WHOLE] * len(outputs),
        out_shape=outputs,
        input_output_aliases=aliases or {},
        interpret=interpreted(),
        compiler_params=triton.CompilerParams(num_warps=warps, num_stages=1),
    )(*inputs)
    return tuple(results)


def interpreted() -> bool:
    """Whether the kernels are interpreted: everywhere but on a GPU."""
    return platform() != "gpu"


def struct(shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
    """An array that is not there yet."""
    return jax.ShapeDtypeStruct(shape, dtype)  # type: ignore[no-untyped-call]


def power_of_two(n: int) -> int:
    """The least power of two that is not below ``n``.

    >>> [power_of_two(n) for n in (1, 2, 3, 64, 65)]
    [1, 2, 4, 64, 128]
    """
    return 1 << (n - 1).bit_length()
