"""Predictions for all rows of a source: as Arrow tables, or into a Parquet file."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sparrow.background import behind
from sparrow.data import Batch, Converter, DataError, Feature, MissingColumn, Source, opened
from sparrow.data.sources import Reader, Rows
from sparrow.feed import Batching, Pipeline
from sparrow.files import AnyPath, at, check_parquet, replacing
from sparrow.registry import nearest
from sparrow.serving.columns import arrow_column, cut_to_candidates
from sparrow.serving.description import PREDICT
from sparrow.serving.model import ExportedModel

T = TypeVar("T")
Arrays = Mapping[str, np.ndarray[Any, Any]]

AHEAD: Final = 4
"""Batches that the device is given before the results of the first are taken."""
GROUP: Final = 2**17
"""The least rows of a row group."""


def predict(
    model: ExportedModel,
    source: Any,
    output: str | AnyPath,
    *,
    columns: Sequence[str] = (),
    batch_size: int | None = None,
    user: str | None = None,
) -> int:
    """Predict every row of a source, in its order, into one Parquet file. Return the number of rows.

    The file is the one that `sparrow.runs.predict` writes for the model that was exported.

    Args:
      model: an export.
      source: files, a frame or any source, as `sparrow.data.source_of` takes it; a text file may be
        separated by commas, semicolons, tabs or bars.
      output: the file to write.
      columns: columns of the source to keep besides the predictions; ``"new=old"`` keeps one under another name.
      batch_size: rows at a time; by default, as in evaluation.
      user: a column whose equal values have equal histories, of an export with states: in each chunk of the source, a
        history is computed once for all of its rows.
    """
    if user is not None:
        return write(output, _ByUser(model, opened(source), columns, batch_size, user))
    function = model.function(PREDICT)
    given = function.features, function.prepare, function.compute, columns
    return write(output, Predicted(opened(source), *given, batch_size or model.description.batch_size))


def write(output: str | AnyPath, predicted: Predicted[Any] | _ByUser) -> int:
    """Write all tables into one Parquet file, which appears when it is complete. Return the number of rows."""
    path, rows = at(output), 0
    check_parquet(path)
    _refuse(path, predicted.reader)
    repeated: Any = sorted(predicted.kept.names) or False  # columns that may repeat their values; predictions do not
    with contextlib.ExitStack() as stack:
        tables = stack.enter_context(contextlib.closing(predicted.tables()))
        partial = stack.enter_context(_one_line(path))
        writer: Any = None
        for table in _together(tables):
            if writer is None:
                writer = stack.enter_context(pq.ParquetWriter(partial, table.schema, use_dictionary=repeated))
            writer.write_table(table)
            rows += table.num_rows
    return rows


def _together(tables: Iterable[Any]) -> Iterator[Any]:
    """Yield the tables, small ones together: each that is written becomes a row group."""
    held: list[Any] = []
    for table in tables:
        held.append(table)
        if sum(own.num_rows for own in held) >= GROUP:
            yield pa.concat_tables(held)
            held = []
    if held:
        yield pa.concat_tables(held)


class Predicted(Generic[T]):
    """The results of ``finish(compute(prepare(batch)))`` for all rows of a source, opened and checked.

    ``prepare`` runs ahead in threads of its own. ``compute`` starts the work on a batch, or on several that
    ``together`` joins; ``finish`` is called after that of `AHEAD` more.

    Attributes:
      reader: the opened source.
      kept: its columns beside the results.
    """

    def __init__(
        self,
        source: Source,
        features: Sequence[Feature],
        prepare: Callable[[Batch], T],
        compute: Callable[[T], Any],
        columns: Sequence[str],
        batch_size: int,
        finish: Callable[[Any], Arrays] = lambda made: made,
        together: Callable[[Iterator[T]], Iterator[Any]] = lambda batches: batches,
    ) -> None:
        self._source, self._prepare, self._compute, self._batch_size = source, prepare, compute, batch_size
        self._finish, self._together = finish, together
        self._converter = Converter(features, (), (), ())
        self.reader = _opened_for_model(source, self._converter.columns)
        self.kept = _Columns(source, columns)

    def tables(self) -> Generator[Any, None, None]:
        """Yield Arrow tables, at least one: columns of the source, and the results."""
        made_of = _batches(self._source, self._converter, self.reader, self._batch_size, self._prepare)
        with contextlib.closing(made_of) as batches:  # type: ignore[type-var]
            for started in behind(map(self._compute, self._together(batches)), AHEAD):
                made = cut_to_candidates(self._finish(started))
                yield self.kept.beside(made)


class _ByUser:
    """Predictions in which each history of a chunk is computed once; as `Predicted` otherwise."""

    def __init__(
        self, model: ExportedModel, source: Source, columns: Sequence[str], batch_size: int | None, user: str
    ) -> None:
        self._model, self._batch_size, self._user = model, batch_size, user
        if user not in (known := source.column_names()):
            raise DataError(f"the user is no column of the source: {nearest(user, known)}", column=user)
        try:
            own = [*model.histories.history.columns, *model.histories.scoring.columns]
        except ValueError as error:
            raise DataError(str(error), str(model.folder)) from None
        self.reader = _opened_for_model(source, list(dict.fromkeys([*own, user])))
        self.kept = _Columns(source, columns)

    def tables(self) -> Generator[Any, None, None]:
        for chunk in range(max(self.reader.num_chunks, 1)):
            rows = self.reader.read(chunk, "error").table if self.reader.num_chunks else _empty(self.reader)
            yield self.kept.beside(self._model.predict(rows, self._batch_size, user=self._user))


def _opened_for_model(source: Source, columns: Sequence[str]) -> Reader:
    try:
        return source.open(columns)
    except MissingColumn as error:
        raise error.wanted_by_model() from None


def _refuse(path: AnyPath, reader: Reader) -> None:
    """Raise `DataError` where the output would replace its input, or something that is not a file."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise DataError("is a device or another special file; choose the name of a file", str(path))
    for file, _ in reader.schemas:
        with contextlib.suppress(OSError):  # a table in memory, or an output that is not there yet
            if file == str(path) or (isinstance(path, Path) and os.path.samefile(file, path)):
                raise DataError("is read by this very prediction; choose another file for the output", str(path))


@contextlib.contextmanager
def _one_line(path: AnyPath) -> Iterator[Path]:
    try:
        with replacing(path) as partial:
            yield partial
    except OSError as error:
        raise DataError(f"cannot be written: {error.strerror or error}", str(path)) from None


def _batches(
    source: Source, converter: Converter, reader: Reader, batch_size: int, prepare: Callable[[Batch], T]
) -> Iterator[T]:
    if reader.num_chunks:
        yield from Pipeline(source, converter, Batching(batch_size), prepare=prepare)
        return
    converter.check(reader)
    nothing = Rows(_empty(reader), reader.schemas[0][0], lambda row: f"row {row}")
    yield prepare(converter.convert(nothing, "error")[0].to_batch())


def _empty(reader: Reader) -> Any:
    return pa.schema(list(reader.schemas[0][1].items())).empty_table()


class _Columns:
    """Some columns of a source, in its order, in pieces of any number of rows."""

    def __init__(self, source: Source, columns: Sequence[str]) -> None:
        pairs = [text.partition("=") for text in columns]
        # A column whose own name holds "=" is kept as it is.
        own = set(source.column_names()) if any(equals for _, equals, _ in pairs) else set()
        self._old = {
            text if text in own or not equals else new: text if text in own or not equals else old
            for text, (new, equals, old) in zip(columns, pairs, strict=True)
        }
        self._reader = source.open(list(dict.fromkeys(self._old.values()))) if columns else None
        self._chunk = 0
        self._held: Any = None

    def beside(self, made: Arrays) -> Any:
        """Return results as an Arrow table, with as many of the next rows of the source."""
        for name in made.keys() & self.names:
            text = f"a prediction has this name; keep the column under another one: {name}_label={name}"
            raise DataError(text, column=name)
        size = len(next(iter(made.values())))
        return pa.table(self._take(size) | {name: arrow_column(values) for name, values in made.items()})

    def _take(self, rows: int) -> dict[str, Any]:
        if self._reader is None:
            return {}
        if self._held is None:
            self._held = _empty(self._reader) if not self._reader.num_chunks else self._next()
        while self._held.num_rows < rows:
            self._held = pa.concat_tables([self._held, self._next()])
        taken, self._held = self._held.slice(0, rows), self._held.slice(rows)
        return {new: taken[old] for new, old in self._old.items()}

    @property
    def names(self) -> set[str]:
        return set(self._old)

    def _next(self) -> Any:
        assert self._reader is not None
        self._chunk += 1
        return self._reader.read(self._chunk - 1, "error").table
