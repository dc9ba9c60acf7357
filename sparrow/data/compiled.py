"""`Compiled`: a converter's work on one record batch or row group in a single call, without the interpreter's lock."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import numpy.typing as npt

from sparrow.data.block import Block
from sparrow.data.errors import DataError, Problems
from sparrow.data.features import Feature
from sparrow.data.label_checks import CheckedLabel
from sparrow.data.labels import Label, key_step, number_step
from sparrow.data.layout import Layout, Name
from sparrow.data.rooms import Part
from sparrow.data.sources.base import BadRows
from sparrow.kernels import feed

if TYPE_CHECKING:
    from sparrow.data.converter import Converter


Transform = Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]
Chosen = Callable[[int], npt.NDArray[np.bool_] | None]
KNOWN: Final = 8192
"""Integers from 0 on whose transforms are looked up: most numbers of text files are small counts."""


@dataclasses.dataclass(frozen=True)
class Output:
    """A step's result: its column, and the transform of its numbers, where it has one."""

    column: Name
    transform: Transform


@dataclasses.dataclass(frozen=True)
class Compiled:
    """Conversion of rows of one schema. Unknown kinds and malformed rows are left to the reference.

    Attributes:
      layout: the layout of the blocks.
      schema: the schema of the record batches; strings may come as dictionaries instead.
      steps: the compiled conversions.
      outputs: the output of each step.
      rest: the features and labels that have no compiled conversion, by column.
      checked: the labels whose losses take a certain range only.
    """

    layout: Layout
    schema: list[str]
    steps: feed.Plan
    outputs: list[Output]
    rest: dict[Name, Feature | Label]
    checked: list[CheckedLabel]

    @classmethod
    def of(cls, converter: Converter, layout: Layout, kinds: Mapping[str, Any]) -> Compiled | None:
        """Return the plan for columns of these types; None: the library is missing, or has no code for one of them."""
        if feed.library() is None:
            return None
        made: list[tuple[Name, feed.Step | None, Any]] = []
        rest: dict[Name, Feature | Label] = {}
        known: dict[bytes, npt.NDArray[np.float32]] = {}
        for label in converter.labels:
            step = label.step(kinds)
            if step is None:
                rest["labels", label.name] = label
            else:
                made.append((("labels", label.name), with_range(step, label), None))
        made += [(("weights", name), number_step(name, kinds, is_weight=True), None) for name in converter.weights]
        made += [(("keys", name), key_step(name, kinds), None) for name in converter.keys]
        for feature in converter.features:
            step = feature.step(kinds)
            if step is None:
                rest[feature.part, feature.name] = feature
            else:
                step = with_known(step, feature.transform, known)
                place = layout.places.get((feature.part, feature.name))
                step = step if place is None or place.there is None else dataclasses.replace(step, there=place.there)
                made.append(((feature.part, feature.name), step, feature.transform))
        if any(step is None for _, step, _ in made):
            return None
        words = {name: place.word for name, place in layout.places.items()}
        words |= {name: bag.word for name, bag in layout.bags.items()}
        # The others are checked as they are converted.
        checked = [
            label
            for label in converter.labels
            if isinstance(label, CheckedLabel) and ("labels", label.name) not in rest
        ]
        plan = feed.Plan(
            [(cast("feed.Step", step), words[name], name in layout.bags) for name, step, _ in made],
            {name: place for place, name in enumerate(converter.columns)},
        )
        return cls(layout, list(converter.columns), plan, [Output(name, use) for name, _, use in made], rest, checked)

    def convert(self, piece: Any, bad_rows: BadRows) -> tuple[Block, int] | None:
        """Return the usable rows of a record batch, and the number of others; None: the reference must convert it."""
        library = feed.library()
        if library is None or piece.schema.names != self.schema:
            return None
        made = feed.convert(library, self.steps, piece, self.layout.width)
        if made is None:
            return None
        block = self._block(made)
        problems = Problems(piece.num_rows)
        for column, use in self.rest.items():
            block = _with(block, column, use.convert(piece, problems))
        if problems.rows is not None or any(self._refused(label, block, piece) for label in self.checked):
            return None
        return _usable(block, made, bad_rows)

    def decode(
        self,
        encoded: feed.Encoded | feed.EncodedText,
        bad_rows: BadRows,
        part: Part | None = None,
        chosen: Chosen | None = None,
    ) -> tuple[Block, int, float] | None:
        """Return the usable rows of a row group or of lines, the number of others, and the seconds of decoding.

        None: Arrow must read them. ``part``: where the rows go, if they are as many as it has room for. ``chosen``:
        returns the mask of the rows to take, by their number.
        """
        library = feed.library()
        if library is None or self.rest:
            return None
        has_room = part is not None and part.end - part.begin == encoded.rows
        words = part.words(self.layout.width) if part is not None and has_room else None
        made = feed.decode(library, self.steps, encoded, self.layout.width, words)
        if made is None:
            return None
        mask = None if chosen is None else chosen(len(made.words))
        usable = _usable(self._block(made), made, bad_rows, mask)
        return None if usable is None else (*usable, made.decoding)

    def _block(self, made: feed.Converted) -> Block:
        for output, later in zip(self.outputs, made.later, strict=True):
            if later is not None and later.values.size:
                self._transform(made.words, output, later)
        return Block(self.layout, made.words, made.tail)

    def _transform(self, words: npt.NDArray[np.int32], output: Output, later: feed.Later) -> None:
        place = self.layout.places[output.column]
        dim = place.width or 1
        if later.values.size == len(words) * dim:
            place.view(words)[...] = output.transform(later.values.reshape(-1, dim))
            return
        made = output.transform(later.values.reshape(-1, 1)).astype(np.float32).reshape(-1)
        words[later.places // dim, place.word + later.places % dim] = made.view(np.int32)

    def _refused(self, label: CheckedLabel, block: Block, piece: Any) -> bool:
        labels = block.column(("labels", label.name)).copy()
        return any(check.refused(labels, piece).any() for check in label.checks)


def _usable(
    block: Block, made: feed.Converted, bad_rows: BadRows, chosen: npt.NDArray[np.bool_] | None = None
) -> tuple[Block, int] | None:
    """Return the chosen rows that are good, and the number of bad ones; None: the reference must explain one."""
    if chosen is None and made.bad is None:
        return block, 0
    chosen = np.ones(len(block), np.bool_) if chosen is None else chosen
    bad = np.zeros(len(block), np.bool_) if made.bad is None else made.bad & chosen
    count = int(bad.sum())
    return None if count and bad_rows == "error" else (block.take(np.flatnonzero(chosen & ~bad)), count)


def with_range(step: feed.Step, label: Label) -> feed.Step:
    """Return the step with the labels that all losses of a label take."""
    if not isinstance(label, CheckedLabel) or not label.checks:
        return step
    most, are_integers = min(check.most for check in label.checks), any(check.integers for check in label.checks)
    return dataclasses.replace(step, most=most, are_integers=are_integers)


def with_known(step: feed.Step, transform: Transform, known: dict[bytes, npt.NDArray[np.float32]]) -> feed.Step:
    """Return the step with the transforms of small integers, if it has a transform. Equal ones are ``known`` once."""
    if not step.is_transformed:
        return step
    x = np.concatenate([[step.fill], np.arange(KNOWN, dtype=np.float64)])
    try:
        with np.errstate(all="ignore"):
            made = transform(x.reshape(-1, 1)).astype(np.float32).reshape(-1)
    except DataError:  # an expression that is not finite for one of them
        return step
    return dataclasses.replace(step, known=known.setdefault(made.tobytes(), made))


def _with(block: Block, column: Name, values: Any) -> Block:
    """Return the block with the values of one more column."""
    place = block.layout.places.get(column)
    if place is None:
        return dataclasses.replace(block, others={**block.others, column: values})
    place.put(block.words, values)
    return block
