"""`Places`: the inputs of a function side by side in one array, so that one transfer moves all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt


class Span(NamedTuple):
    """The columns of an input in the array."""

    start: int
    stop: int


class Places(NamedTuple):
    """The places of the activations and numbers of a function, and the width of the array that holds them."""

    acts: dict[str, Span]
    numbers: dict[str, Span]
    width: int

    @classmethod
    def of(cls, acts: Mapping[str, int], numbers: Mapping[str, int]) -> Places:
        """Return the places of inputs of the given widths.

        >>> Places.of({"user": 4}, {"price": 1})
        Places(acts={'user': Span(start=0, stop=4)}, numbers={'price': Span(start=4, stop=5)}, width=5)
        """
        made: list[dict[str, Span]] = []
        at = 0
        for widths in (acts, numbers):
            made.append({})
            for name, width in widths.items():
                made[-1][name] = Span(at, at + width)
                at += width
        return cls(made[0], made[1], at)

    def empty(self, rows: int) -> npt.NDArray[np.float32]:
        return np.zeros((rows, self.width), np.float32)

    def function(self, call: Callable[..., Any]) -> Any:
        """Return ``call(parameters, acts, numbers)`` as a jitted function of the parameters and the array."""

        def cut(inputs: jax.Array, places: Mapping[str, Span]) -> dict[str, jax.Array]:
            return {name: inputs[:, place.start : place.stop] for name, place in places.items()}

        return jax.jit(lambda parameters, inputs: call(parameters, cut(inputs, self.acts), cut(inputs, self.numbers)))
