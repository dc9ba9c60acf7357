"""Where each value of a computation lives, when the parameters are spread over stages.

An optimizer's update is traced once, for the complete tree of parameters, and each value in it is given a place:

* `EVERYWHERE`: it depends on no parameter (a step count, a constant); each stage computes it for itself.
* a stage: it comes from one stage's parameters (a gradient, a moment).
* `Mixed`: it comes from scalars of several stages (a global norm). Those scalars travel, and every stage that wants
  the value computes it from them.

Arrays never travel. A computation in which arrays of two stages meet is refused.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from sparrow.jaxprs import walk

if TYPE_CHECKING:
    from jax.extend import core

Stage = Hashable


@dataclasses.dataclass(frozen=True)
class OnStage:
    """The place of a value that comes from one stage; ``parameter`` is one that it comes from."""

    stage: Stage
    parameter: str


@dataclasses.dataclass(frozen=True)
class Mixed:
    """The place of a value that comes from scalars of several stages."""

    last: OnStage | None  # of them, the one that joined last; a leaf of the state that comes out mixed is kept there


EVERYWHERE = None
Placement = OnStage | Mixed | None


@dataclasses.dataclass(eq=False)
class PlacedValue:
    """One intermediate result: its shape, its place, and the operation that gives it."""

    aval: Any
    place: Placement
    constant: Any = None
    operation: Operation | None = None  # None for inputs and constants

    @property
    def is_scalar(self) -> bool:
        """Whether the value has one element, and so may travel."""
        shape: tuple[int, ...] = self.aval.shape
        return math.prod(shape) == 1


@dataclasses.dataclass(eq=False)
class Operation:
    """``outputs = run(*inputs)``."""

    run: Callable[..., Sequence[Any]]
    inputs: tuple[PlacedValue, ...]
    outputs: tuple[PlacedValue, ...] = ()


def place(closed: Any, places: Sequence[Placement]) -> tuple[list[PlacedValue], list[PlacedValue]]:
    """Return the inputs, which lie at ``places``, and the outputs of what ``jax.make_jaxpr`` has traced."""
    inputs = [PlacedValue(var.aval, place) for var, place in zip(closed.jaxpr.invars, places, strict=True)]
    return inputs, _place(closed, inputs)


def foreign(wanted: Iterable[PlacedValue], stage: Stage) -> list[PlacedValue]:
    """Return the values of other stages that ``stage`` must be sent to compute ``wanted``, in a fixed order."""
    found = [value for value in _needed(wanted, stage) if _is_foreign(value, stage)]
    for value in found:
        if not value.is_scalar:
            raise ValueError(f"{_describe(value)} is wanted on stage {stage!r}, but only scalars travel between stages")
    return found


def compute(wanted: Sequence[PlacedValue], stage: Stage, given: dict[PlacedValue, Any]) -> list[Any]:
    """Compute ``wanted`` on ``stage`` from the inputs and the values of other stages in ``given``."""
    known = dict(given)
    for value in _needed(wanted, stage):
        if value in known:
            continue
        if value.operation is None:
            known[value] = value.constant
        else:
            results = value.operation.run(*(known[read] for read in value.operation.inputs))
            known.update(zip(value.operation.outputs, results, strict=True))
    return [known[value] for value in wanted]


def inputs_of(wanted: Iterable[PlacedValue], stage: Stage) -> list[PlacedValue]:
    """Return the inputs of the complete computation that lie on ``stage`` and that ``wanted`` depends on."""
    return [
        value
        for value in _needed(wanted, stage)
        if value.operation is None and value.constant is None and not _is_foreign(value, stage)
    ]


def _is_foreign(value: PlacedValue, stage: Stage) -> bool:
    return isinstance(value.place, OnStage) and value.place.stage != stage


def _needed(wanted: Iterable[PlacedValue], stage: Stage) -> list[PlacedValue]:
    """Everything that ``stage`` must know for ``wanted``, each value after those that it depends on."""
    order: dict[PlacedValue, None] = {}
    stack = [(value, False) for value in reversed(list(wanted))]
    while stack:
        value, ready = stack.pop()
        if value in order:
            continue
        if ready or value.operation is None or _is_foreign(value, stage):
            order[value] = None
            continue
        stack.append((value, True))
        stack.extend((read, False) for read in value.operation.inputs if read not in order)
    return list(order)


def _place(closed: core.ClosedJaxpr, inputs: Sequence[PlacedValue]) -> list[PlacedValue]:
    """Return the outputs of ``closed`` as values with places."""
    return walk(closed, inputs, _place_equation, _constant)


def _constant(value: Any, aval: Any) -> PlacedValue:
    # NumPy's, because an array that lies on a device could not be used on another stage's.
    if isinstance(value, jax.Array) and not jnp.issubdtype(value.dtype, jax.dtypes.extended):
        value = np.asarray(value)
    return PlacedValue(aval, EVERYWHERE, constant=value)


def _place_equation(eqn: core.JaxprEqn, inputs: list[PlacedValue]) -> Sequence[PlacedValue]:
    if eqn.primitive.name == "cond":
        index, *operands = inputs
        branches = eqn.params["branches"]
        if index.constant is not None:
            taken = branches[int(index.constant)]
            return _place(taken, operands)
        if len({value.place.stage for value in inputs if isinstance(value.place, OnStage)}) > 1:
            # Both branches, then a choice: each stage chooses for its own values.
            results = [_place(branch, operands) for branch in branches]
            return [_select(index, alternatives) for alternatives in zip(*results, strict=True)]

    def run(*values: Any) -> Sequence[Any]:
        bind: Callable[..., Any] = eqn.primitive.bind
        result = bind(*values, **eqn.params)
        return result if eqn.primitive.multiple_results else [result]

    return _operation(eqn.primitive.name, run, inputs, [var.aval for var in eqn.outvars])


def _select(index: PlacedValue, alternatives: tuple[PlacedValue, ...]) -> PlacedValue:
    def run(index: Any, *alternatives: Any) -> Sequence[Any]:
        return [jax.lax.select_n(index, *alternatives)]

    return _operation("cond", run, [index, *alternatives], [alternatives[0].aval])[0]


def _operation(
    name: str, run: Callable[..., Sequence[Any]], inputs: Sequence[PlacedValue], avals: Sequence[Any]
) -> tuple[PlacedValue, ...]:
    operation = Operation(run, tuple(inputs))
    place = _join(name, inputs)
    operation.outputs = tuple(PlacedValue(aval, place, operation=operation) for aval in avals)
    return operation.outputs


def _join(name: str, inputs: Sequence[PlacedValue]) -> Placement:
    staged = {value.place.stage: value.place for value in inputs if isinstance(value.place, OnStage)}
    arrays = {
        value.place.stage: value.place for value in inputs if isinstance(value.place, OnStage) and not value.is_scalar
    }
    mixed = [value.place for value in inputs if isinstance(value.place, Mixed)]
    if len(arrays) > 1:
        first, second, *_ = arrays.values()
        raise ValueError(
            f"the optimizer brings arrays of '{first.parameter}' (stage {first.stage!r}) and '{second.parameter}' "
            f"(stage {second.stage!r}) together in `{name}`; only scalars may travel between stages"
        )
    if arrays:
        return next(iter(arrays.values()))
    if len(staged) > 1:
        return Mixed(None)
    if not mixed:
        return next(iter(staged.values()), EVERYWHERE)
    # A scalar among mixed ones joins them: of a long sum over stages, the terms travel, not the partial sums.
    if staged:
        return Mixed(next(iter(staged.values())))
    last = {place.last.stage if place.last else None: place.last for place in mixed}
    return Mixed(next(iter(last.values())) if len(last) == 1 else None)


def _describe(value: PlacedValue) -> str:
    place = value.place
    return f"an array of '{place.parameter}' (stage {place.stage!r})" if isinstance(place, OnStage) else "an array"
