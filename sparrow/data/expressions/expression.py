"""`Expression`: a text over variables, parsed once and computed for many rows at a time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sparrow.data.expressions.functions import FUNCTIONS, OPERATORS
from sparrow.data.expressions.grammar import Call, ExpressionError, Number, Variable, parse
from sparrow.data.expressions.vectors import Vector, padded


class Expression:
    """Numbers, variables, operators and functions.

    >>> ctr = Expression("show > 0 ? click / show : 0")
    >>> ctr.variables
    ('show', 'click')
    >>> ctr({"show": Vector(np.array([4.0, 0.0])), "click": Vector(np.array([1.0, 0.0]))}, 2).values.tolist()
    [0.25, 0.0]
    >>> Expression("click / shwo(2)")
    Traceback (most recent call last):
    sparrow.data.expressions.grammar.ExpressionError: expression 'click / shwo(2)': unknown function 'shwo': ...

    Attributes:
      text: the expression.
      variables: the names in it, in the order of their first use.
    """

    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or not text.strip():
            raise ExpressionError(f"an expression must be a string that is not empty, got {text!r}")
        self.text = text
        self._program = parse(text, {name: (function.least, function.most) for name, function in FUNCTIONS.items()})
        names = [step.name for step in self._program if isinstance(step, Variable)]
        self.variables: tuple[str, ...] = tuple(dict.fromkeys(names))

    def __call__(self, values: Mapping[str, Vector], rows: int, fill: float | None = None) -> Vector:
        """Return the result for ``rows`` rows. Divisions by zero and the like give infinities and NaN.

        Lists of one row that meet in the expression and differ in length are filled with ``fill``; where it is None,
        they raise `Uneven`.
        """
        stack: list[Vector] = []
        with np.errstate(all="ignore"):
            for step in self._program:
                if isinstance(step, Number):
                    stack.append(Vector(np.full(rows, step.value)))
                elif isinstance(step, Variable):
                    stack.append(values[step.name])
                else:
                    first = len(stack) - step.arguments
                    arguments = stack[first:] if fill is None else padded(stack[first:], fill)
                    stack[first:] = [_compute(step, arguments)]
        (made,) = stack
        return made


def _compute(step: Call, arguments: list[Vector]) -> Vector:
    if step.name in FUNCTIONS:
        return FUNCTIONS[step.name].compute(arguments)
    return OPERATORS[step.name](arguments)
