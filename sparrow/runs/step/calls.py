"""Calls: batches that one program takes one after the other, so that a device waits less often for the host."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sparrow.feed import Feed, Prepared


def kind(feeds: Sequence[Feed]) -> tuple[Any, ...]:
    """Return the facts that batches of one call have in common."""
    arrays, structure = jax.tree.flatten(feeds)
    return structure, *map(np.shape, arrays)


def in_calls(batches: Iterable[Prepared], most: int) -> Iterator[tuple[Prepared, ...]]:
    """Yield batches in calls, which end after each multiple of ``most``, before another kind, and at the end."""
    held: list[Prepared] = []
    for number, prepared in enumerate(batches, 1):
        if held and kind([prepared.feed]) != kind([held[0].feed]):
            yield tuple(held)
            held = []
        held.append(prepared)
        if number % most == 0:
            yield tuple(held)
            held = []
    if held:
        yield tuple(held)


def filled_up(call: Sequence[Prepared], most: int) -> tuple[Feed, ...]:
    """Return ``most`` batches for a program: the last one again, where there are fewer. So there is one program."""
    return tuple(call[min(number, len(call) - 1)].feed for number in range(most))


def scanned(body: Callable[[Any, tuple[Feed, ...]], Any], carried: Any, steps: Sequence[tuple[Feed, ...]]) -> Any:
    """Return what `jax.lax.scan` does over the batches of each step; inside of compiled programs."""
    alone = [tuple(feed.alone() for feed in feeds) for feeds in steps]
    return jax.lax.scan(body, carried, jax.tree.map(lambda *arrays: jnp.stack(arrays), *alone))


def one_by_one(
    body: Callable[[Any, Feed], tuple[Any, Any]], carried: Any, feeds: tuple[Feed, ...], count: Any
) -> tuple[Any, Any]:
    """Return what ``body`` carries through the first ``count`` batches, and its results for all of them, in a row.

    A result has the examples, or a multiple of them, along its first axis. Inside of compiled programs.
    """
    if len(feeds) == 1:
        return body(carried, feeds[0])

    def step(state: tuple[Any, jax.Array], own: tuple[Feed, ...]) -> Any:
        before, number = state
        after, made = body(before, *own)
        kept = jax.tree.map(lambda old, new: jnp.where(number < count, new, old), before, after)
        return (kept, number + 1), made

    (carried, _), made = scanned(step, (carried, jnp.int32(0)), [(feed,) for feed in feeds])
    return carried, jax.tree.map(lambda array: array.reshape(-1, *array.shape[2:]), made)


def without_padding(rows: Any, examples: Sequence[int], size: int, batches: int) -> Any:
    """Return the rows of the examples from a result of `one_by_one`, which may have several for each.

    Args:
      rows: the result.
      examples: the examples of each batch.
      size: the examples of a batch with its padding.
      batches: the batches of the result; further ones only fill the call up.
    """
    each = len(rows) // max(size * batches, 1)
    if all(count == size for count in examples[:-1]):
        return rows[: each * (size * (len(examples) - 1) + examples[-1])]
    return np.concatenate([rows[each * size * i :][: each * count] for i, count in enumerate(examples)])
