"""One walk over a jaxpr for everybody who reads one: calls are taken apart, every equation is handed over in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from jax.extend import core

Value = TypeVar("Value")

CALLS = frozenset(
    {
        *("jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call"),
        *("custom_vjp_call_jaxpr", "remat", "remat2", "checkpoint"),
    }
)
"""Primitives that only call a function."""


def called(equation: core.JaxprEqn) -> core.ClosedJaxpr | None:
    """Return the jaxpr that a call runs; None for a primitive that is not a call."""
    if equation.primitive.name not in CALLS:
        return None
    from jax.extend import core  # imports Pallas, too: only where a jaxpr is read

    keys = ("jaxpr", "call_jaxpr", "fun_jaxpr")
    inner = next(equation.params[key] for key in keys if key in equation.params)
    return inner if isinstance(inner, core.ClosedJaxpr) else core.ClosedJaxpr(inner, ())


def is_literal(atom: Any) -> bool:
    """Return whether an operand is a number that the jaxpr itself holds, and no variable."""
    return hasattr(atom, "val")


def walk(
    closed: core.ClosedJaxpr,
    inputs: Sequence[Value],
    equation: Callable[[core.JaxprEqn, list[Value]], Sequence[Value]],
    constant: Callable[[Any, Any], Value],
) -> list[Value]:
    """Interpret ``closed`` on values of any kind.

    Args:
      closed: the jaxpr.
      inputs: one value per input.
      equation: the values of an equation's outputs, from the equation and the values of its operands.
      constant: the value of a constant, from the constant and its aval.

    Returns:
      One value per output.
    """
    known: dict[core.Var, Value] = dict(zip(closed.jaxpr.invars, inputs, strict=True))
    for variable, number in zip(closed.jaxpr.constvars, closed.consts, strict=True):
        known[variable] = constant(number, variable.aval)

    def read(atom: Any) -> Value:
        return constant(atom.val, atom.aval) if is_literal(atom) else known[atom]

    for one in closed.jaxpr.eqns:
        operands = [read(atom) for atom in one.invars]
        inner = called(one)
        results = equation(one, operands) if inner is None else walk(inner, operands, equation, constant)
        known.update(zip(one.outvars, results, strict=True))
    return [read(atom) for atom in closed.jaxpr.outvars]
