"""From the graph of a row step to C++: loops over the row, cut where a sum over the row must be known first."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from sparrow.kernels.native.graph import Graph
from sparrow.kernels.native.values import Inexpressible, Value, in_order

PARTS = {"+": ("0", "sum_parts"), "*": ("1", "product_parts")}
"""What a sum and a product begin with, and what puts their parts together. A maximum is taken element by element."""


@dataclasses.dataclass(frozen=True)
class RowCode:
    """The body of a row step's C++ function.

    Attributes:
      body: the statements.
      buffers: how many vectors the passes leave for one another.
    """

    body: str
    buffers: int


def emit(graph: Graph, row_type: str) -> RowCode:
    """The C++ of ``graph``. All writes are in the last pass, so that every pass reads the row as it was."""
    return _Emitter(graph).code(row_type)


class _Emitter:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.slots = [(i, value) for i, value in enumerate(graph.slots) if i not in graph.unchanged]
        self.outputs = [graph.row, *(value for _, value in self.slots)]
        self.values = in_order(self.outputs)
        self.level = self._levels()
        self.last = max(
            [self.level[value] for value in self.values if value.per_element]
            + [self.level[value] - 1 for value in self.values if value.reduction],
        )
        self.passes = self._passes()
        self.names = {value: f"v{i}" for i, value in enumerate(self.values) if not value.leaf}
        self.kept = self._kept()

    def _levels(self) -> dict[Value, int]:
        """How many passes must have ended before a value can be known."""
        level: dict[Value, int] = {}
        for value in self.values:
            level[value] = max((level[operand] for operand in value.operands), default=0) + bool(value.reduction)
        return level

    def _passes(self) -> dict[Value, int]:
        """The pass that computes each vector: the latest that serves all who use it, so that few are kept."""
        passes = {value: self.last for value in self.values if value.per_element}
        for value in reversed(self.values):
            for operand in value.operands:
                if operand.per_element:
                    user = self.level[value] - 1 if value.reduction else passes[value]
                    passes[operand] = min(passes[operand], user)
        return passes

    def _kept(self) -> dict[Value, int]:
        """The vectors that a later pass reads, and their buffers."""
        kept: dict[Value, int] = {}
        for value in self.values:
            for operand in value.operands:
                both = value.per_element and operand.per_element and not operand.leaf
                if both and self.passes[operand] < self.passes[value]:
                    kept.setdefault(operand, len(kept))
        for output in self.outputs:
            if output.per_element and not output.leaf and self.passes[output] < self.last:
                kept.setdefault(output, len(kept))
        for value in kept:
            if value.dtype in ("float64", "int64", "uint64"):
                raise Inexpressible(f"a row of {value.dtype} is needed after a sum over the row; use 32 bits")
        return kept

    def code(self, row_type: str) -> RowCode:
        lines = [*self._inputs(row_type), *self._buffers()]
        for number in range(self.last + 1):
            lines += self._scalars(number)
            lines += self._loop(number)
        for number in range(self.last + 1, max(self.level.values()) + 1):
            lines += self._scalars(number)
        for i, value in self.slots:
            if not value.per_element:
                lines.append(f"slot{i}_[0] = {self._text(value)};")
        return RowCode("\n".join(f"  {line}" for line in lines), len(self.kept))

    def _inputs(self, row_type: str) -> list[str]:
        """The inputs as local names: a number held in a local cannot be changed by a write to the row."""
        lines = [
            "const int32_t dim = a.dim;",
            f"{row_type}* __restrict row = static_cast<{row_type}*>(a.row);",
            "const float* __restrict grad = a.grad;",
        ]
        for i, value in enumerate(self.graph.slots):
            lines.append(f"float* __restrict slot{i}{'' if value.per_element else '_'} = a.slots[{i}];")
            if not value.per_element:
                lines.append(f"const float slot{i} = slot{i}_[0];")
        used = {value.write() for value in self.values if value.leaf}
        lines += [f"const float {name} = a.scalars[{name[6:]}];" for name in sorted(used) if name.startswith("scalar")]
        lines += ["const uint32_t seed = a.seed;"] * ("seed" in used)
        lines += ["const int32_t index = a.index;"] * ("index" in used)
        return lines

    def _buffers(self) -> list[str]:
        """Where vectors stay between passes. A flag is kept as wide as a float, because that vectorises best."""
        types = {value: "uint32_t" if value.dtype == "bool" else value.c_type for value in self.kept}
        return [
            f"{types[value]}* __restrict kept{buffer} = "
            f"reinterpret_cast<{types[value]}*>(a.scratch + {buffer} * scratch_stride(dim));"
            for value, buffer in self.kept.items()
        ]

    def _scalars(self, level: int) -> list[str]:
        """The numbers per row that are known before pass ``level``."""
        return [
            f"const {value.c_type} {self.names[value]} = {self._expression(value)};"
            for value in self.values
            if not (value.per_element or value.leaf or value.reduction) and self.level[value] == level
        ]

    def _loop(self, number: int) -> list[str]:
        """Pass ``number`` over the row.

        A sum has `kParts` parts, each of every kParts-th element: these are independent of one another, and the same on
        every processor.
        """
        reductions = [v for v in self.values if v.reduction and self.level[v] - 1 == number]
        body: list[str] = []
        for value in self.values:
            if value.per_element and not value.leaf and self.passes[value] == number:
                body.append(f"const {value.c_type} {self.names[value]} = {self._expression(value, number)};")
                if value in self.kept:
                    body.append(f"kept{self.kept[value]}[i] = {self.names[value]};")
        before, after = [], []
        for value in reductions:
            name, operand = self.names[value], self._text(value.operands[0], number)
            if value.reduction in PARTS:
                start, together = PARTS[value.reduction]
                before.append(f"{value.c_type} {name}_parts[kParts];")
                before.append(f"for (int64_t k = 0; k < kParts; ++k) {name}_parts[k] = {start};")
                body.append(f"{name}_parts[k] {value.reduction}= {operand};")
                after.append(f"const {value.c_type} {name} = {together}({name}_parts);")
            else:
                before.append(f"{value.c_type} {name} = 0;")
                body.append(f"{name} = i == 0 ? {operand} : {value.reduction}imum({name}, {operand});")
        if number == self.last:
            body += self._stores()
        if not body:
            return []
        return [*before, *_over_elements(body, reductions), *after]

    def _stores(self) -> list[str]:
        stores = [] if self.graph.row.leaf and self._text(self.graph.row) == "row[i]" else [("row", self.graph.row)]
        stores += [(f"slot{i}", value) for i, value in self.slots if value.per_element]
        return [f"{name}[i] = {self._text(value, self.last)};" for name, value in stores]

    def _expression(self, value: Value, number: int = 0) -> str:
        return value.write(*(self._text(operand, number) for operand in value.operands))

    def _text(self, value: Value, number: int = 0) -> str:
        """How pass ``number`` reads ``value``."""
        if value.leaf:
            return value.write()
        if value in self.kept and self.passes[value] < number:
            flag = " != 0" if value.dtype == "bool" else ""
            return f"(kept{self.kept[value]}[i]{flag})"
        return self.names[value]


def _over_elements(body: list[str], reductions: list[Value]) -> list[str]:
    """The loops that run ``body`` for every element i."""
    if any(value.reduction not in PARTS for value in reductions):  # in order: a maximum must not lose a NaN
        return ["for (int64_t i = 0, k = 0; i < dim; ++i) {", *_indent(body), "}"]  # all in the first part
    if not reductions:
        return ["#pragma omp simd", "for (int32_t i = 0; i < dim; ++i) {", *_indent(body), "}"]
    body = ["const int64_t i = from + k;", *body]
    loops = [
        "int64_t from = 0;",
        "for (; from + kParts <= dim; from += kParts) {",
        *_indent(["#pragma omp simd", "for (int64_t k = 0; k < kParts; ++k) {", *_indent(body), "}"]),
        "}",
        "for (int64_t k = 0; from + k < dim; ++k) {",
        *_indent(body),
        "}",
    ]
    return ["{", *_indent(loops), "}"]


def _indent(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" for line in lines]
