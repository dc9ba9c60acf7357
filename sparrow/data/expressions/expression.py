"""`Expression`: a text over variables, parsed once and computed for many rows at a time.

Its grammar, from text to a program of a stack machine:

::

    expression = binary [ "?" expression ":" expression ]
    binary     = unary { operator unary }             by the levels below, each from left to right
    unary      = { "-" | "+" | "!" } value [ ("^" | "**") unary ]     from right to left: -2 ^ 2 is -(2 ^ 2)
    value      = number | name | `any name` | function "(" expression { "," expression } ")" | "(" expression ")"
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, NoReturn

import numpy as np

from sparrow.data.expressions.functions import FUNCTIONS, OPERATORS, Vector, padded
from sparrow.registry import nearest

LEVELS: Final = (
    ("||", "or"),
    ("&&", "and"),
    ("|",),
    ("&",),
    ("<=", ">=", "!=", "==", ">", "<"),
    ("+", "-"),
    ("*", "/", "%"),
)
"""Binary operators; the later, the stronger they bind."""

CONSTANTS: Final = {"_pi": math.pi, "_e": math.e}
LONGEST: Final = 10_000
"""The most characters of an expression."""
DEEPEST: Final = 50
"""The most brackets inside one another."""

_LEVEL: Final = {symbol: level for level, symbols in enumerate(LEVELS) for symbol in symbols}
_SAME: Final = {"or": "||", "and": "&&", "**": "^"}
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[^\W\d]\w*)|`(?P<quoted>[^`]+)`"
    r"|(?P<symbol>\|\||&&|<=|>=|==|!=|\*\*|[-+*/%^<>|&!?:(),]))"
)


class ExpressionError(ValueError):
    """Raised for an expression that cannot be parsed."""


Instruction = float | str | tuple[Callable[[Sequence[Vector]], Vector], int]
"""Push a number, or a variable; or replace the last values, as many as a function has arguments, by its result."""


class _Token(NamedTuple):
    kind: str  # "number", "name", "quoted", "symbol" or "end"
    text: str
    at: int


class _Parser:
    """Parses a text to ``program``, by the grammar."""

    def __init__(self, text: str) -> None:
        if len(text) > LONGEST:
            raise ExpressionError(f"an expression may have {LONGEST} characters, got {len(text)}")
        self._text, self._next, self._depth = text, 0, 0
        self._tokens = self._split()
        self.program: list[Instruction] = []
        self._expression()
        if self._token.kind != "end":
            self._fail("expected an operator or the end")

    def _split(self) -> list[_Token]:
        tokens, at = [], 0
        end = len(self._text.rstrip())
        while at < end:
            found = _TOKEN.match(self._text, at)
            if found is None:
                at += len(self._text[at:]) - len(self._text[at:].lstrip())
                raise ExpressionError(f"expression {self._text!r}: {self._text[at]!r} at {at + 1} is not part of it")
            kind = found.lastgroup or ""
            tokens.append(_Token(kind, found[kind], found.start(kind)))
            at = found.end()
        return [*tokens, _Token("end", "", end)]

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _accept(self, *symbols: str) -> str:
        """Take the next token if it is one of these symbols; return it, else an empty string."""
        token = self._token
        if token.text not in symbols or (token.kind != "symbol" and token.text not in ("or", "and")):
            return ""
        self._next += 1
        return token.text

    def _want(self, symbol: str) -> None:
        if not self._accept(symbol):
            self._fail(f"expected {symbol!r}")

    def _fail(self, why: str) -> NoReturn:
        token = self._token
        found = "its end" if token.kind == "end" else f"{token.text!r} at {token.at + 1}"
        raise ExpressionError(f"expression {self._text!r}: {why}, found {found}")

    def _operator(self, symbol: str, arguments: int) -> None:
        self.program.append((OPERATORS[_SAME.get(symbol, symbol)], arguments))

    def _inside(self, parse: Callable[[], None], what: str) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            self._fail(f"more than {DEEPEST} {what} inside one another")
        parse()
        self._depth -= 1

    def _expression(self) -> None:
        self._inside(self._choice, "brackets or choices")

    def _choice(self) -> None:
        self._binary(0)
        if self._accept("?"):
            self._expression()
            self._want(":")
            self._expression()
            self._operator("?:", 3)

    def _binary(self, level: int) -> None:
        self._unary()
        while symbol := self._accept(*(own for own, its in _LEVEL.items() if its >= level)):
            self._binary(_LEVEL[symbol] + 1)
            self._operator(symbol, 2)

    def _unary(self) -> None:
        signs = list(iter(lambda: self._accept("-", "+", "!"), ""))
        self._value()
        if self._accept("^", "**"):
            self._inside(self._unary, "powers")
            self._operator("^", 2)
        for sign in reversed(signs):
            if sign != "+":
                self._operator("negative" if sign == "-" else "!", 1)

    def _value(self) -> None:
        if self._accept("("):
            self._expression()
            self._want(")")
            return
        token = self._token
        if token.kind not in ("number", "name", "quoted") or token.text in ("or", "and"):
            self._fail("expected a number, a name or a bracket")
        self._next += 1
        if token.kind == "number":
            self.program.append(float(token.text))
        elif token.kind == "name" and self._accept("("):
            self._call(token.text)
        elif token.kind == "name" and token.text in CONSTANTS:
            self.program.append(CONSTANTS[token.text])
        else:
            self.program.append(token.text)

    def _call(self, name: str) -> None:
        if name not in FUNCTIONS:
            raise ExpressionError(f"expression {self._text!r}: unknown function '{name}': {nearest(name, FUNCTIONS)}")
        count = 0
        while not self._accept(")"):
            if count:
                self._want(",")
            self._expression()
            count += 1
        compute, least, most = FUNCTIONS[name]
        if count < least or (most is not None and count > most):
            wanted = f"{least}" if most == least else f"at least {least}"
            raise ExpressionError(
                f"expression {self._text!r}: {name} takes {wanted} argument{'s' * (least != 1)}, got {count}"
            )
        self.program.append((compute, count))


class Expression:
    """Numbers, variables, operators and functions.

    >>> ctr = Expression("show > 0 ? click / show : 0")
    >>> ctr.variables
    ('show', 'click')
    >>> ctr({"show": Vector(np.array([4.0, 0.0])), "click": Vector(np.array([1.0, 0.0]))}, 2).values.tolist()
    [0.25, 0.0]
    >>> Expression("click / shwo(2)")
    Traceback (most recent call last):
    sparrow.data.expressions.expression.ExpressionError: expression 'click / shwo(2)': unknown function 'shwo': ...

    Attributes:
      text: the expression.
      variables: the names in it, in the order of their first use.
    """

    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or not text.strip():
            raise ExpressionError(f"an expression must be a string that is not empty, got {text!r}")
        self.text = text
        self._program = _Parser(text).program
        names = [step for step in self._program if isinstance(step, str)]
        self.variables: tuple[str, ...] = tuple(dict.fromkeys(names))

    def __call__(self, values: Mapping[str, Vector], rows: int, fill: float | None = None) -> Vector:
        """Return the result for ``rows`` rows. Divisions by zero and the like give infinities and NaN.

        Lists of one row that meet in the expression and differ in length are filled with ``fill``; where it is None,
        they raise `Uneven`.
        """
        stack: list[Vector] = []
        with np.errstate(all="ignore"):
            for step in self._program:
                if isinstance(step, float):
                    stack.append(Vector(np.full(rows, step)))
                elif isinstance(step, str):
                    stack.append(values[step])
                else:
                    compute, count = step
                    first = len(stack) - count
                    arguments = stack[first:] if fill is None else padded(stack[first:], fill)
                    stack[first:] = [compute(arguments)]
        (made,) = stack
        return made
