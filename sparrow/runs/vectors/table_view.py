"""`TableView`: the rows of a trained table, with the ids that they belong to, and the nearest ones of each other."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparrow import fields
from sparrow.checkpoint import Key, rows_of
from sparrow.data import DataError, Feature, Problems, Vocabulary, shown
from sparrow.embedding import Ragged, TableSpec
from sparrow.kernels.search import best_rows
from sparrow.runs.step.program import Program, TrainState

Array = npt.NDArray[Any]
SHOWN: Final = 5
"""Rows of a table that its view shows."""


class TableView:
    """A table of a run: ``len(table)``, ``table.to_numpy()``, ``table.to_arrow()``, ``table[ids]``.

    Attributes:
      name: its name.
      spec: its size, dtype, rule and combiner.
      features: the features that look ids up in it.
    """

    def __init__(self, program: Program, state: TrainState, name: str) -> None:
        self.name = name
        self.spec: TableSpec = program.embedder.tables[name]
        uses = {feature.name: feature.table_use for feature in program.assembly.features}
        self.features: tuple[Feature, ...] = tuple(
            feature for feature in program.assembly.features if (use := uses[feature.name]) and use.table == name
        )
        self._program, self._state = program, state

    def __len__(self) -> int:
        return self.spec.vocabulary_size

    def feature_named(self, name: str) -> str | None:
        """Return ``name`` where a feature has it; else None, for the first feature."""
        return name if any(feature.name == name for feature in self.features) else None

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and dim."""
        return len(self), self.spec.embedding_dim

    @property
    def _rows(self) -> Any:
        return rows_of(self._program.embedder, self._state.optimizer.embedding)[Key(self.name)]

    def blocks(self) -> Iterator[Array]:
        """Yield the rows in order, a block at a time: memory holds no second copy of a large table."""
        for block in self._rows.blocks():
            yield np.asarray(block, np.float32)

    def to_numpy(self) -> Array:
        """Return all rows, (rows, dim) float32."""
        return np.concatenate([*self.blocks(), np.zeros((0, self.spec.embedding_dim), np.float32)])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return self.to_numpy() if dtype is None else self.to_numpy().astype(dtype)

    def ids(self) -> list[Any] | None:
        """Return the id of each row: a word of the vocabulary or a number; None where an id has no row of its own.

        The result is None where ids are hashed: a row then belongs to any number of them.
        """
        return self.ids_of(np.arange(len(self)))

    def ids_of(self, rows: npt.NDArray[np.int64]) -> list[Any] | None:
        """Return the ids of rows by number, as `ids` does."""
        found = self._by_row
        if isinstance(found, range):
            return [row if row in found else None for row in rows.tolist()]
        return None if found is None else [found.get(row) for row in rows.tolist()]

    def known_rows(self) -> npt.NDArray[np.int64] | None:
        """Return the numbers of the rows that belong to one id, ascending; None where ids are hashed.

        The row of unknown words and the free rows of a dynamic table are not among them.
        """
        found = self._by_row
        return None if found is None else np.array(sorted(found), np.int64)

    @property
    def _by_row(self) -> Mapping[int, Any] | range | None:
        """The id of each row that has one; a range of ids that are their rows."""
        for feature in self.features:
            words = getattr(feature, "words", None)
            if isinstance(words, Vocabulary):
                numbers = range(len(words)) if words.rows is None else words.rows.tolist()
                made: dict[int, Any] = {}
                for row, word in zip(numbers, words.words, strict=True):
                    made.setdefault(row, word)  # of several words of one row, the first
                return made
            if (buckets := getattr(feature, "num_buckets", None)) is not None:
                return range(buckets)
        if self.spec.dynamic is None:
            return None
        ids, rows = self._program.embedder.ids(self._state.optimizer.embedding, self.name)
        return dict(zip(rows.tolist(), ids.tolist(), strict=True))

    def to_arrow(self) -> Any:
        """Return an Arrow table of the columns ``row``, ``id`` where ids are known, and ``embedding``."""
        array, ids = self.to_numpy(), self.ids()
        columns: dict[str, Any] = {"row": np.arange(len(self))}
        if ids is not None:
            columns["id"] = pa.array(ids)
        columns["embedding"] = pa.FixedSizeListArray.from_arrays(pa.array(array.reshape(-1)), self.spec.embedding_dim)
        return pa.table(columns)

    def rows(self, ids: Sequence[Any], feature: str | None = None) -> npt.NDArray[np.int64]:
        """Return the row of each id, as ``feature`` reads it (by default the first one); -1 where it has none.

        Unknown ids have the row that training gave them: by default a vocabulary has one row for all of them.
        """
        reader = self._reader(feature)
        column = reader.columns[0]
        given = pa.RecordBatch.from_arrays([pa.array(list(ids))], [column])
        if (sentence := reader.refuse(column, given.schema.field(0).type)) is not None:
            raise DataError(sentence, "ids")
        problems = Problems(len(given))
        made = reader.convert(given, problems)
        if problems.first is not None:
            row, _, why = problems.first
            raise DataError(why, "ids", f"row {row}")
        return self._numbers(reader, made)

    def _reader(self, feature: str | None) -> Feature:
        single = [each for each in self.features if len(each.columns) == 1]
        found = [each for each in single if feature in (None, each.name)]
        if not found:
            raise DataError(f"no feature of one column looks ids up in the table '{self.name}'")
        return found[0]

    def _numbers(self, feature: Feature, made: Any) -> npt.NDArray[np.int64]:
        if isinstance(made, Ragged):
            lengths = np.diff(np.asarray(made.offsets))
            if lengths.max(initial=0) > 1:
                raise DataError(f"feature '{feature.name}': give one id at a time")
            values = np.full(len(lengths), -1, np.int64)
            values[lengths == 1] = np.asarray(made.values).astype(np.int64)
            if self.spec.dynamic is None:
                return values
            made = np.stack([values, (lengths == 1).astype(np.int64)], axis=1)
        if self.spec.dynamic is None:
            return np.asarray(made, np.int64)
        ids, rows = self._program.embedder.ids(self._state.optimizer.embedding, self.name)
        row_of = dict(zip(ids.view(np.int64).tolist(), rows.tolist(), strict=True))
        unknown = 0 if self.spec.dynamic.reserved else -1
        return np.array([row_of.get(id, unknown) if there else -1 for id, there in np.asarray(made).tolist()], np.int64)

    def __getitem__(self, ids: Any) -> Array:
        """Return the vectors of ids, (ids, dim) float32, or (dim,) of one; zeros where an id has no row."""
        if isinstance(ids, str | int | np.integer):
            one: Array = self[[ids]][0]
            return one
        return self.vectors(self.rows(ids))

    def vectors(self, rows: npt.NDArray[np.int64]) -> Array:
        """Return rows by number, (rows, dim) float32; zeros for -1."""
        array, start = self._rows.array, self._rows.start
        if self._rows.spread is not None:
            held = self.to_numpy()[np.maximum(rows, 0)]
        else:
            held = np.asarray(array[np.maximum(rows, 0) + start], np.float32)
        return np.where(rows[:, None] < 0, np.float32(0), held)

    def __repr__(self) -> str:
        about = ", ".join(feature.name for feature in self.features)
        return f"TableView('{self.name}': {len(self):,} × {self.spec.embedding_dim}, {self.spec.dtype}; of {about})"

    def _repr_html_(self) -> str:
        ids = self.ids()
        first = self.vectors(np.arange(min(SHOWN, len(self))))
        body = "".join(
            f"<tr><th>{escape(str(row if ids is None else ids[row]))}</th>"
            f"<td>{' '.join(f'{x:.3f}' for x in vector[:8])}{' …' * (len(vector) > 8)}</td></tr>"
            for row, vector in enumerate(first)
        )
        more = f"<p>and {len(self) - SHOWN:,} more</p>" if len(self) > SHOWN else ""
        return f"<p><b>{escape(repr(self))}</b></p><table>{body}</table>{more}"


Floats = npt.NDArray[np.float32]
Measure = Literal["cosine", "dot"]
Numbers = npt.NDArray[np.int64]

COMPARED: Final = 50_000
"""Words that an unknown one is compared with at most, for the nearest."""


class Nearest(NamedTuple):
    """Rows by score, the best first.

    There are fewer than k of them where there are fewer rows.

    Attributes:
      rows: (queries, k) row numbers.
      scores: (queries, k) cosines or dot products.
      ids: the id of each of ``rows``, as the data has it; None where ids are hashed, and for rows that were given.
    """

    rows: npt.NDArray[np.int64]
    scores: Floats
    ids: list[list[Any]] | None = None


def nearest_rows(queries: Any, blocks: Iterable[Any], k: int, measure: Measure = "cosine") -> Nearest:
    """Return the ``k`` rows nearest to each query.

    >>> found = nearest_rows([[1.0, 0.0]], [[[0.0, 1.0], [2.0, 0.0]], [[3.0, 3.0]]], k=2)
    >>> found.rows.tolist(), found.scores.round(3).tolist()
    ([[1, 2]], [[1.0, 0.7070000171661377]])

    Args:
      queries: (queries, dim).
      blocks: blocks of rows, (rows, dim) each, in order.
      k: rows for each query.
      measure: "cosine", or "dot" for the dot product.
    """
    fields.integer("neighbors: k", k)
    fields.choice("neighbors: measure", measure, ("cosine", "dot"))
    scores, rows = best_rows(_prepared(queries, measure), (_prepared(block, measure) for block in blocks), k)
    found = int((rows >= 0).sum(axis=1).max(initial=0))
    return Nearest(rows[:, :found], scores[:, :found])


def _prepared(vectors: Any, measure: Measure) -> Floats:
    """Return rows whose dot products are the measure; a row of zeros stays."""
    array = np.asarray(vectors, np.float32)
    if measure == "dot":
        return array
    norms = np.linalg.norm(array, axis=-1, keepdims=True)
    return (array / np.where(norms > 0, norms, 1)).astype(np.float32)


def neighbors_of(table: TableView, ids: Sequence[Any], feature: str | None, k: int, measure: Measure) -> Nearest:
    """Return the rows of other ids that are nearest to those of ``ids``, as ``feature`` reads them."""
    own, known = table.rows(ids, feature), table.known_rows()
    if known is None:
        if (own < 0).any():
            raise DataError(f"{shown(ids[int(np.argmax(own < 0))])} has no row in the table '{table.name}'")
        found = nearest_rows(table.vectors(own), table.blocks(), k + 1, measure)
        return _without(found, own, k)
    is_unknown = ~np.isin(own, known)
    if is_unknown.any():
        raise DataError(_unknown(ids[int(np.argmax(is_unknown))], table, feature))
    found = nearest_rows(table.vectors(own), _chosen(table, known), k + 1, measure)
    others = _without(found._replace(rows=known[found.rows]), own, k)
    return others._replace(ids=[table.ids_of(rows) or [] for rows in others.rows])


def _chosen(table: TableView, rows: Numbers) -> Iterator[Any]:
    """Yield some rows of the table, a block at a time; ``rows`` ascend."""
    start = 0
    for block in table.blocks():
        first, last = np.searchsorted(rows, (start, start + len(block)))
        yield block[rows[first:last] - start]
        start += len(block)


def _without(found: Nearest, own: Numbers, k: int) -> Nearest:
    """Return ``k`` neighbors of each, without itself."""
    is_other = found.rows != own[:, None]
    order = np.argsort(~is_other, axis=1, kind="stable")[:, : min(k, max(found.rows.shape[1] - 1, 0))]
    return Nearest(np.take_along_axis(found.rows, order, 1), np.take_along_axis(found.scores, order, 1))


def _unknown(id: Any, table: TableView, feature: str | None) -> str:
    words = [str(known) for known in table.ids_of(np.asarray(table.known_rows())[:COMPARED]) or []]
    close = difflib.get_close_matches(str(id), words, n=1)
    hint = f"; did you mean {shown(close[0])}?" if close else ""
    return f"{shown(id)} is not in the vocabulary of '{feature or table.name}'{hint}"
