"""`RowGrads`: the gradient of the tables as a value: added, scaled, measured, checked, before one update."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp

from sparrow.embedding.ordering import after
from sparrow.embedding.sharding.shards import EVERYWHERE, Shards
from sparrow.kernels import EntryGradients, sum_by_row

BITS = 6  # bits of a digit: 2**26 digits add up without overflow
DIGITS = 8


def sum_in_any_order(parts: Sequence[jax.Array], axes: tuple[str, ...] = ()) -> jax.Array:
    """Return the sum of all numbers of ``parts``: the same bits in any order, and however they are divided into parts.

    Each number is cut into digits, counted from the power of two above the largest number, and digits are added as
    integers, which is exact. Bits more than ``BITS * DIGITS`` below that power are dropped: the relative error is below
    ``count * 2**-47`` and float32's own. A number that is not finite makes the sum not finite.

    Args:
      parts: (any,) float32 each, not negative; up to 2**26 numbers in all.
      axes: the axes of a mesh over which the numbers are spread.

    >>> a, b = jnp.array([1e8, 3.0, 1e-3]), jnp.array([0.25])
    >>> float(sum_in_any_order([a, b])) == float(sum_in_any_order([jnp.concatenate([b, a])[::-1]])) == 1e8
    True
    >>> float(sum_in_any_order([jnp.full(1000, 0.1)]))
    100.0
    """
    largest = jnp.stack([jnp.max(part, initial=0.0) for part in parts]).max()
    if axes:
        largest = jax.lax.pmax(largest, axes)  # type: ignore[no-untyped-call]
    exponent = jnp.clip(jax.lax.bitcast_convert_type(largest, jnp.uint32) >> 23, 26, 252)  # biased by 127
    scale = jax.lax.bitcast_convert_type((253 - exponent) << 23, jnp.float32)  # makes the largest less than 1
    sums = jnp.stack([_digit_sums(part * scale) for part in parts]).sum(axis=0)  # (DIGITS,) uint32
    if axes:
        sums = jax.lax.psum(sums, axes)  # type: ignore[no-untyped-call]
    total = jnp.zeros((), jnp.float32)
    for digit in reversed(range(DIGITS)):
        total = (total + sums[digit].astype(jnp.float32)) * 2.0**-BITS
    return jnp.where(jnp.isfinite(largest), total / scale, largest)


def _digit_sums(fractions: jax.Array) -> jax.Array:
    """(DIGITS,) uint32: for each digit, highest first, its sum over all ``fractions``."""
    sums = []
    for _ in range(DIGITS):
        fractions = fractions * 2.0**BITS
        digits = jnp.floor(fractions)
        fractions = fractions - digits
        sums.append(jnp.sum(digits.astype(jnp.uint32)))
    return jnp.stack(sums)


Stacks = dict[str, EntryGradients]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class RowGrads:
    """The gradient of every table for one or several batches. Its size follows the batch, never the vocabulary.

    ``a + b`` is the gradient of both batches: applying it once equals one step on the concatenated batch.

    Attributes:
      stacks: the gradients by stack; on a mesh, each shard holds the gradients of its own rows.
      num_rows: by stack, on each device.
      shards: the devices that hold them; None: one device.
      copies: the stacks whose gradients every device holds.
    """

    stacks: dict[str, EntryGradients]
    num_rows: tuple[tuple[str, int], ...] = dataclasses.field(metadata={"static": True})
    shards: Shards | None = dataclasses.field(metadata={"static": True}, default=None)
    copies: frozenset[str] = dataclasses.field(metadata={"static": True}, default=frozenset())

    def __add__(self, other: RowGrads) -> RowGrads:
        if not isinstance(other, RowGrads):
            return NotImplemented
        if (self.num_rows, self.shards) != (other.num_rows, other.shards):
            raise ValueError("only row gradients of the same Embedder can be added")

        def both(ours: Stacks, theirs: Stacks) -> Stacks:
            return {name: _concatenate(grads, theirs[name]) for name, grads in ours.items()}

        # Shard by shard: one array of all shards would have to move rows between them.
        if self.shards is None:
            joined = both(self.stacks, other.stacks)
        else:
            joined = self.shards.each(both, self.shards.split, self.shards.split)(self.stacks, other.stacks)
        return dataclasses.replace(self, stacks=joined)

    def scale(self, factor: jax.Array | float) -> RowGrads:
        """Every row gradient times ``factor``, in float32."""
        stacks = {
            name: grads._replace(bag_grads=grads.bag_grads.astype(jnp.float32) * factor)
            for name, grads in self.stacks.items()
        }
        return dataclasses.replace(self, stacks=stacks)

    def only_if(self, condition: jax.Array) -> RowGrads:
        """Return these gradients where ``condition`` holds; otherwise none, so that applying them touches no row."""

        def one(grads: EntryGradients, rows: int) -> EntryGradients:
            # An order of entries whose rows are all ones, past every table, touches nothing either.
            order = None if grads.order is None else jnp.where(condition, grads.order, jnp.uint32(0xFFFFFFFF))
            return grads._replace(ids=jnp.where(condition, grads.ids, rows), order=order)

        return dataclasses.replace(self, stacks={name: one(self.stacks[name], rows) for name, rows in self.num_rows})

    def after(self, found: Mapping[str, jax.Array]) -> RowGrads:
        """Return the same, for an update in place of tables that ``found`` was looked up in, by stack, before."""
        num_rows = dict(self.num_rows)

        def both(stacks: Stacks, found: dict[str, jax.Array]) -> Stacks:
            made = dict(stacks)
            for name, array in found.items():
                made[name] = made[name]._replace(ids=after(made[name].ids, array, num_rows[name]))
            return made

        held = {name: array for name, array in found.items() if name in self.stacks}
        split = None if self.shards is None else self.shards.split
        each = both if self.shards is None else self.shards.each(both, split, split)
        return dataclasses.replace(self, stacks=each(self.stacks, held))

    def global_norm(self) -> jax.Array:
        """Return the Euclidean norm over all row gradients, each row's entries summed first.

        Its bits depend neither on how rows are numbered, nor on how tables are stacked, nor on padding.
        """
        axes = () if self.shards is None else self.shards.axes

        def squared(stacks: Stacks) -> jax.Array:
            squares = [self._once(name, _row_squares(stacks[name], rows)) for name, rows in self.num_rows]
            return sum_in_any_order(squares, axes) if squares else jnp.zeros(())

        return jnp.sqrt(self._over_all(squared))

    def _once(self, stack: str, numbers: jax.Array) -> jax.Array:
        """Return the numbers of a stack; of copies, on one device alone."""
        if stack not in self.copies or self.shards is None:
            return numbers
        return jnp.where(self.shards.index == 0, numbers, 0.0)

    def all_finite(self) -> jax.Array:
        """Whether every gradient that reaches a row is finite."""
        axes = () if self.shards is None else self.shards.axes

        def finite(stacks: Stacks) -> jax.Array:
            here = jnp.array([_all_finite(stacks[name], rows) for name, rows in self.num_rows], bool).all()
            return jax.lax.pmin(here.astype(jnp.int32), axes) == 1 if axes and stacks else here  # type: ignore[no-untyped-call]

        return self._over_all(finite)

    def _over_all(self, f: Callable[[Stacks], jax.Array]) -> jax.Array:
        """Return a number over all stacks; ``f`` itself reduces it over the shards."""
        if not self.num_rows or self.shards is None:  # nothing to split
            return f(self.stacks)
        number: jax.Array = self.shards.each(f, self.shards.split, EVERYWHERE)(self.stacks)
        return number


def _row_squares(grads: EntryGradients, num_rows: int) -> jax.Array:
    """(N,) the squared norm of each touched row's gradient, then zeros."""
    rows, row_grads = sum_by_row(grads, num_rows)
    squares = jnp.square(jnp.where((rows < num_rows)[:, None], row_grads, 0.0))  # (N, dim), padding last
    # Without the barrier a product could become one operation with the first sum, and round otherwise.
    squares = jax.lax.optimization_barrier(squares)  # type: ignore[no-untyped-call]
    return _sum_in_halves(squares.T)


def _sum_in_halves(values: jax.Array) -> jax.Array:
    """Return the sum over the first axis, in an order that depends on its length alone, unlike XLA's own."""
    size = 1 << max(len(values) - 1, 0).bit_length()
    values = jnp.concatenate([values, jnp.zeros((size - len(values), *values.shape[1:]), values.dtype)])
    while len(values) > 1:
        values = values[: len(values) // 2] + values[len(values) // 2 :]
    return values[0]


def _concatenate(a: EntryGradients, b: EntryGradients) -> EntryGradients:
    shift = a.bag_grads.shape[0]
    bags = None
    if a.bags is not None or b.bags is not None:
        bags = jnp.concatenate([_bags(a), _bags(b) + shift])
    gains = None
    if a.gains is not None or b.gains is not None:
        gains = jnp.concatenate([_gains(a), _gains(b)])
    return EntryGradients(jnp.concatenate([a.ids, b.ids]), bags, gains, jnp.concatenate([a.bag_grads, b.bag_grads]))


def _bags(grads: EntryGradients) -> jax.Array:
    return jnp.arange(len(grads.ids), dtype=jnp.int32) if grads.bags is None else jnp.asarray(grads.bags)


def _gains(grads: EntryGradients) -> jax.Array:
    return jnp.ones(len(grads.ids), jnp.float32) if grads.gains is None else jnp.asarray(grads.gains)


def _all_finite(grads: EntryGradients, num_rows: int) -> jax.Array:
    finite = jnp.isfinite(grads.bag_grads).all(axis=1)  # (num_bags,)
    of_entry = finite.at[_bags(grads)].get(mode="fill", fill_value=True)
    return (of_entry | (grads.ids >= num_rows)).all()


def clip_factor(norm: jax.Array, limit: jax.typing.ArrayLike) -> jax.Array:
    """Return ``min(1, limit / norm)``; a NaN stays NaN, so that it reaches the gradients.

    >>> clip_factor(jnp.array([0.5, 4.0]), 1.0).tolist()
    [1.0, 0.25]
    """
    return jnp.where(norm < limit, 1.0, limit / norm)
