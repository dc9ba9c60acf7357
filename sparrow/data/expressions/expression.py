"""`Expression`: a text over variables, parsed once and computed for many rows at a time.

Its grammar, from text to a program of a stack machine:

::

    expression = binary [ "?" expression ":" expression ]
    binary     = unary { operator unary }             by the levels below, each from left to right
    unary      = ("-" | "+" | "!") unary | power
    power      = value [ ("^" | "**") unary ]         from right to left: -2 ^ 2 is -(2 ^ 2)
    value      = number | name | `any name` | function "(" expression { "," expression } ")" | "(" expression ")"
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
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


class Number(NamedTuple):
    """Push a number."""

    value: float


class Variable(NamedTuple):
    """Push a variable."""

    name: str


class Call(NamedTuple):
    """Replace the last values, as many as the function or operator has arguments, by its result."""

    name: str
    arguments: int


Instruction = Number | Variable | Call


class _Token(NamedTuple):
    kind: str  # "number", "name", "quoted", "symbol" or "end"
    text: str
    at: int


def parse(text: str, functions: dict[str, tuple[int, int | None]]) -> tuple[Instruction, ...]:
    """Return the program of an expression.

    >>> parse("-a * 2", {})
    (Variable(name='a'), Call(name='negative', arguments=1), Number(value=2.0), Call(name='*', arguments=2))

    Args:
      text: the expression.
      functions: the least and the most arguments of each function; None: any number.
    """
    return _Parser(text, functions).program()


class _Parser:
    def __init__(self, text: str, functions: dict[str, tuple[int, int | None]]) -> None:
        self._text, self._functions = text, functions
        if len(text) > LONGEST:
            raise ExpressionError(f"an expression may have {LONGEST} characters, got {len(text)}")
        self._tokens, self._next, self._depth = list(self._split()), 0, 0
        self._made: list[Instruction] = []

    def program(self) -> tuple[Instruction, ...]:
        self._expression()
        if self._peek().kind != "end":
            self._fail("expected an operator or the end")
        return tuple(self._made)

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

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._peek()
        self._next += 1
        return token

    def _is(self, *symbols: str) -> bool:
        token = self._peek()
        return token.text in symbols and (token.kind == "symbol" or token.text in ("or", "and"))

    def _want(self, symbol: str) -> None:
        if not self._is(symbol):
            self._fail(f"expected {symbol!r}")
        self._next += 1

    def _fail(self, why: str) -> NoReturn:
        token = self._peek()
        found = "its end" if token.kind == "end" else f"{token.text!r} at {token.at + 1}"
        raise ExpressionError(f"expression {self._text!r}: {why}, found {found}")

    def _expression(self) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            self._fail(f"more than {DEEPEST} brackets or choices inside one another")
        self._binary(0)
        if self._is("?"):
            self._take()
            self._expression()
            self._want(":")
            self._expression()
            self._made.append(Call("?:", 3))
        self._depth -= 1

    def _binary(self, level: int) -> None:
        self._unary()
        while self._is(*_LEVEL) and _LEVEL[self._peek().text] >= level:
            symbol = self._take().text
            self._binary(_LEVEL[symbol] + 1)
            self._made.append(Call(_SAME.get(symbol, symbol), 2))

    def _unary(self) -> None:
        signs = []
        while self._is("-", "+", "!"):
            signs.append(self._take().text)
        self._power()
        for sign in reversed(signs):
            if sign != "+":
                self._made.append(Call("negative" if sign == "-" else "!", 1))

    def _power(self) -> None:
        self._value()
        if self._is("^", "**"):
            self._take()
            self._depth += 1
            if self._depth > DEEPEST:
                self._fail(f"more than {DEEPEST} powers inside one another")
            self._unary()
            self._depth -= 1
            self._made.append(Call("^", 2))

    def _value(self) -> None:
        if self._is("("):
            self._take()
            self._expression()
            self._want(")")
            return
        token = self._peek()
        if token.kind not in ("number", "name", "quoted") or token.text in ("or", "and"):
            self._fail("expected a number, a name or a bracket")
        self._next += 1
        if token.kind == "number":
            self._made.append(Number(float(token.text)))
        elif token.kind == "name" and self._is("("):
            self._call(token)
        elif token.kind == "name" and token.text in CONSTANTS:
            self._made.append(Number(CONSTANTS[token.text]))
        else:
            self._made.append(Variable(token.text))

    def _call(self, function: _Token) -> None:
        if function.text not in self._functions:
            known = nearest(function.text, self._functions)
            raise ExpressionError(f"expression {self._text!r}: unknown function '{function.text}': {known}")
        self._take()
        count = 0
        while not self._is(")"):
            if count:
                self._want(",")
            self._expression()
            count += 1
        self._take()
        least, most = self._functions[function.text]
        if count < least or (most is not None and count > most):
            wanted = f"{least}" if most == least else f"at least {least}"
            raise ExpressionError(
                f"expression {self._text!r}: {function.text} takes {wanted} argument{'s' * (least != 1)}, got {count}"
            )
        self._made.append(Call(function.text, count))


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
