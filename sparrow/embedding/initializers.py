"""The values that tables start from, as records; each is a function ``(key, shape, dtype)``, as JAX's own are."""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, ClassVar, Final, TypeVar

import jax
import jax.numpy as jnp

from sparrow import fields
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
    def program(self) -> tuple[Callable[..., jax.Array], tuple[float, ...]] | None:
        """A function ``(key, shape, dtype, *numbers)`` of these values, and its numbers; None: there is none.

        Tables share the compiled programs of a function. Each bit of a value must depend on its place and the numbers
        alone. This does not hold for functions such as a logarithm, which XLA computes in other ways at the end of an
        array.
        """
        return None


BLOCK_VALUES: Final = 1 << 22
LARGE_VALUES: Final = 1 << 26
"""A table of more values than this is drawn block by block; a smaller one is quicker in one piece."""

INITIALIZERS: Final[Registry[Initializer]] = Registry("initializer", Initializer)


def register_initializer(name: str) -> Callable[[I], I]:
    """Return a class decorator that registers an initializer (a frozen dataclass) under ``name``, for configs too."""
    return INITIALIZERS.register(name)


@register_initializer("uniform")
@dataclasses.dataclass(frozen=True)
class Uniform(Initializer):
    """Uniform values from ``low`` up to ``high``.

    Attributes:
      low: the smallest value.
      high: the largest value.
    """

    independent = True

    low: float
    high: float

    def __post_init__(self) -> None:
        _check(self)
        if self.low > self.high:
            raise ValueError(f"uniform: low {self.low:g} is above high {self.high:g}")

    def __call__(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        """Return the values."""
        return jax.random.uniform(key, shape, dtype, self.low, self.high)

    @property
    def program(self) -> tuple[Callable[..., jax.Array], tuple[float, ...]] | None:
        """The limits are numbers: by default they follow the size of a table."""
        return jax.random.uniform, (self.low, self.high)


@register_initializer("normal")
@dataclasses.dataclass(frozen=True)
class Normal(Initializer):
    """A normal distribution; with ``low`` and ``high``, cut off there.

    >>> Normal(std=0.01, low=-0.02, high=0.02)(jax.random.key(0), (1000,), "float32").max() <= 0.02
    Array(True, dtype=bool)

    Attributes:
      mean: the mean.
      std: the standard deviation, before values are cut off.
      low: the smallest value; None for no limit.
      high: the largest value; None for no limit.
    """

    independent = True

    mean: float = 0.0
    std: float = 1.0
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        _check(self)
        fields.number("normal: std", self.std, above=0)
        if self.low is not None and self.high is not None and self.low >= self.high:
            raise ValueError(f"normal: low {self.low:g} must be below high {self.high:g}")

    def __call__(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        """Return the values."""
        if self.low is None and self.high is None:
            return self.mean + self.std * jax.random.normal(key, shape, dtype)
        low = -math.inf if self.low is None else (self.low - self.mean) / self.std
        high = math.inf if self.high is None else (self.high - self.mean) / self.std
        return self.mean + self.std * jax.random.truncated_normal(key, low, high, shape, dtype)


@register_initializer("constant")
@dataclasses.dataclass(frozen=True)
class Constant(Initializer):
    """The same value everywhere.

    Attributes:
      value: the value.
    """

    independent = True

    value: float = 0.0

    def __post_init__(self) -> None:
        _check(self)

    def __call__(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        """Return the values."""
        return jnp.full(shape, self.value, dtype)

    @property
    def program(self) -> tuple[Callable[..., jax.Array], tuple[float, ...]] | None:
        """The value is a number."""
        return _full, (self.value,)


def _full(key: jax.Array, shape: tuple[int, ...], dtype: Any, value: jax.Array) -> jax.Array:
    return jnp.full(shape, value, dtype)


Draws = Callable[[jax.Array, tuple[int, int], Any], jax.Array]


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def draw(initializer: Draws, shape: tuple[int, int], dtype: str, key: jax.Array) -> jax.Array:
    """Return a table's values. Drawn in one piece, a large table would take three times its memory besides its own."""
    num_rows, dim = shape
    size = block_rows(initializer, shape)
    if size == num_rows:
        return initializer(key, shape, jnp.float32).astype(dtype)

    def place(table: jax.Array, index: Any, count: int) -> jax.Array:
        values = initializer(jax.random.fold_in(key, index), (count, dim), jnp.float32).astype(dtype)
        return jax.lax.dynamic_update_slice(table, values, (index * size, 0))

    whole, rest = divmod(num_rows, size)
    table = jax.lax.fori_loop(0, whole, lambda index, table: place(table, index, size), jnp.zeros(shape, dtype))
    return place(table, whole, rest) if rest else table


def block_rows(initializer: Draws, shape: tuple[int, int]) -> int:
    """Return the number of rows to draw at a time: all, or a part of a large table of independent values."""
    num_rows, dim = shape
    if num_rows * dim <= LARGE_VALUES or not getattr(initializer, "independent", False):
        return num_rows
    return 1 << max(0, (BLOCK_VALUES // dim).bit_length() - 1)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def draw_block(initializer: Draws, shape: tuple[int, int], dtype: str, key: jax.Array, index: int) -> jax.Array:
    """Return block ``index`` of the values that `draw` makes for a large table; ``shape`` is the block's."""
    return initializer(jax.random.fold_in(key, index), shape, jnp.float32).astype(dtype)


SHARED_VALUES: Final = 1 << 22
"""A smaller table is drawn by a program that it shares with tables of other sizes, where its initializer has one."""


def draw_into(array: jax.Array, initializer: Draws, key: jax.Array, first: int, rows: int) -> jax.Array | None:
    """Return the array, donated, with the values that `draw` makes for a table in ``rows`` rows from ``first`` on.

    Tables of all sizes share a few programs: values are drawn for the next size class, and the first rows are kept.
    Each value depends on the key and its own place alone, so they are the values of a table of that size. Return None
    for an initializer or a size that `draw` must handle.
    """
    total, dim = array.shape
    program = initializer.program if isinstance(initializer, Initializer) else None
    # Otherwise random bits depend on the shape as well.
    is_free = getattr(jax.config, "jax_threefry_partitionable", False)
    if program is None or not is_free or rows * dim > min(SHARED_VALUES, LARGE_VALUES):
        return None
    function, numbers = program
    size = min(1 << (rows - 1).bit_length(), total)
    made: jax.Array = _draw_into(function, size, array, key, first, rows, tuple(map(jnp.float32, numbers)))
    return made


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=2)
def _draw_into(
    function: Any, size: int, array: jax.Array, key: jax.Array, first: Any, rows: Any, numbers: tuple[jax.Array, ...]
) -> jax.Array:
    total, dim = array.shape
    drawn = function(key, (size, dim), jnp.float32, *numbers).astype(array.dtype)
    start = jnp.minimum(first, total - size)  # the last tables end where the array does
    place = jnp.arange(size) + (start - first)
    kept = (place >= 0) & (place < rows)
    held = jax.lax.dynamic_slice(array, (start, 0), (size, dim))
    moved = jnp.roll(drawn, first - start, axis=0)
    return jax.lax.dynamic_update_slice(array, jnp.where(kept[:, None], moved, held), (start, 0))


def _check(record: Any) -> None:
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if value is not None or field.default is not None:
            fields.number(f"{INITIALIZERS.name_of(record)}: {field.name}", value)
