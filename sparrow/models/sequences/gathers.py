"""Rows read and put back without a scatter of floating-point sums: the same bits every time."""

from __future__ import annotations

import functools
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp

from sparrow.kernels import platform, token_places

ONES: Final = 2**28
"""Ones and zeros of one product, in the gradient of `small_lookup`."""
FEW: Final = 2048
"""Rows up to which that gradient is a product; among more, a scatter does not wait for itself."""


def computed_once(rows: Any) -> Any:
    """Return the same row numbers, outside of the loop over elements that XLA would compute them again in."""
    return jax.lax.optimization_barrier(rows)  # type: ignore[no-untyped-call]


class Order(NamedTuple):
    """Rows taken from an array, and put back: both are gathers, so that gradients are no sums.

    Attributes:
      to: (size,) the row of the source that each row of the result is; the number of rows of the source: zeros.
      back: (rows,) the row of the result that each row of the source became; ``size``: none.
    """

    to: jax.Array
    back: jax.Array

    @classmethod
    def of(cls, to: jax.Array, rows: int) -> Order:
        """Return the order of ``to``, whose numbers below ``rows`` are distinct."""
        size = to.shape[0]
        numbers = jnp.arange(size, dtype=jnp.int32)
        back = jnp.full(rows, size, jnp.int32).at[to].set(numbers, mode="drop")
        return cls(computed_once(to), computed_once(back))

    def take(self, x: jax.Array) -> jax.Array:
        """(size, dim): the rows of ``x``."""
        return _take(x, self)


@jax.custom_vjp
def _take(x: jax.Array, order: Order) -> jax.Array:
    return x.at[order.to].get(mode="fill", fill_value=0)


def _take_backward(order: Order, grads: jax.Array) -> tuple[jax.Array, None]:
    rows = order.back.shape[0]
    if 4 * grads.shape[0] <= rows:  # few of them: zeros, and a row here and there
        none = jnp.zeros((rows, grads.shape[1]), grads.dtype)
        return none.at[order.to].set(grads, mode="drop", unique_indices=True), None
    return grads.at[order.back].get(mode="fill", fill_value=0), None


_take.defvjp(lambda x, order: (_take(x, order), order), _take_backward)


@jax.custom_vjp
def small_lookup(table: jax.Array, rows: jax.Array) -> jax.Array:
    """``table[rows]``, (tokens, dim), of a table of few rows, such as positions; rows out of range are clipped.

    On a GPU the gradient of up to `FEW` rows is a product with ones and zeros: a scatter of many tokens to few rows
    waits for itself, and its bits differ from run to run.
    """
    return table.at[computed_once(rows)].get(mode="clip")


def _small_backward(held: tuple[jax.Array, jax.Array], grads: jax.Array) -> tuple[jax.Array, None]:
    table, rows = held
    count, dtype = table.shape[0], table.dtype
    rows = jnp.clip(rows, 0, count - 1)
    if platform() == "cpu" or count > FEW:
        return jnp.zeros(table.shape, jnp.float32).at[rows].add(grads.astype(jnp.float32)).astype(dtype), None
    return _by_product(count, rows, grads).astype(dtype), None


def _by_product(count: int, rows: jax.Array, grads: jax.Array) -> jax.Array:
    """(count, dim) float32: the sum of the gradients of each row, by products with ones and zeros."""
    size = max(ONES // count, 1)
    blocks = -(-rows.shape[0] // size)

    def summed(own: jax.Array, values: jax.Array) -> jax.Array:
        ones = jax.nn.one_hot(own, count, dtype=values.dtype)
        highest = jax.lax.Precision.HIGHEST
        return jnp.einsum("tr,td->rd", ones, values, precision=highest, preferred_element_type=jnp.float32)

    if blocks <= 1:
        return summed(rows, grads)
    missing = blocks * size - rows.shape[0]
    parts = jnp.pad(rows, (0, missing)).reshape(blocks, size), jnp.pad(grads, ((0, missing), (0, 0)))
    parts = parts[0], parts[1].reshape(blocks, size, -1)
    zeros = jnp.zeros((count, grads.shape[1]))
    total, _ = jax.lax.scan(lambda total, part: (total + summed(*part), None), zeros, parts)
    return total


small_lookup.defvjp(lambda table, rows: (small_lookup(table, rows), (table, rows)), _small_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def place_lookup(
    most: int, few: int, table: jax.Array, places: jax.Array, offsets: jax.Array, ends: jax.Array
) -> jax.Array:
    """`small_lookup` of ``places``: of each token its number in its sequence, but at most ``ends``, (sequences,).

    No sequence has more than ``most`` tokens, and ``few`` from its end on. On a GPU the gradient is a sum over
    sequences, which reads each token once.
    """
    return small_lookup(table, places)


def _place_backward(most: int, few: int, held: Any, grads: jax.Array) -> tuple[jax.Array, None, None, None]:
    table, places, offsets, ends = held
    count, tokens, sequences = table.shape[0], places.shape[0], ends.shape[0]
    if platform() == "cpu" or sequences * most > 4 * tokens:
        return (*_small_backward((table, places), grads), None, None)
    number = jnp.arange(most, dtype=jnp.int32)
    at = jnp.where(number < jnp.minimum(ends, jnp.diff(offsets))[:, None], offsets[:-1, None] + number, tokens)
    at = computed_once(at)
    found = grads.at[at].get(mode="fill", fill_value=0).astype(jnp.float32).sum(axis=0)  # (most, dim)
    if most > count:
        found = jnp.concatenate([found[: count - 1], found[count - 1 :].sum(axis=0, keepdims=True)])
    made = jnp.pad(found, ((0, count - found.shape[0]), (0, 0)))
    if few:
        at = offsets[:-1, None] + ends[:, None] + jnp.arange(few, dtype=jnp.int32)
        at = jnp.where(at < offsets[1:, None], at, tokens)
        last = grads.at[at].get(mode="fill", fill_value=0).astype(jnp.float32).sum(axis=1)  # (sequences, dim)
        made = made + _by_product(count, jnp.clip(ends, 0, count - 1), last)
    return made.astype(table.dtype), None, None, None


place_lookup.defvjp(lambda most, few, *held: (place_lookup(most, few, *held), held), _place_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def spread(tokens: int, most: int, values: jax.Array, offsets: jax.Array) -> jax.Array:
    """(tokens, dim): the row of ``values``, (sequences, dim), of each token's sequence; zeros behind the last one."""
    segments, _ = token_places(offsets, tokens)
    return jnp.where((jnp.arange(tokens) < offsets[-1])[:, None], values.at[segments].get(mode="clip"), 0)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def summed(tokens: int, most: int, x: jax.Array, offsets: jax.Array) -> jax.Array:
    """(sequences, dim): the sum of the tokens of each sequence, in float32 within; none is longer than ``most``."""
    at = offsets[:-1, None] + jnp.arange(most, dtype=jnp.int32)
    at = jnp.where(at < offsets[1:, None], at, tokens)
    return x.at[at].get(mode="fill", fill_value=0).astype(jnp.float32).sum(axis=1).astype(x.dtype)


# Each is the gradient of the other: both read rows, and add them in a fixed order.
spread.defvjp(
    lambda tokens, most, values, offsets: (spread(tokens, most, values, offsets), offsets),
    lambda tokens, most, offsets, grads: (summed(tokens, most, grads, offsets), None),
)
summed.defvjp(
    lambda tokens, most, x, offsets: (summed(tokens, most, x, offsets), offsets),
    lambda tokens, most, offsets, grads: (spread(tokens, most, grads, offsets), None),
)
