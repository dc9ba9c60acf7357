"""The values that tables start from, as records; each is a function ``(key, shape, dtype)``, as JAX's own are."""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Callable
from typing import Any, Final, TypeVar

import jax

from sparrow.registry import Registry

I = TypeVar("I", bound="type[Initializer]")


class Initializer(abc.ABC):
    """What a table starts from."""

    @abc.abstractmethod
    def __call__(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        """The values."""


INITIALIZERS: Final[Registry[Initializer]] = Registry("initializer")


def register_initializer(name: str) -> Callable[[I], I]:
    """Class decorator: makes an initializer, a frozen dataclass, known by ``name``, to config files too."""
    return INITIALIZERS.register(name)


@register_initializer("uniform")
@dataclasses.dataclass(frozen=True)
class Uniform(Initializer):
    """Evenly from ``low`` up to ``high``."""

    low: float
    high: float

    def __post_init__(self) -> None:
        _check(self)
        if self.low > self.high:
            raise ValueError(f"uniform: low {self.low:g} is above high {self.high:g}")

    def __call__(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        """The values."""
        return jax.random.uniform(key, shape, dtype, self.low, self.high)


@register_initializer("normal")
@dataclasses.dataclass(frozen=True)
class Normal(Initializer):
    """A normal distribution; with ``low`` and ``high``, cut off there.

    >>> Normal(std=0.01, low=-0.02, high=0.02)(jax.random.key(0), (1000,), "float32").max() <= 0.02
    Array(True, dtype=bool)
    """

    mean: float = 0.0
    std: float = 1.0
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        _check(self)
        if self.std <= 0:
            raise ValueError(f"normal: std must be above 0, got {self.std:g}")
        if self.low is not None and self.high is not None and self.low >= self.high:
            raise ValueError(f"normal: low {self.low:g} must be below high {self.high:g}")

    def __call__(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        """The values."""
        if self.low is None and self.high is None:
            return self.mean + self.std * jax.random.normal(key, shape, dtype)
        low = -math.inf if self.low is None else (self.low - self.mean) / self.std
        high = math.inf if self.high is None else (self.high - self.mean) / self.std
        return self.mean + self.std * jax.random.truncated_normal(key, low, high, shape, dtype)


@register_initializer("constant")
@dataclasses.dataclass(frozen=True)
class Constant(Initializer):
    """The same value everywhere."""

    value: float = 0.0

    def __post_init__(self) -> None:
        _check(self)

    def __call__(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        """The values."""
        return jax.numpy.full(shape, self.value, dtype)


def _check(record: Any) -> None:
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not is_number and not (value is None and field.default is None):
            name = INITIALIZERS.name_of(record)
            raise ValueError(f"{name}: {field.name} must be a finite number, got {value!r}")
