"""The values that tables start from, as records; each is a function ``(key, shape, dtype)``, as JAX's own are."""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, NamedTuple, TypeGuard, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from sparrow import fields
from sparrow.kernels import stand_in
from sparrow.registry import Registry

I = TypeVar("I", bound="type[Initializer]")


class Initializer(abc.ABC):
    """The first values of a table.

    Attributes:
      independent: whether each value is drawn by itself. A large table of such values is drawn block by block, which
        takes little memory besides the table's own.
    """

    independent: ClassVar[bool] = False

    @abc.abstractmethod
    def __call__(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        """Return the values."""

    @property
    def program(self) -> tuple[Callable[..., jax.Array], tuple[float, ...]]:
        """A function ``(key, shape, dtype, *numbers)`` of these values, and its numbers.

        Tables whose initializers have the same function are drawn by one compiled program.
        """
        return self, ()


class _OfNumbers(Initializer):
    """Independent values of a function and its numbers."""

    independent = True

    def __post_init__(self) -> None:
        fields.check(self, f"{INITIALIZERS.name_of(self)}: ")

    def __call__(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        function, numbers = self.program
        return function(key, shape, dtype, *numbers)


BLOCK_VALUES: Final = 1 << 16
"""Independent values are drawn in blocks of BLOCK_VALUES or fewer, complete rows, each with a key of its own.

A block has the same size in tables of all sizes: XLA computes a logarithm in other ways at the end of an array, and
each bit of a value must depend on the table's key and its own place alone.
"""

INITIALIZERS: Final[Registry[Initializer]] = Registry("initializer", Initializer)


def register_initializer(name: str) -> Callable[[I], I]:
    """Return a class decorator that registers an initializer (a frozen dataclass) under ``name``, for configs too."""
    return INITIALIZERS.register(name)


@register_initializer("uniform")
@dataclasses.dataclass(frozen=True)
class Uniform(_OfNumbers):
    """Uniform values from ``low`` up to ``high``.

    Attributes:
      low: the smallest value.
      high: the largest value.
    """

    low: fields.Finite
    high: fields.Finite

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low > self.high:
            raise ValueError(f"uniform: low {self.low:g} is above high {self.high:g}")

    @property
    def program(self) -> tuple[Callable[..., jax.Array], tuple[float, ...]]:
        """The limits are numbers: by default they follow the size of a table."""
        return jax.random.uniform, (self.low, self.high)


@register_initializer("normal")
@dataclasses.dataclass(frozen=True)
class Normal(_OfNumbers):
    """A normal distribution; with ``low`` and ``high``, cut off there.

    >>> Normal(std=0.01, low=-0.02, high=0.02)(jax.random.key(0), (1000,), "float32").max() <= 0.02
    Array(True, dtype=bool)

    Attributes:
      mean: the mean.
      std: the standard deviation, before values are cut off.
      low: the smallest value; None for no limit.
      high: the largest value; None for no limit.
    """

    mean: fields.Finite = 0.0
    std: fields.Positive = 1.0
    low: fields.Finite | None = None
    high: fields.Finite | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low is not None and self.high is not None and self.low >= self.high:
            raise ValueError(f"normal: low {self.low:g} must be below high {self.high:g}")

    @property
    def program(self) -> tuple[Callable[..., jax.Array], tuple[float, ...]]:
        """The limits are numbers of deviations from the mean."""
        if self.low is None and self.high is None:
            return _normal, (self.mean, self.std)
        low = -math.inf if self.low is None else (self.low - self.mean) / self.std
        high = math.inf if self.high is None else (self.high - self.mean) / self.std
        return _truncated_normal, (self.mean, self.std, low, high)


def _normal(key: jax.Array, shape: tuple[int, ...], dtype: Any, mean: Any, std: Any) -> jax.Array:
    values: jax.Array = mean + std * jax.random.normal(key, shape, dtype)
    return values


def _truncated_normal(
    key: jax.Array, shape: tuple[int, ...], dtype: Any, mean: Any, std: Any, low: Any, high: Any
) -> jax.Array:
    values: jax.Array = mean + std * jax.random.truncated_normal(key, low, high, shape, dtype)
    return values


@register_initializer("constant")
@dataclasses.dataclass(frozen=True)
class Constant(_OfNumbers):
    """The same value everywhere.

    Attributes:
      value: the value.
    """

    value: fields.Finite = 0.0

    @property
    def program(self) -> tuple[Callable[..., jax.Array], tuple[float, ...]]:
        return _full, (self.value,)


def _full(key: jax.Array, shape: tuple[int, ...], dtype: Any, value: jax.Array) -> jax.Array:
    return jnp.full(shape, value, dtype)


Draws = Callable[[jax.Array, tuple[int, int], Any], jax.Array]


def draw(initializer: Draws, shape: tuple[int, int], dtype: str, key: jax.Array) -> jax.Array:
    """Return a table's values. Drawn in one piece, a large table would take three times its memory besides its own."""
    if not is_independent(initializer):
        in_one_piece: jax.Array = _draw(initializer, shape, dtype, key)
        return in_one_piece
    return draw_all(shape, dtype, key[None], [TablePlace(initializer, 0, shape[0])])


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _draw(initializer: Draws, shape: tuple[int, int], dtype: str, key: jax.Array) -> jax.Array:
    made: jax.Array = initializer(key, shape, jnp.float32).astype(dtype)
    return made


def zeros(shape: tuple[int, int], dtype: str) -> jax.Array:
    """Return an array for `draw_into`, with the rows of a block or more."""
    return jnp.zeros((max(shape[0], block_rows(shape[1])), shape[1]), dtype)


def is_independent(initializer: Draws) -> TypeGuard[Initializer]:
    """Return whether the values are drawn in blocks."""
    return isinstance(initializer, Initializer) and initializer.independent


def block_rows(dim: int) -> int:
    """Return the rows of a block of independent values.

    >>> block_rows(16), block_rows(100), block_rows(100_000)
    (4096, 512, 1)
    """
    return 1 << max(0, (BLOCK_VALUES // dim).bit_length() - 1)


def cut(array: jax.Array, rows: int) -> jax.Array:
    """Return the first rows; without a copy where these are all."""
    return array if len(array) == rows else array[:rows]


class TablePlace(NamedTuple):
    """The place of a table in the array of its stack: its first row, and the number of its rows."""

    initializer: Any
    first: int
    rows: int


def draw_all(
    shape: tuple[int, int], dtype: str, keys: jax.Array, places: Sequence[TablePlace], block: int = 0
) -> jax.Array:
    """Return a new array with the independent values of tables, as `draw_into` does: the program makes the array."""
    larger = max(shape[0], block_rows(shape[1])), shape[1]
    return cut(draw_into(stand_in(larger, dtype), keys, places, block), shape[0])


def draw_into(
    array: jax.Array | jax.ShapeDtypeStruct, keys: jax.Array, places: Sequence[TablePlace], block: int = 0
) -> jax.Array:
    """Return the array, donated, with the independent values of tables, each with its key: `draw` of each table.

    Tables of all sizes share one program for each function of values. The numbers are arguments of the program, which
    computes each block in the same way: so values have the same bits in all stacks. ``block``: the number of the first
    block.
    """
    alike: dict[Any, list[int]] = {}
    for number, place in enumerate(places):
        alike.setdefault(place.initializer.program[0], []).append(number)
    for function, members in alike.items():
        firsts = np.array([places[number].first for number in members], np.int32)
        rows = np.array([places[number].rows for number in members], np.int32)
        numbers = np.array([places[number].initializer.program[1] for number in members], np.float32)
        own, size = keys if len(alike) == 1 else keys[np.array(members)], block_rows(array.shape[1])
        given = own, firsts, rows, numbers, np.int32(block)
        if isinstance(array, jax.ShapeDtypeStruct):
            array = _draw_first(function, size, array.shape, str(array.dtype), *given)
        else:
            array = _draw_into(function, size, array, *given)
    assert isinstance(array, jax.Array)  # there is at least one place
    return array


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _draw_first(function: Any, size: int, shape: tuple[int, int], dtype: str, *given: Any) -> jax.Array:
    return _drawn(function, size, jnp.zeros(shape, dtype), *given)


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=2)
def _draw_into(function: Any, size: int, array: jax.Array, *given: Any) -> jax.Array:
    return _drawn(function, size, array, *given)


def _drawn(
    function: Any, size: int, array: jax.Array, keys: jax.Array, firsts: Any, rows: Any, numbers: jax.Array, block: Any
) -> jax.Array:
    """Return the array with the values of some tables; for `jax.jit`."""
    total, dim = array.shape

    def place_table(table: Any, array: jax.Array) -> jax.Array:
        def place_block(index: Any, array: jax.Array) -> jax.Array:
            key, first = jax.random.fold_in(keys[table], block + index), firsts[table] + index * size
            drawn = function(key, (size, dim), jnp.float32, *numbers[table]).astype(array.dtype)
            start = jnp.minimum(first, total - size)  # the last blocks end where the array does
            at = jnp.arange(size) + (start - first)
            kept = (at >= 0) & (at < rows[table] - index * size)
            held = jax.lax.dynamic_slice(array, (start, 0), (size, dim))
            moved = jnp.roll(drawn, first - start, axis=0)
            return jax.lax.dynamic_update_slice(array, jnp.where(kept[:, None], moved, held), (start, 0))

        made: jax.Array = jax.lax.fori_loop(0, (rows[table] + size - 1) // size, place_block, array)
        return made

    made: jax.Array = jax.lax.fori_loop(0, len(firsts), place_table, array)
    return made
