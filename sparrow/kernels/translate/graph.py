"""From a row step, traced, to the graph of its values.

A rule that uses an operation outside of `OPERATIONS` runs on ``xla``, with a warning that names it. The helpers are in
``native/src/operations.h``; ``math::`` is std in C++, and in ``cuda/src/row_step.cuh`` a list of the same functions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from sparrow.jaxprs import walk
from sparrow.kernels.rounding import noise
from sparrow.kernels.translate.values import C_TYPES, Inexpressible, Value, Write, constant, leaf
from sparrow.kernels.types import RowStep, stand_in

if TYPE_CHECKING:
    from jax.extend import core


@dataclasses.dataclass(frozen=True)
class Graph:
    """The values that a row step writes. Its inputs are leaves called row, grad, slot0.., scalar0.., seed, index.

    Attributes:
      row: the new row.
      slots: the new slots.
      unchanged: the numbers of the slots that the step gives back as they were.
    """

    row: Value
    slots: tuple[Value, ...]
    unchanged: frozenset[int]


def trace(step: RowStep, dim: Any = None) -> core.ClosedJaxpr:
    """Return the jaxpr of ``step`` with its limits and its rounding, for a row of ``dim`` elements, or of its own dim.

    It takes row, grad, the slots, the scalars, seed, index, and gives the new row and the new slots. ``dim`` may be
    symbolic: a rule that asks for the length as a number then raises here.
    """
    dim = step.dim if dim is None else dim
    step = dataclasses.replace(step, dim=dim)

    def complete(row: jax.Array, grad: jax.Array, slots: Any, scalars: Any, seed: jax.Array, index: jax.Array) -> Any:
        return step(row, grad, slots, scalars, noise(seed, index, dim) if step.stochastic else None)

    slots, scalars = [stand_in(sizes) for sizes in step.slot_shapes], [stand_in(()) for _ in step.scalars]
    seed, index = stand_in((), jnp.uint32), stand_in((), jnp.int32)
    return jax.make_jaxpr(complete)(stand_in((dim,), step.dtype), stand_in((dim,)), slots, scalars, seed, index)


def build(step: RowStep, dim: Any = None) -> Graph:
    """Return the graph of ``step``, as `trace` takes it; raise `Inexpressible` where no kernel can express it."""
    return _Builder(step, step.dim if dim is None else dim).graph()


class _Builder:
    def __init__(self, step: RowStep, dim: Any) -> None:
        self.step, self.shape = step, (dim,)

    def graph(self) -> Graph:
        count, closed = len(self.step.slots), trace(self.step, *self.shape)
        slot_names = [f"slot{i}" for i in range(count)]
        scalar_names = [f"scalar{i}" for i in range(len(self.step.scalars))]
        names = ["row", "grad", *slot_names, *scalar_names, "seed", "index"]
        inputs = [
            leaf(aval.dtype.name, f"{name}[i]" if aval.shape else name, bool(aval.shape))
            for aval, name in zip(closed.in_avals, names, strict=True)
        ]
        row, *slots = walk(closed, inputs, lambda equation, operands: [self.one(equation, operands)], self.constant)
        old_slots = inputs[2 : 2 + count]
        for name, new, old in zip(["row", *slot_names], [row, *slots], [inputs[0], *old_slots], strict=True):
            if (new.dtype, new.per_element) != (old.dtype, old.per_element):
                raise Inexpressible(f"the new {name.replace('slot', 'slot ')} differs from the old in shape or type")
        unchanged = frozenset(i for i, (new, old) in enumerate(zip(slots, old_slots, strict=True)) if new is old)
        return Graph(row, tuple(slots), unchanged)

    def one(self, equation: Any, operands: list[Value]) -> Value:
        """Return the value of an equation that is not a call."""
        name, params = equation.primitive.name, equation.params
        if len(equation.outvars) != 1:
            raise Inexpressible(f"the primitive '{name}' has no translation")
        aval = equation.outvars[0].aval
        dtype = aval.dtype.name
        if dtype not in C_TYPES:
            raise Inexpressible(f"the primitive '{name}' gives {dtype}, which no kernel computes with")
        per_element = self.per_element(name, aval.shape)

        if name == "dim_as_value":
            if params["dim"] != self.shape[0]:
                raise Inexpressible(f"the length {params['dim']} is not the length of the row")
            return leaf(dtype, f"{C_TYPES[dtype]}(dim)")
        if name == "iota":
            return leaf(dtype, f"{C_TYPES[dtype]}(column)", per_element) if per_element else constant(0, dtype)
        if name in SAME_NUMBERS:
            (operand,) = operands[:1]
            if operand.per_element == per_element:
                return operand
            if operand.leaf:
                return leaf(dtype, operand.write(), per_element)
            return Value(dtype, per_element, (operand,), lambda a: a)
        if name == "convert_element_type" and operands[0].dtype == dtype:
            return operands[0]
        if name in REDUCTIONS:
            return self.reduce(name, dtype, operands[0])
        if name == "dot_general":
            a, b = operands
            if a.per_element and b.per_element and not per_element and a.dtype == b.dtype == dtype:
                product = Value(dtype, True, (a, b), element_wise("mul", {}, (dtype, dtype), dtype))
                return self.reduce("reduce_sum", dtype, product)
        write = element_wise(name, params, tuple(operand.dtype for operand in operands), dtype)
        return Value(dtype, per_element, tuple(operands), write)

    def reduce(self, name: str, dtype: str, operand: Value) -> Value:
        if not operand.per_element:
            return operand  # over an axis of length 1
        if dtype in ("bfloat16", "float16"):
            raise Inexpressible(f"the primitive '{name}' computes in {dtype}; convert to float32 first")
        return Value(dtype, False, (operand,), lambda a: a, reduction=REDUCTIONS[name])

    def per_element(self, name: str, shape: tuple[Any, ...]) -> bool:
        """Whether an array of ``shape`` has one number per element of the row; else it must be one number."""
        if shape == self.shape:
            return True
        if all(size == 1 for size in shape):
            return False
        raise Inexpressible(f"the primitive '{name}' gives shape {shape}, neither a number nor a row")

    def constant(self, number: Any, aval: Any) -> Value:
        number = np.asarray(number, getattr(aval, "dtype", None))
        if number.size != 1:
            raise Inexpressible(f"a constant array of shape {number.shape}; pass numbers as hyper-parameters")
        return constant(number.reshape(()), number.dtype.name)


HALVES = ("bfloat16", "float16")
FLOATS = ("float32", "float64")


def _infix(operator: str) -> Write:
    return lambda a, b: f"({a} {operator} {b})"


def _function(name: str) -> Write:
    return lambda *operands: f"{name}({', '.join(operands)})"


LIBRARY = (
    *("sqrt", "cbrt", "exp", "exp2", "expm1", "log", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "atan2"),
    *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "lgamma", "floor", "ceil", "nextafter", "pow"),
)
"""Functions that C++ and CUDA know by the same name."""

ELEMENT_WISE: dict[str, Write] = {
    "add": _infix("+"),
    "sub": _infix("-"),
    "mul": _infix("*"),
    "div": _infix("/"),
    "rem": _function("math::fmod"),
    "neg": lambda a: f"(-{a})",
    "abs": _function("math::abs"),
    "sign": _function("sign"),
    "square": lambda a: f"({a} * {a})",
    "max": _function("maximum"),
    "min": _function("minimum"),
    "clamp": lambda low, a, high: f"minimum(maximum({a}, {low}), {high})",
    "eq": _infix("=="),
    "ne": _infix("!="),
    "lt": _infix("<"),
    "le": _infix("<="),
    "gt": _infix(">"),
    "ge": _infix(">="),
    "and": _infix("&"),
    "or": _infix("|"),
    "xor": _infix("^"),
    "shift_left": _function("shift_left"),
    "shift_right_logical": _function("shift_right_logical"),
    "shift_right_arithmetic": _function("shift_right_arithmetic"),
    "is_finite": _function("is_finite"),
    "rsqrt": lambda a: f"(1 / math::sqrt({a}))",
    "logistic": lambda a: f"(1 / (1 + math::exp(-{a})))",
    "copy": lambda a: a,
    "stop_gradient": lambda a: a,
    **{name: _function(f"math::{name}") for name in LIBRARY},
}

FLOAT_ONLY = {"div", "rem", "rsqrt", "logistic", *LIBRARY}
"""Where C++ on integers would do something else, or trap."""

REDUCTIONS = {"reduce_sum": "+", "reduce_prod": "*", "reduce_max": "max", "reduce_min": "min"}

SAME_NUMBERS = ("broadcast_in_dim", "reshape", "squeeze")
"""Primitives that only change the shape, between one number and one per element, or not at all."""


def element_wise(name: str, params: dict[str, Any], dtypes: tuple[str, ...], out: str) -> Write:
    """How ``name`` on operands of ``dtypes`` is written, giving ``out``; raises `Inexpressible`."""
    if special := _SPECIAL.get(name):
        return special(params, dtypes, out)
    if name not in ELEMENT_WISE:
        raise Inexpressible(f"the primitive '{name}' has no translation")
    if any(dtype in HALVES for dtype in (*dtypes, out)):
        raise Inexpressible(f"the primitive '{name}' computes in {dtypes[0]}; convert to float32 first")
    if name in FLOAT_ONLY and dtypes[0] not in FLOATS:
        raise Inexpressible(f"the primitive '{name}' on {dtypes[0]} has no translation")
    return ELEMENT_WISE[name]


def _convert(params: dict[str, Any], dtypes: tuple[str, ...], out: str) -> Write:
    (source,) = dtypes
    if out in HALVES:
        return lambda a: (
            f"to_{out}({f'from_{source}({a})' if source in HALVES else _from_number(a, source, 'float32')})"
        )
    if source in HALVES:
        return lambda a: _from_number(f"from_{source}({a})", "float32", out)
    return lambda a: _from_number(a, source, out)


def _from_number(text: str, source: str, out: str) -> str:
    if source == out:
        return text
    if out == "bool":
        return f"({text} != 0)"
    if source in FLOATS and out not in FLOATS:
        return f"to_integer<{C_TYPES[out]}>({text})"
    return f"{C_TYPES[out]}({text})"


def _select(params: dict[str, Any], dtypes: tuple[str, ...], out: str) -> Write:
    if dtypes[0] != "bool" or len(dtypes) != 3:
        raise Inexpressible(f"the primitive 'select_n' of {len(dtypes) - 1} cases has no translation")
    return lambda which, if_false, if_true: f"({which} ? {if_true} : {if_false})"


def _integer_pow(params: dict[str, Any], dtypes: tuple[str, ...], out: str) -> Write:
    exponent = int(params["y"])
    if out not in FLOATS:
        raise Inexpressible(f"the primitive 'integer_pow' on {out} has no translation")

    def write(a: str) -> str:
        product = " * ".join([a] * abs(exponent)) or "1"
        return f"({product})" if exponent >= 0 else f"(1 / ({product}))"

    if abs(exponent) > 16:
        return lambda a: f"math::pow({a}, {C_TYPES[out]}({exponent}))"
    return write


def _round(params: dict[str, Any], dtypes: tuple[str, ...], out: str) -> Write:
    to_even = int(params["rounding_method"]) == 1
    return _function("math::nearbyint" if to_even else "math::round")


_SPECIAL: dict[str, Callable[[dict[str, Any], tuple[str, ...], str], Write]] = {
    "convert_element_type": _convert,
    "bitcast_convert_type": lambda params, dtypes, out: lambda a: f"bit_cast<{C_TYPES[out]}>({a})",
    "select_n": _select,
    "not": lambda params, dtypes, out: lambda a: f"(!{a})" if out == "bool" else f"(~{a})",
    "integer_pow": _integer_pow,
    "round": _round,
}

OPERATIONS = frozenset({*ELEMENT_WISE, *_SPECIAL, *REDUCTIONS, *SAME_NUMBERS, "iota", "dot_general"})
"""All primitives that a rule may use on every backend; `Rule` documents them."""
