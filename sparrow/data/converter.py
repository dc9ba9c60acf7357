"""`Converter`: from the rows of a chunk to a `Block`, with a policy for rows that cannot be used.

`Compiled` does it in a single call for a record batch, a row group or lines of text, without the interpreter's lock;
kinds of columns that it does not know, and rows that need an explanation, are converted by NumPy, the reference.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparrow.data.batch import Batch
from sparrow.data.block import Block, concatenate
from sparrow.data.errors import DataError, Problems
from sparrow.data.features import Feature
from sparrow.data.labels import Label, key_step, keys, number_step, refuse_single, sample_weights
from sparrow.data.layout import BlockLayout, Name, Place
from sparrow.data.sources.base import BadRows, Reader, Rows
from sparrow.kernels import feed

Transform = Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]
Chosen = Callable[[int], npt.NDArray[np.bool_] | None]
Memory = Callable[[int, int], npt.NDArray[np.int32] | None]
"""Returns memory for a number of rows of some words; None where it has none for that number."""
KNOWN: Final = 8192
"""Integers from 0 on whose transforms are looked up: most numbers of text files are small counts."""


class Converter:
    """Conversion of all columns that a model needs, each in one or a few passes over its values."""

    def __init__(
        self,
        features: Sequence[Feature],
        labels: Sequence[str | Label] = (),
        weights: Sequence[str] = (),
        keys: Sequence[str] = (),
        times: Sequence[str] = (),
    ) -> None:
        """Take the columns: inputs, labels (by column or as `Label`), sample weights, and keys that group rows.

        ``times``: columns of integers, which are among the keys of a batch.
        """
        for field, names in (("labels", labels), ("weights", weights), ("keys", keys)):
            if isinstance(names, str):
                raise ValueError(f"{field} must be a list of columns, got the string {names!r}; write [{names!r}]")
        self.weights, self.times = tuple(weights), frozenset(times)
        self.keys = tuple(dict.fromkeys([*keys, *times]))
        self.labels = tuple(label if isinstance(label, Label) else Label(label) for label in labels)
        for feature in features:
            if not isinstance(feature, Feature):
                raise TypeError(f"features must be records such as sparrow.data.IdFeature, got {feature!r}")
        features = self.features = tuple(output for feature in features for output in feature.outputs)
        for kind, names in (
            ("features", [feature.name for feature in features]),
            ("labels", [label.name for label in self.labels]),
        ):
            if twice := [name for name, count in collections.Counter(names).items() if count > 1]:
                raise ValueError(f"two {kind} are called '{twice[0]}'; names must be unique")
        of_features = [(name, functools.partial(own.refuse, name)) for own in features for name in own.columns]
        of_labels = [(label.source_column, label.refuse) for label in self.labels]
        single = functools.partial(refuse_single, "the column")
        self._refusals: list[tuple[str, Callable[[Any], str | None]]] = [*of_features, *of_labels]
        self._refusals += [(name, single) for name in (*weights, *self.keys)]
        self.columns = list(dict.fromkeys(column for column, _ in self._refusals))
        self.layout: BlockLayout | None = None  # of every block; None: not known yet
        self._compiled: Compiled | None = None
        self._kinds: dict[str, Any] | None = None  # the columns that they were made for

    def check(self, reader: Reader) -> None:
        """Refuse columns of a type that cannot be read, files whose types differ, and missing vocabularies."""
        for feature in self.features:
            if feature.table_use is not None:
                feature.table_use.count_rows()  # reads its vocabulary now, not in the middle of a run
        first_file, first = reader.schemas[0]
        for file, schema in reader.schemas:
            for column, kind in schema.items():
                if kind != first[column]:
                    raise DataError(
                        f"the column holds {kind}, but {first[column]} in {first_file}; make the files alike",
                        file,
                        column=column,
                    )
        for column, refuse in self._refusals:
            if why := refuse(first[column]):
                raise DataError(why, first_file, column=column)
        if self._kinds != first:
            self.layout, self._kinds = self._layout_of(first), first
            self._compiled = None if self.layout is None else Compiled.of(self, self.layout, first)

    def _layout_of(self, kinds: Mapping[str, Any]) -> BlockLayout | None:
        schema = pa.schema([(name, kinds[name]) for name in self.columns])
        try:
            batch, _ = self.attempt(pa.RecordBatch.from_pylist([], schema=schema))
        except Exception:  # a custom feature that cannot convert zero rows
            return None
        return BlockLayout.of(batch, [(f.part, f.name) for f in self.features if f.step(kinds) is not None])

    @property
    def decodes(self) -> bool:
        """Whether `decode` can read chunks: every feature and label has a compiled conversion."""
        return self._compiled is not None and not self._compiled.rest

    def decode(
        self,
        encoded: feed.Encoded | feed.EncodedText,
        bad_rows: BadRows,
        memory: Memory | None = None,
        chosen: Chosen | None = None,
    ) -> tuple[Block, int, float] | None:
        """Return the usable rows of a row group or of lines, the number of the others, and the seconds of decoding.

        None: it must be read as an Arrow table, for `convert`. ``memory``: where the rows may go. ``chosen``: returns
        the mask of the rows to take, by their number.
        """
        compiled = self._compiled
        if compiled is None or compiled.rest:
            return None
        words = None if memory is None else memory(encoded.rows, compiled.layout.width)
        made = feed.decode(compiled.steps, encoded, compiled.layout.width, words)
        if made is None:
            return None
        mask = None if chosen is None else chosen(len(made.words))
        usable = _usable(compiled.block(made), made, bad_rows, mask)
        return None if usable is None else (*usable, made.decoding)

    def convert(self, rows: Rows, bad_rows: BadRows) -> tuple[Block, int]:
        """Return the usable rows of a chunk, and the number of the others."""
        try:
            return self._convert(rows, bad_rows)
        except DataError:
            raise
        except Exception:  # a damaged file may raise anything: validate it, only now
            try:
                rows.table.validate(full=True)
            except pa.ArrowInvalid as damage:
                raise DataError(f"cannot be read, it may be damaged: {damage}", rows.file, rows.place(0)) from None
            raise

    def _convert(self, rows: Rows, bad_rows: BadRows) -> tuple[Block, int]:
        parts, skipped, first = [], rows.skipped, 0
        for piece in rows.table.to_batches() or [pa.RecordBatch.from_pylist([], schema=rows.table.schema)]:
            made = None if self._compiled is None else self._compiled.convert(piece, bad_rows)
            if made is None:
                made = self._by_numpy(piece, first, rows, bad_rows)
            parts.append(made[0])
            skipped += made[1]
            first += piece.num_rows
        return concatenate(parts), skipped

    def _by_numpy(self, piece: Any, first: int, rows: Rows, bad_rows: BadRows) -> tuple[Block, int]:
        """Convert by the reference, which explains mistakes. ``first``: the row of the chunk where the piece begins."""
        skipped = 0
        while True:  # a column whose rows differ in length is checked no further: it may hold other mistakes
            batch, problems = self.attempt(piece)
            if problems.rows is None or problems.first is None:
                made = Block.of(batch, self.layout)
                self.layout = self.layout or made.layout
                return made, skipped
            if bad_rows == "error":
                row, column, why = problems.first
                raise DataError(why, rows.file, rows.place(first + row), column)
            skipped += int(problems.rows.sum())
            piece = piece.take(np.flatnonzero(~problems.rows))

    def explained(self, rows: Rows) -> list[tuple[int, str, str, Any]]:
        """Return the rows of a chunk that cannot be used: their numbers, columns, reasons, and values by column."""
        found = []
        for piece in rows.table.combine_chunks().to_batches():
            _, problems = self.attempt(piece)
            for row in [] if problems.rows is None else np.flatnonzero(problems.rows).tolist():
                alone = piece.slice(row, 1)
                first = self.attempt(alone)[1].first
                _, column, why = (0, "", "rows of the chunk do not fit together") if first is None else first
                found.append((row, column, why, alone.to_pylist()[0]))
        return found

    def attempt(self, piece: Any) -> tuple[Batch, Problems]:
        """Return all columns of a record batch, and the rows among them that cannot be used."""
        problems = Problems(piece.num_rows)
        batch = Batch(
            labels={label.name: label.convert(piece, problems) for label in self.labels},
            weights={column: sample_weights(piece, column, problems) for column in self.weights},
            keys={column: keys(piece, column, problems, column in self.times) for column in self.keys},
        )
        for feature in self.features:
            getattr(batch, feature.part)[feature.name] = feature.convert(piece, problems)
        return batch, problems


@dataclasses.dataclass(frozen=True)
class Compiled:
    """Conversion of rows of one schema. Unknown kinds and malformed rows are left to the reference.

    Attributes:
      layout, schema: of the blocks, and of the record batches; strings may come as dictionaries instead.
      steps, outputs: the compiled conversions, and the column of each with the transform of its numbers.
      rest: the features and labels that have no compiled conversion, by column.
      checked: the labels whose losses take a certain range only.
    """

    layout: BlockLayout
    schema: list[str]
    steps: feed.Steps
    outputs: list[tuple[Name, Transform]]
    rest: dict[Name, Feature | Label]
    checked: list[Label]

    @classmethod
    def of(cls, converter: Converter, layout: BlockLayout, kinds: Mapping[str, Any]) -> Compiled | None:
        """Return the conversion of columns of these types; None: no library, or no code for one of them."""
        if feed.library() is None:
            return None
        made: list[tuple[Name, feed.Step | None, Any]] = []
        rest: dict[Name, Feature | Label] = {}
        known: dict[bytes, npt.NDArray[np.float32]] = {}
        for label in converter.labels:
            step = label.step(kinds)
            if step is None:
                rest["labels", label.name] = label
                continue
            if label.checks:  # the labels that all losses take
                most, integers = min(check.most for check in label.checks), any(own.integers for own in label.checks)
                step = dataclasses.replace(step, most=most, are_integers=integers)
            made.append((("labels", label.name), step, None))
        made += [(("weights", name), number_step(name, kinds, is_weight=True), None) for name in converter.weights]
        made += [(("keys", name), key_step(name, kinds, name in converter.times), None) for name in converter.keys]
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
        checked = [label for label in converter.labels if label.checks and ("labels", label.name) not in rest]
        steps = feed.Steps(
            [(cast("feed.Step", step), words[name], name in layout.bags) for name, step, _ in made],
            {name: place for place, name in enumerate(converter.columns)},
        )
        return cls(layout, list(converter.columns), steps, [(name, use) for name, _, use in made], rest, checked)

    def convert(self, piece: Any, bad_rows: BadRows) -> tuple[Block, int] | None:
        """Return the usable rows of a record batch, and the number of others; None: the reference must convert it."""
        if piece.schema.names != self.schema:
            return None
        made = feed.convert(self.steps, piece, self.layout.width)
        if made is None:
            return None
        block, others = self.block(made), dict[Name, Any]()
        problems = Problems(piece.num_rows)
        for column, use in self.rest.items():
            values = use.convert(piece, problems)
            if (place := self.layout.places.get(column)) is not None:
                place.put(block.words, values)
            else:
                others[column] = values
        labels = {label.name: block.column(("labels", label.name)).copy() for label in self.checked}
        refused = (check.refused(labels[own.name], piece).any() for own in self.checked for check in own.checks)
        if problems.rows is not None or any(refused):
            return None
        return _usable(dataclasses.replace(block, others=others), made, bad_rows)

    def block(self, made: feed.Converted) -> Block:
        """Return rows as a block, with all numbers transformed."""
        for (column, transform), later in zip(self.outputs, made.later, strict=True):
            if later is not None and later.values.size:
                self._transform(made.words, self.layout.places[column], transform, later)
        return Block(self.layout, made.words, made.tail)

    @staticmethod
    def _transform(words: npt.NDArray[np.int32], place: Place, transform: Transform, later: feed.Later) -> None:
        dim = place.width or 1
        if later.values.size == len(words) * dim:
            place.view(words)[...] = transform(later.values.reshape(-1, dim))
            return
        made = transform(later.values.reshape(-1, 1)).astype(np.float32).reshape(-1)
        words[later.places // dim, place.word + later.places % dim] = made.view(np.int32)


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
