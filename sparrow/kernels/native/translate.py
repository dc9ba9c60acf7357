"""A rule's equation as C++: trace the row step, build its graph, write its loops."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Iterable

import jax

from sparrow.kernels.native import compiler
from sparrow.kernels.translate.graph import build
from sparrow.kernels.translate.passes import Passes
from sparrow.kernels.translate.values import C_TYPES, Value
from sparrow.kernels.types import RowStep


@dataclasses.dataclass(frozen=True)
class RowFunction:
    """A row step in C++.

    Attributes:
      symbol: the function's name, with a hash of its code: equal names are equal code.
      key: the same hash as a number.
      source: the function.
      buffers: the number of its scratch vectors.
    """

    symbol: str
    key: int
    source: str
    buffers: int


@functools.lru_cache(maxsize=1024)
def translate(step: RowStep) -> RowFunction:
    """``step`` in C++; raises `Inexpressible` where that cannot be.

    One code serves every dim, unless the rule computes something else from the length than a mean: then it is for
    its own dim alone.

    >>> from sparrow.rules import SGD
    >>> sgd = SGD()
    >>> step = RowStep(sgd.without_numbers(), slots=(), scalars=tuple(sgd.hyper(0)), dim=8, dtype="float32")
    >>> print(translate(step).source)
    extern "C" ...
      for (int32_t i = 0; i < dim; ++i) {
        const float v3 = (scalar0 * grad[i]);
        const float v4 = (row[i] - v3);
        row[i] = v4;
      }
    }
    <BLANKLINE>
    """
    try:
        graph = build(step, *jax.export.symbolic_shape("dim"))
    except Exception:  # a rule may fail for a symbolic length; its true errors come below
        graph = build(step)
    writer = _Writer(graph)
    body = writer.code(C_TYPES[step.dtype])
    digest = hashlib.sha256(f"{compiler.code('row_step.h', 'operations.h', 'half.h')}\n{body}".encode()).digest()
    symbol = f"sparrow_row_step_{digest.hex()[:16]}"
    source = (
        f'extern "C" __attribute__((visibility("default"))) void {symbol}(const sparrow::RowArguments& a) {{\n'
        f"  using namespace sparrow;\n{body}\n}}\n"
    )
    return RowFunction(symbol, int.from_bytes(digest[:8], "big", signed=True), source, len(writer.kept))


PARTS = {"+": ("0", "sum_parts"), "*": ("1", "product_parts")}
"""The start of a sum and of a product, and the function that joins their parts. A maximum goes element by element."""


class _Writer(Passes):
    def code(self, row_type: str) -> str:
        lines = [*self._inputs(row_type), *self._buffers(), *self.statements()]
        for i, value in self.slots:
            if not value.per_element:
                lines.append(f"slot{i}_[0] = {self.text(value)};")
        return "\n".join(f"  {line}" for line in lines)

    def _inputs(self, row_type: str) -> list[str]:
        """Return the inputs as local names: a number held in a local cannot be changed by a write to the row."""
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
        """Where vectors stay between passes. A flag is kept as wide as a float, because that vectorizes best."""
        types = {value: "uint32_t" if value.dtype == "bool" else value.c_type for value in self.kept}
        return [
            f"{types[value]}* __restrict kept{buffer} = "
            f"reinterpret_cast<{types[value]}*>(a.scratch + {buffer} * scratch_stride(dim));"
            for value, buffer in self.kept.items()
        ]

    def loop(self, number: int) -> list[str]:
        """Pass ``number`` over the row.

        A sum has `kParts` parts, each of every kParts-th element: these are independent of one another, and the same on
        every processor.
        """
        reductions = self.reductions(number)
        body = self.vectors(number)
        before, after = [], []
        for value in reductions:
            name, operand = self.names[value], self.text(value.operands[0], number)
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
            body += self.stores()
        if not body:
            return []
        if any("(column)" in line for line in body):
            body = ["const int64_t column = i;", *body]
        return [*before, *_over_elements(body, reductions), *after]


def _over_elements(body: list[str], reductions: list[Value]) -> list[str]:
    """Return the loops that run ``body`` for every element i."""
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
