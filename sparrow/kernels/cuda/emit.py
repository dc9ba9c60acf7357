"""From the graph of a row step to CUDA: a device function that a group of lanes runs on a row in its registers.

A loop runs over the elements of one lane. A reduction takes the lane's part first, then meets in a butterfly over the
group's lanes, which gives all of them the same bits.
"""

from __future__ import annotations

import functools

from sparrow.kernels.translate.graph import build
from sparrow.kernels.translate.passes import Passes
from sparrow.kernels.types import RowStep

REDUCTIONS = {
    "+": ("{type}(0)", "Sum()"),
    "*": ("{type}(1)", "Product()"),
    "max": ("Ends<{type}>::lowest()", "Maximum()"),
    "min": ("Ends<{type}>::highest()", "Minimum()"),
}
"""The start of each reduction, and the function that joins two parts."""


@functools.lru_cache(maxsize=1024)
def row_step(step: RowStep) -> str:
    """Return the device function ``row_step`` of ``step``; raise `Inexpressible` where it cannot be written."""
    return _Writer(build(step)).function(step)


@functools.lru_cache(maxsize=1024)
def by_element(step: RowStep) -> bool:
    """Whether ``step`` works on every column for itself: no sum over the row, no number per row."""
    values = Passes(build(step)).values
    return all(step.slot_shapes) and not any(value.reduction for value in values)


class _Writer(Passes):
    def function(self, step: RowStep) -> str:
        per_element = [i for i, shape in enumerate(step.slot_shapes) if shape]
        per_row = [i for i, shape in enumerate(step.slot_shapes) if not shape]
        lines = ["constexpr int32_t dim = STRIDE;", "(void)dim, (void)seed, (void)index;"]
        lines += [f"float (&slot{i})[E] = e[{k}];" for k, i in enumerate(per_element)]
        lines += [f"const float slot{i} = r[{k}];" for k, i in enumerate(per_row)]
        lines += [f"const float scalar{i} = scalars[{i}];" for i in range(len(step.scalars))]
        lines += [f"{value.c_type} kept{buffer}[E];" for value, buffer in self.kept.items()]
        lines += self.statements()
        for i, value in self.slots:
            if not value.per_element:
                lines.append(f"r[{per_row.index(i)}] = {self.text(value)};")
        body = "\n".join(f"  {line}" for line in lines)
        return (
            f"{_picks('SLOT_E', per_element)}{_picks('SLOT_R', per_row)}"
            "DEVICE void row_step(const Group& group, Row (&row)[E], const float (&grad)[E], "
            "float (&e)[NE > 0 ? NE : 1][E],\n    float (&r)[NR > 0 ? NR : 1], const float (&scalars)[NS], "
            f"uint32_t seed, int32_t index) {{\n{body}\n}}\n"
        )

    def loop(self, number: int) -> list[str]:
        body = self.vectors(number)
        before, after = [], []
        for value in self.reductions(number):
            name, operand = self.names[value], self.text(value.operands[0], number)
            start, join = REDUCTIONS[str(value.reduction)]
            before.append(f"{value.c_type} {name}_part = {start.format(type=value.c_type)};")
            body.append(f"if (group.inside(i)) {name}_part = {join}({name}_part, {value.c_type}({operand}));")
            after.append(f"const {value.c_type} {name} = group.combine({name}_part, {join});")
        if number == self.last:
            body += self.stores()
        if not body:
            return []
        if any("(column)" in line for line in body):
            body = ["const int32_t column = group.column(i);", *body]
        return [
            *before,
            "#pragma unroll",
            "for (int i = 0; i < E; ++i) {",
            *(f"  {line}" for line in body),
            "}",
            *after,
        ]


def _picks(name: str, slots: list[int]) -> str:
    """Return a function from the place among slots of one layout to the slot's number."""
    cases = "".join(f"s == {k} ? {i} : " for k, i in enumerate(slots))
    return f"constexpr int {name}(int s) {{ return {cases}0; }}\n"
