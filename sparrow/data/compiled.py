"""`Compiled`: a converter's work on one record batch in a single call, without the interpreter's lock."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparrow.data.block import Block, Layout, Name
from sparrow.data.errors import Problems
from sparrow.data.features import Feature
from sparrow.data.label_checks import CheckedLabel
from sparrow.data.labels import key_step, number_step
from sparrow.data.sources.base import BadRows
from sparrow.embedding import Ragged
from sparrow.kernels import feed

if TYPE_CHECKING:
    from sparrow.data.converter import Converter


@dataclasses.dataclass(frozen=True)
class Output:
    """A step's result: its column, and the transform of its numbers, where it has one."""

    column: Name
    transform: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]


@dataclasses.dataclass(frozen=True)
class Compiled:
    """Conversion of record batches of one schema. Unknown kinds and malformed rows are left to the reference.

    Attributes:
      layout: the layout of the blocks.
      schema: the schema of the record batches; strings may come as dictionaries instead.
      steps: the compiled conversions.
      outputs: the output of each step.
      rest: the features that have no compiled conversion.
      checked: the labels whose losses take a certain range only.
    """

    layout: Layout
    schema: list[str]
    steps: feed.Plan
    outputs: list[Output]
    rest: list[Feature]
    checked: list[CheckedLabel]

    @classmethod
    def of(cls, converter: Converter, kinds: Mapping[str, Any]) -> Compiled | None:
        """Return the plan for columns of these types; None: the library is missing."""
        if feed.library() is None:
            return None
        schema = pa.schema([(name, kinds[name]) for name in converter.columns])
        try:
            layout = Layout.of(converter.attempt(pa.RecordBatch.from_pylist([], schema=schema))[0])
        except Exception:  # a custom feature that cannot convert zero rows
            return None
        made: list[tuple[Name, feed.Step | None, Any]] = []
        made += [(("labels", label.name), label.step(kinds), None) for label in converter.labels]
        made += [(("weights", name), number_step(name, kinds, is_weight=True), None) for name in converter.weights]
        made += [(("keys", name), key_step(name, kinds), None) for name in converter.keys]
        rest = []
        for feature in converter.features:
            step = feature.step(kinds)
            if step is None:
                rest.append(feature)
            else:
                made.append(((feature.part, feature.name), step, feature.transform))
        if any(step is None for _, step, _ in made):
            return None
        places = layout.places
        checked = [label for label in converter.labels if isinstance(label, CheckedLabel)]
        plan = feed.Plan(
            [(cast("feed.Step", step), places[name].word if name in places else -1) for name, step, _ in made],
            {name: place for place, name in enumerate(converter.columns)},
        )
        return cls(layout, list(converter.columns), plan, [Output(name, use) for name, _, use in made], rest, checked)

    def convert(self, piece: Any, bad_rows: BadRows) -> tuple[Block, int] | None:
        """Return the usable rows of a record batch, and the number of others; None: the reference must convert it."""
        library = feed.library()
        if library is None or piece.schema.names != self.schema:
            return None
        words = np.empty((piece.num_rows, self.layout.width), np.int32)
        words[:, self.layout.used :] = 0
        made = feed.convert(library, self.steps, piece, words)
        if made is None:
            return None
        others: dict[Name, Any] = {}
        for output, bags, numbers in zip(self.outputs, made.bags, made.numbers, strict=True):
            if bags is not None:
                others[output.column] = Ragged(*bags)
            elif numbers is not None:
                word = self.layout.places[output.column].word
                words[:, word : word + numbers.shape[1]].view(np.float32)[...] = output.transform(numbers)
        block = Block(self.layout, words, others, len(words))
        problems = Problems(piece.num_rows)
        for feature in self.rest:
            block = _with(block, (feature.part, feature.name), feature.convert(piece, problems))
        if problems.rows is not None or any(self._refused(label, block, piece) for label in self.checked):
            return None
        if made.bad is None:
            return block, 0
        return None if bad_rows == "error" else (block.take(np.flatnonzero(~made.bad)), int(made.bad.sum()))

    def _refused(self, label: CheckedLabel, block: Block, piece: Any) -> bool:
        labels = block.column(("labels", label.name)).copy()
        return any(check.refused(labels, piece).any() for check in label.checks)


def _with(block: Block, column: Name, values: Any) -> Block:
    """Return the block with the values of one more column."""
    place = block.layout.places.get(column)
    if place is None:
        return dataclasses.replace(block, others={**block.others, column: values})
    block.column(column)[...] = values
    return block
