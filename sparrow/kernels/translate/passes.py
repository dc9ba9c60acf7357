"""A row step as passes over the row, cut where a sum over the row must be known first. Writers of code build on it."""

from __future__ import annotations

from sparrow.kernels.translate.graph import Graph
from sparrow.kernels.translate.values import Inexpressible, Value, in_order


class Passes:
    """Which pass computes which value of a graph, and the text that all writers share.

    All writes are in the last pass, so that every pass reads the row as it was.

    Attributes:
      slots: number and new value of each slot that changes.
      values: everything to compute, operands first.
      level: the number of passes that must have ended before a value is known.
      last: the number of the last pass.
      passes: the pass that computes each vector.
      names: the variable of each value.
      kept: the vectors that a later pass reads, numbered.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.slots = [(i, value) for i, value in enumerate(graph.slots) if i not in graph.unchanged]
        self.outputs = [graph.row, *(value for _, value in self.slots)]
        self.values = in_order(self.outputs)
        self.level = self._levels()
        self.last = max(
            [self.level[value] for value in self.values if value.per_element]
            + [self.level[value] - 1 for value in self.values if value.reduction]
        )
        self.passes = self._passes()
        self.names = {value: f"v{i}" for i, value in enumerate(self.values) if not value.leaf}
        self.kept = self._kept()

    def _levels(self) -> dict[Value, int]:
        level: dict[Value, int] = {}
        for value in self.values:
            level[value] = max((level[operand] for operand in value.operands), default=0) + bool(value.reduction)
        return level

    def _passes(self) -> dict[Value, int]:
        """Return the latest pass that serves all users of a vector, so that few are kept."""
        passes = {value: self.last for value in self.values if value.per_element}
        for value in reversed(self.values):
            for operand in value.operands:
                if operand.per_element:
                    user = self.level[value] - 1 if value.reduction else passes[value]
                    passes[operand] = min(passes[operand], user)
        return passes

    def _kept(self) -> dict[Value, int]:
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

    def reductions(self, number: int) -> list[Value]:
        """Return the sums and maxima that pass ``number`` takes."""
        return [value for value in self.values if value.reduction and self.level[value] - 1 == number]

    def scalars(self, level: int) -> list[str]:
        """Return the numbers per row that are known before pass ``level``."""
        return [
            f"const {value.c_type} {self.names[value]} = {self.expression(value)};"
            for value in self.values
            if not (value.per_element or value.leaf or value.reduction) and self.level[value] == level
        ]

    def vectors(self, number: int) -> list[str]:
        """Return the code of pass ``number`` for element i."""
        body: list[str] = []
        for value in self.values:
            if value.per_element and not value.leaf and self.passes[value] == number:
                body.append(f"const {value.c_type} {self.names[value]} = {self.expression(value, number)};")
                if value in self.kept:
                    body.append(f"kept{self.kept[value]}[i] = {self.names[value]};")
        return body

    def stores(self) -> list[str]:
        """Return the writes of the last pass for element i."""
        stores = [] if self.graph.row.leaf and self.text(self.graph.row) == "row[i]" else [("row", self.graph.row)]
        stores += [(f"slot{i}", value) for i, value in self.slots if value.per_element]
        return [f"{name}[i] = {self.text(value, self.last)};" for name, value in stores]

    def expression(self, value: Value, number: int = 0) -> str:
        """How pass ``number`` computes ``value``."""
        return value.write(*(self.text(operand, number) for operand in value.operands))

    def text(self, value: Value, number: int = 0) -> str:
        """How pass ``number`` reads ``value``."""
        if value.leaf:
            return value.write()
        if value in self.kept and self.passes[value] < number:
            flag = " != 0" if value.dtype == "bool" else ""
            return f"(kept{self.kept[value]}[i]{flag})"
        return self.names[value]

    def statements(self) -> list[str]:
        """All passes in order, then the numbers that no pass reads."""
        lines: list[str] = []
        for number in range(self.last + 1):
            lines += self.scalars(number) + self.loop(number)
        for number in range(self.last + 1, max(self.level.values()) + 1):
            lines += self.scalars(number)
        return lines

    def loop(self, number: int) -> list[str]:
        """Pass ``number`` over the row; each writer has its own."""
        raise NotImplementedError
