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


def walk(
    closed: core.ClosedJaxpr,
    inputs: Sequence[Value],
    equation: Callable[[core.JaxprEqn, list[Value]], Sequence[Value]],
    constant: Callable[[Any, Any], Value],
    inlined: Callable[[core.JaxprEqn], core.ClosedJaxpr | None] = called,
) -> list[Value]:
    """Interpret ``closed`` on values of any kind.

    Args:
      closed: the jaxpr.
      inputs: one value per input.
      equation: the values of an equation's outputs, from the equation and the values of its operands.
      constant: the value of a constant, from the constant and its aval.
      inlined: the jaxpr that is walked in place of an equation; None: it is handed over.

    Returns:
      One value per output.
    """
    known: dict[core.Var, Value] = dict(zip(closed.jaxpr.invars, inputs, strict=True))
    for variable, number in zip(closed.jaxpr.constvars, closed.consts, strict=True):
        known[variable] = constant(number, variable.aval)

    def read(atom: Any) -> Value:
        return constant(atom.val, atom.aval) if hasattr(atom, "val") else known[atom]  # a number of the jaxpr itself

    for one in closed.jaxpr.eqns:
        operands = [read(atom) for atom in one.invars]
        inner = inlined(one)
        results = equation(one, operands) if inner is None else walk(inner, operands, equation, constant, inlined)
        known.update(zip(one.outvars, results, strict=True))
    return [read(atom) for atom in closed.jaxpr.outvars]
