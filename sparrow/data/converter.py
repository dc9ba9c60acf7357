"""`Converter`: from the rows of a chunk to a `Block`, with a policy for rows that cannot be used."""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sparrow.data.batch import Batch
from sparrow.data.block import Block, concatenate
from sparrow.data.compiled import Chosen, Compiled
from sparrow.data.errors import DataError, Problems
from sparrow.data.features import Feature
from sparrow.data.labels import Label, keys, refuse_single, sample_weights
from sparrow.data.layout import Layout
from sparrow.data.rooms import Part
from sparrow.data.sources.base import BadRows, Reader, Rows
from sparrow.kernels import feed


class Converter:
    """Conversion of all columns that a model needs, each in one or a few passes over its values."""

    def __init__(
        self, features: Sequence[Feature], labels: Sequence[Label], weights: Sequence[str], keys: Sequence[str]
    ) -> None:
        self.features, self.labels, self.weights, self.keys = (
            tuple(features),
            tuple(labels),
            tuple(weights),
            tuple(keys),
        )
        for feature in features:
            if not isinstance(feature, Feature):
                raise TypeError(f"features must be records such as sparrow.data.IdFeature, got {feature!r}")
        for kind, names in (
            ("features", [feature.name for feature in features]),
            ("labels", [label.name for label in labels]),
        ):
            if twice := [name for name, count in collections.Counter(names).items() if count > 1]:
                raise ValueError(f"two {kind} are called '{twice[0]}'; names must be unique")
        users = [(column, feature.refuse) for feature in features for column in feature.columns]
        single = [*weights, *keys]
        of_labels = [label.source_column for label in labels]
        self.columns: list[str] = list(dict.fromkeys([*(column for column, _ in users), *of_labels, *single]))
        self._users, self._single = users, single
        self.layout: Layout | None = None  # of every block; None: not known yet
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
        for column, refuse in self._users:
            if why := refuse(column, first[column]):
                raise DataError(why, first_file, column=column)
        for label in self.labels:
            if why := label.refuse(first[label.source_column]):
                raise DataError(why, first_file, column=label.source_column)
        for column in self._single:
            if why := refuse_single("the column", first[column]):
                raise DataError(why, first_file, column=column)
        if self._kinds != first:
            self.layout, self._kinds = self._layout_of(first), first
            self._compiled = None if self.layout is None else Compiled.of(self, self.layout, first)

    def _layout_of(self, kinds: Mapping[str, Any]) -> Layout | None:
        schema = pa.schema([(name, kinds[name]) for name in self.columns])
        try:
            batch, _ = self.attempt(pa.RecordBatch.from_pylist([], schema=schema))
        except Exception:  # a custom feature that cannot convert zero rows
            return None
        return Layout.of(batch, [(f.part, f.name) for f in self.features if f.step(kinds) is not None])

    @property
    def decodes(self) -> bool:
        """Whether `decode` can read chunks: every feature and label has a compiled conversion."""
        return self._compiled is not None and not self._compiled.rest

    def decode(
        self,
        encoded: feed.Encoded | feed.EncodedText,
        bad_rows: BadRows,
        part: Part | None = None,
        chosen: Chosen | None = None,
    ) -> tuple[Block, int, float] | None:
        """Return the usable rows of a row group or of lines, the number of the others, and the seconds of decoding.

        None: it must be read as an Arrow table, for `convert`. ``part``: where the rows may go. ``chosen``: returns
        the mask of the rows to take, by their number.
        """
        return None if self._compiled is None else self._compiled.decode(encoded, bad_rows, part, chosen)

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
        for piece in rows.table.to_batches() or [_empty(rows.table.schema)]:
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
                return self._block(batch), skipped
            if bad_rows == "error":
                row, column, why = problems.first
                raise DataError(why, rows.file, rows.place(first + row), column)
            skipped += int(problems.rows.sum())
            piece = piece.take(np.flatnonzero(~problems.rows))

    def _block(self, batch: Batch) -> Block:
        made = Block.of(batch, self.layout)
        self.layout = self.layout or made.layout
        return made

    def attempt(self, piece: Any) -> tuple[Batch, Problems]:
        """Return all columns of a record batch, and the rows among them that cannot be used."""
        problems = Problems(piece.num_rows)
        batch = Batch(
            labels={label.name: label.convert(piece, problems) for label in self.labels},
            weights={column: sample_weights(piece, column, problems) for column in self.weights},
            keys={column: keys(piece, column, problems) for column in self.keys},
        )
        for feature in self.features:
            getattr(batch, feature.part)[feature.name] = feature.convert(piece, problems)
        return batch, problems


def _empty(schema: Any) -> Any:
    return pa.RecordBatch.from_pylist([], schema=schema)
