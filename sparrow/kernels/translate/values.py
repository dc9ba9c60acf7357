"""The values of a row step, as a graph, between jaxpr and C++."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

import jax.numpy as jnp
import numpy as np

Write = Callable[..., str]

C_TYPES = {
    "bool": "bool",
    "int8": "int8_t",
    "int16": "int16_t",
    "int32": "int32_t",
    "int64": "int64_t",
    "uint8": "uint8_t",
    "uint16": "uint16_t",
    "uint32": "uint32_t",
    "uint64": "uint64_t",
    "bfloat16": "uint16_t",  # only kept and converted, never computed with
    "float16": "uint16_t",
    "float32": "float",
    "float64": "double",
}


class Inexpressible(Exception):
    """A row step uses something that has no translation; the message names it."""


@dataclasses.dataclass(frozen=True, eq=False)
class Value:
    """One value of the row step: a number per row, or one per element.

    Attributes:
      dtype: NumPy's name of the type.
      per_element: whether there is one per element of the row.
      operands: the values that it is computed from.
      write: C++ expression from the operands' expressions.
      reduction: how its single operand's elements are combined: an operator of `REDUCTIONS`, or None.
      leaf: an input or a constant: writing it again costs nothing, so that it needs no name.
    """

    dtype: str
    per_element: bool
    operands: tuple[Value, ...]
    write: Write
    reduction: str | None = None
    leaf: bool = False

    @property
    def c_type(self) -> str:
        return C_TYPES[self.dtype]


def leaf(dtype: str, text: str, per_element: bool = False) -> Value:
    """Return an input or a constant, written as ``text``."""
    return Value(dtype, per_element, (), lambda: text, leaf=True)


def constant(number: np.generic | np.ndarray | float | int | bool, dtype: str) -> Value:
    """Return a number that the code holds.

    >>> constant(0.1, "float32").write()
    '0x1.99999a0000000p-4f'
    """
    return leaf(dtype, _literal(number, dtype))


def _literal(number: np.generic | np.ndarray | float | int | bool, dtype: str) -> str:
    if dtype == "bool":
        return "true" if number else "false"
    if dtype in ("float32", "float64"):
        value, suffix = float(np.dtype(dtype).type(number)), "f" if dtype == "float32" else ""
        if np.isnan(value):
            return f'__builtin_nan{suffix}("")'
        if np.isinf(value):
            return f"({'-' if value < 0 else '+'}__builtin_inf{suffix}())"
        return f"({value.hex()}{suffix})" if value < 0 else f"{value.hex()}{suffix}"
    if dtype in ("bfloat16", "float16"):
        bits = np.asarray(number, jnp.dtype(dtype)).view(np.uint16)
        return f"uint16_t({int(bits)})"
    # Through unsigned: C++ has no literal for the smallest signed number.
    kind = np.dtype(dtype)
    return f"{C_TYPES[dtype]}({int(np.asarray(number, kind).astype(f'u{kind.itemsize}'))}ull)"


def in_order(outputs: Iterable[Value]) -> list[Value]:
    """Return all values that ``outputs`` need, operands before their users."""
    ordered: dict[Value, None] = {}
    stack = [(output, False) for output in reversed(list(outputs))]
    while stack:
        value, operands_done = stack.pop()
        if value in ordered:
            continue
        if operands_done:
            ordered[value] = None
        else:
            stack.append((value, True))
            stack.extend((operand, False) for operand in reversed(value.operands))
    return list(ordered)
