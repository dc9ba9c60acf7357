"""From a traced row step to the graph of its values."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from sparrow.jaxprs import walk
from sparrow.kernels.translate.operations import REDUCTIONS, SAME_NUMBERS, element_wise
from sparrow.kernels.translate.trace import TracedStep
from sparrow.kernels.translate.values import C_TYPES, Inexpressible, Value, constant, leaf


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


def build(traced: TracedStep) -> Graph:
    """Return the graph of ``traced``; raise `Inexpressible` where no kernel can express it."""
    return _Builder(traced).graph()


class _Builder:
    def __init__(self, traced: TracedStep) -> None:
        self.traced = traced

    def graph(self) -> Graph:
        traced, closed = self.traced, self.traced.jaxpr
        slot_names = [f"slot{i}" for i in range(traced.num_slots)]
        scalar_names = [f"scalar{i}" for i in range(traced.num_scalars)]
        names = ["row", "grad", *slot_names, *scalar_names, "seed", "index"]
        inputs = [
            leaf(aval.dtype.name, f"{name}[i]" if aval.shape else name, bool(aval.shape))
            for aval, name in zip(closed.in_avals, names, strict=True)
        ]
        row, *slots = walk(closed, inputs, lambda equation, operands: [self.one(equation, operands)], self.constant)
        old_slots = inputs[2 : 2 + traced.num_slots]
        self.check_outputs([row, *slots], [inputs[0], *old_slots])
        unchanged = frozenset(i for i, (new, old) in enumerate(zip(slots, old_slots, strict=True)) if new is old)
        return Graph(row, tuple(slots), unchanged)

    def check_outputs(self, new: Sequence[Value], old: Sequence[Value]) -> None:
        for i, (got, want) in enumerate(zip(new, old, strict=True)):
            if (got.dtype, got.per_element) != (want.dtype, want.per_element):
                what = "row" if i == 0 else f"slot {i - 1}"
                raise Inexpressible(f"the new {what} differs from the old in shape or type")

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
            if params["dim"] != self.traced.shape[0]:
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
        if shape == self.traced.shape:
            return True
        if all(size == 1 for size in shape):
            return False
        raise Inexpressible(f"the primitive '{name}' gives shape {shape}, neither a number nor a row")

    def constant(self, number: Any, aval: Any) -> Value:
        number = np.asarray(number, getattr(aval, "dtype", None))
        if number.size != 1:
            raise Inexpressible(f"a constant array of shape {number.shape}; pass numbers as hyper-parameters")
        return constant(number.reshape(()), number.dtype.name)
