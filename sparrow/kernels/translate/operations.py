"""The operations that a rule may use: JAX's primitives as C++ and CUDA write them, one line each.

A rule that uses another one runs on ``xla``, with a warning that names it. The functions of ``math::`` and the helpers
are in ``native/src/row_step.h`` and ``cuda/src/row_step.cuh``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sparrow.kernels.translate.values import C_TYPES, Inexpressible, Write

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


def _bitcast(params: dict[str, Any], dtypes: tuple[str, ...], out: str) -> Write:
    return lambda a: f"bit_cast<{C_TYPES[out]}>({a})"


def _select(params: dict[str, Any], dtypes: tuple[str, ...], out: str) -> Write:
    if dtypes[0] != "bool" or len(dtypes) != 3:
        raise Inexpressible(f"the primitive 'select_n' of {len(dtypes) - 1} cases has no translation")
    return lambda which, if_false, if_true: f"({which} ? {if_true} : {if_false})"


def _not(params: dict[str, Any], dtypes: tuple[str, ...], out: str) -> Write:
    return (lambda a: f"(!{a})") if out == "bool" else (lambda a: f"(~{a})")


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
    "bitcast_convert_type": _bitcast,
    "select_n": _select,
    "not": _not,
    "integer_pow": _integer_pow,
    "round": _round,
}

OPERATIONS = frozenset({*ELEMENT_WISE, *_SPECIAL, *REDUCTIONS, *SAME_NUMBERS, "iota", "dot_general"})
"""All primitives that a rule may use on every backend; `Rule` documents them."""
