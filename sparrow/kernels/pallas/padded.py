"""A row step on blocks longer than the row: the kernels' blocks are powers of two, rows need not be.

The step is traced at the row's true length, then its operations are replayed on padded blocks. What lies past the end
of the row is never stored, and is masked out wherever the step reduces over the row, so that no equation is written
twice: ``mean(grad * grad)`` divides by the true length because that is what was traced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var

from sparrow.kernels.pallas.blocks import struct
from sparrow.kernels.types import RowStep

_NAMES = """
abs acos acosh add add_any and asin asinh atan atan2 atanh bitcast_convert_type cbrt ceil clamp convert_element_type
copy cos cosh div eq exp exp2 expm1 floor ge gt integer_pow is_finite le log log1p logistic lt max min mul ne neg
nextafter not or pow rem rsqrt select_n shift_left shift_right_arithmetic shift_right_logical sign sin sinh sqrt square
sub tan tanh xor
"""
ELEMENTWISE = frozenset(_NAMES.split())
RESHAPING = {"broadcast_in_dim": "shape", "iota": "shape", "reshape": "new_sizes", "squeeze": None}
CALLS = frozenset(
    {"closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "jit", "pjit", "remat2", "checkpoint"}
)


def padded(step: RowStep, block: int) -> Callable[..., tuple[jax.Array, tuple[jax.Array, ...]]]:
    """``step`` for rows of ``block >= step.dim`` elements, of which the first ``step.dim`` count.

    Returns:
      A function like `RowStep.__call__`.
    """
    closed = trace(step)

    def run(
        row: jax.Array,
        grad: jax.Array,
        slots: Sequence[jax.Array],
        scalars: Sequence[jax.Array],
        noise: jax.Array | None = None,
    ) -> tuple[jax.Array, tuple[jax.Array, ...]]:
        args = [row, grad, *slots, *scalars, *([] if noise is None else [noise])]
        new_row, *new_slots = _Replay(step.dim, block).closed(closed, args)
        return new_row, tuple(new_slots)

    return run


def trace(step: RowStep) -> ClosedJaxpr:
    """The step's jaxpr at its true length: (row, grad, *slots, *scalars, noise where stochastic) -> (row, *slots)."""
    row = struct((step.dim,), step.dtype)
    grad = struct((step.dim,), jnp.float32)
    slots = [struct(shape, jnp.float32) for shape in step.slot_shapes]
    scalars = [struct((), jnp.float32) for _ in step.scalars]
    noise = [struct((step.dim,), jnp.uint32)] if step.stochastic else []

    def flat(*args: jax.Array) -> list[jax.Array]:
        row, grad, *rest = args
        new_row, new_slots = step(
            row,
            grad,
            rest[: len(slots)],
            rest[len(slots) : len(slots) + len(scalars)],
            rest[-1] if step.stochastic else None,
        )
        return [new_row, *new_slots]

    return jax.make_jaxpr(flat)(row, grad, *slots, *scalars, *noise)


def first_refused(step: RowStep) -> str | None:
    """The first operation of ``step`` that a row kernel cannot run, in words; None: it can run all of them.

    >>> from sparrow.rules import SGD
    >>> step = RowStep(SGD().without_numbers(), slots=(), scalars=("learning_rate",), dim=3, dtype="float32")
    >>> first_refused(step) is None
    True
    """
    closed = trace(step)
    if any(np.ndim(value) for value in closed.consts):
        return "it holds an array of constants"
    return _refused(closed.jaxpr, step.dim)


def _refused(jaxpr: Jaxpr, dim: int) -> str | None:
    for eqn in jaxpr.eqns:
        name = eqn.primitive.name
        if name in CALLS:
            inner = _called(eqn)
            if any(np.ndim(value) for value in inner.consts):
                return "it holds an array of constants"
            if reason := _refused(inner.jaxpr, dim):
                return reason
            continue
        known = name in ELEMENTWISE or name in RESHAPING or name in _REDUCE_IDENTITY or _is_vector_dot(eqn)
        shapes = [_aval(variable).shape for variable in (*eqn.invars, *eqn.outvars)]
        if not known or any(shape not in ((), (1,), (dim,)) for shape in shapes):
            return f"it uses '{name}' on shapes {', '.join(map(str, shapes[: len(eqn.invars)]))}"
    return None


def _largest(dtype: Any) -> Any:
    return np.inf if jnp.issubdtype(dtype, jnp.floating) else np.iinfo(dtype).max


def _smallest(dtype: Any) -> Any:
    return -np.inf if jnp.issubdtype(dtype, jnp.floating) else np.iinfo(dtype).min


_REDUCE_IDENTITY: dict[str, Callable[[Any], Any]] = {
    "reduce_sum": lambda dtype: 0,
    "reduce_max": _smallest,
    "reduce_min": _largest,
}


class _Replay:
    """Runs a jaxpr traced at length ``dim`` on values of length ``block``."""

    def __init__(self, dim: int, block: int) -> None:
        self.dim = dim
        self.block = block

    def inside(self) -> jax.Array:
        """Which elements of a block belong to the row."""
        return lax.iota(jnp.int32, self.block) < self.dim

    def closed(self, closed: ClosedJaxpr, args: Sequence[Any]) -> list[Any]:
        values: dict[Var, Any] = {}

        def read(atom: Any) -> Any:
            return atom.val if isinstance(atom, Literal) else values[atom]

        # Constants are scalars (`first_refused`); made here, they become literals of the kernel.
        for variable, const in zip(closed.jaxpr.constvars, closed.consts, strict=True):
            values[variable] = lax.full((), np.asarray(const).item(), _aval(variable).dtype)
        values.update(zip(closed.jaxpr.invars, args, strict=True))
        for eqn in closed.jaxpr.eqns:
            results = self.equation(eqn, [read(atom) for atom in eqn.invars])
            values.update(zip(eqn.outvars, results, strict=True))
        return [read(atom) for atom in closed.jaxpr.outvars]

    def equation(self, eqn: JaxprEqn, args: list[Any]) -> list[Any]:
        name = eqn.primitive.name
        if name in CALLS:
            return self.closed(_called(eqn), args)
        if name == "copy":
            return args
        if name in ("max", "min") and jnp.issubdtype(_aval(eqn.outvars[0]).dtype, jnp.floating):
            return [_propagating_nan(eqn, *args)]
        if _is_vector_dot(eqn):
            left, right = (x.astype(_aval(eqn.outvars[0]).dtype) for x in args)
            return [jnp.sum(jnp.where(self.inside(), left * right, 0))]
        if name in _REDUCE_IDENTITY and _aval(eqn.invars[0]).shape == (self.dim,):
            identity = _REDUCE_IDENTITY[name](args[0].dtype)
            args = [jnp.where(self.inside(), args[0], jnp.asarray(identity, args[0].dtype))]
        params = eqn.params
        if shape := RESHAPING.get(name):
            params = params | {shape: tuple(self.block if n == self.dim else n for n in params[shape])}
        return [eqn.primitive.bind(*args, **params)]  # type: ignore[no-untyped-call]


def _propagating_nan(eqn: JaxprEqn, x: Any, y: Any) -> jax.Array:
    """Maximum and minimum as XLA has them: NaN where either is NaN. A GPU's own instruction drops it."""
    result = eqn.primitive.bind(x, y)  # type: ignore[no-untyped-call]
    result = result if isinstance(eqn.invars[0], Literal) else jnp.where(x != x, x, result)
    return result if isinstance(eqn.invars[1], Literal) else jnp.where(y != y, y, result)


def _aval(variable: Any) -> Any:
    return variable.aval


def _called(eqn: JaxprEqn) -> ClosedJaxpr:
    """The jaxpr of a call, whatever its parameter's name."""
    for key in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        if (inner := eqn.params.get(key)) is not None:
            return inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, ())
    raise ValueError(f"'{eqn.primitive.name}' holds no jaxpr")


def _is_vector_dot(eqn: JaxprEqn) -> bool:
    return eqn.primitive.name == "dot_general" and eqn.params["dimension_numbers"] == (((0,), (0,)), ((), ()))
