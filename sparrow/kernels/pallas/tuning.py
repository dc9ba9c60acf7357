"""The numbers that decide speed and nothing else, chosen by measurement (benchmarks/NOTES.md)."""

from __future__ import annotations

import dataclasses
import functools

import jax

from sparrow.kernels.pallas.blocks import Tile, interpreted, power_of_two
from sparrow.kernels.types import RowStep


@dataclasses.dataclass(frozen=True)
class Tuning:
    """How an update is cut into work.

    Attributes:
      tile: what a program has in hand of pieces that are sums.
      singles: of pieces of one entry.
      fold: of the sums that cut segments left.
      chunk: a piece has fewer than twice as many entries.
      fold_chunk: the same for the levels that fold the sums of cut segments.
      programs: how many programs go round over the pieces of a kind.
      last_level: with so few sums left, no segment is cut any more.
    """

    tile: Tile
    singles: Tile
    fold: Tile
    chunk: int
    fold_chunk: int
    programs: int
    last_level: int


def for_update(step: RowStep) -> Tuning:
    """The tuning of an update with ``step``."""
    dim = step.dim
    tile = functools.partial(Tile, columns=power_of_two(dim), dim=dim, warps=1)
    if interpreted():  # programs run one after the other, and small numbers reach every branch with little data
        return Tuning(tile(1, unroll=2), tile(4, unroll=1), tile(2, unroll=2), 4, 4, programs=3, last_level=64)
    heavy = any(step.slot_shapes)  # a slot per element: with the row and the gradient, it fills a thread's registers
    return Tuning(
        _tile(dim, min(128, 2 * power_of_two(dim)), unroll=4),
        _tile(dim, 128 if heavy else 256, unroll=1),
        _tile(dim, 128, unroll=16),
        chunk=32,
        fold_chunk=64,
        programs=32 * cores(),
        last_level=4096,
    )


def for_lookup(dim: int) -> Tile:
    """The tile of a lookup of rows of length ``dim``."""
    if interpreted():
        return Tile(4, power_of_two(dim), dim, warps=1, unroll=2)
    return _tile(dim, 256, unroll=4)


def _tile(dim: int, elements: int, unroll: int) -> Tile:
    columns = power_of_two(dim)
    rows = max(1, min(64, elements // columns))
    warps = max(1, min(8, rows * columns // 512))  # a warp holds up to 512 elements: 16 in each of its threads
    return Tile(rows, columns, dim, warps, unroll)


def cores() -> int:
    """How many multiprocessors the GPU has."""
    return int(getattr(jax.devices()[0], "core_count", 128))
