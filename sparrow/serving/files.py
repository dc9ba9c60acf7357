"""Predictions for files: Parquet in, Parquet out."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sparrow.data import Batch, Converter, DataError, Feature, Parquet, Pipeline, Source
from sparrow.data.sources import Reader, Rows
from sparrow.files import replacing
from sparrow.serving.description import PREDICT
from sparrow.serving.model import ExportedModel

T = TypeVar("T")


def predict(
    model: ExportedModel,
    source: str | Source,
    output: str | Path,
    *,
    columns: Sequence[str] = (),
    batch_size: int | None = None,
) -> int:
    """Predict every row of a source, in its order, into one Parquet file. Return the number of rows.

    The file is the one that `sparrow.runs.predict` writes for the model that was exported.

    Args:
      model: an export.
      source: Parquet files, as `sparrow.data.Parquet` takes them, or any source.
      output: the file to write.
      columns: columns of the source to keep besides the predictions.
      batch_size: rows at a time; by default, as in evaluation.
    """
    function = model.function(PREDICT)
    return write_predictions(
        source,
        output,
        features=function.features,
        prepare=function.prepare,
        compute=function.compute,
        columns=columns,
        batch_size=batch_size or model.description.batch_size,
    )


def write_predictions(
    source: str | Source,
    output: str | Path,
    *,
    features: Sequence[Feature],
    prepare: Callable[[Batch], T],
    compute: Callable[[T], Mapping[str, np.ndarray[Any, Any]]],
    columns: Sequence[str],
    batch_size: int,
) -> int:
    """Write the results of ``compute(prepare(batch))``, row by row, besides ``columns`` of the source.

    ``prepare`` runs ahead in its own thread. The file appears when it is complete; without rows it has its columns.
    """
    source = Parquet(source) if isinstance(source, str) else source
    path, rows = Path(output), 0
    converter = Converter(features, (), (), ())
    reader = source.open(converter.columns)
    _refuse(path, reader)
    with contextlib.ExitStack() as stack:
        kept = _Columns(source, columns)
        batches: Iterator[T] = stack.enter_context(
            contextlib.closing(_batches(source, converter, reader, batch_size, prepare))  # type: ignore[type-var]
        )
        partial = stack.enter_context(_one_line(path))
        writer: Any = None
        for prepared in batches:
            made = compute(prepared)
            size = len(next(iter(made.values())))
            for name in made.keys() & set(columns):
                raise DataError("the predictions have a column of this name; do not keep it", column=name)
            table = pa.table(kept.take(size) | {name: _arrow(values) for name, values in made.items()})
            if writer is None:
                writer = stack.enter_context(pq.ParquetWriter(partial, table.schema))
            writer.write_table(table)
            rows += size
    return rows


def _refuse(path: Path, reader: Reader) -> None:
    """Raise `DataError` where the output would replace its input, or something that is not a file."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise DataError("is a device or another special file; choose the name of a file", str(path))
    for file, _ in reader.schemas:
        with contextlib.suppress(OSError):  # a table in memory, or an output that is not there yet
            if os.path.samefile(file, path):
                raise DataError("is read by this very prediction; choose another file for the output", str(path))


@contextlib.contextmanager
def _one_line(path: Path) -> Iterator[Path]:
    try:
        with replacing(path) as partial:
            yield partial
    except OSError as error:
        raise DataError(f"cannot be written: {error.strerror or error}", str(path)) from None


def _batches(
    source: Source, converter: Converter, reader: Reader, batch_size: int, prepare: Callable[[Batch], T]
) -> Iterator[T]:
    if reader.num_chunks:
        yield from Pipeline(source, converter.features, batch_size=batch_size, prepare=prepare)
        return
    converter.check(reader)
    nothing = Rows(_empty(reader), reader.schemas[0][0], lambda row: f"row {row}")
    yield prepare(converter.convert(nothing, "error")[0].to_batch())


def _empty(reader: Reader) -> Any:
    return pa.schema(list(reader.schemas[0][1].items())).empty_table()


def _arrow(values: np.ndarray[Any, Any]) -> Any:
    if values.ndim == 1:
        return pa.array(values)
    return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])


class _Columns:
    """Some columns of a source, in its order, in pieces of any number of rows."""

    def __init__(self, source: Source, columns: Sequence[str]) -> None:
        self._reader = source.open(list(columns)) if columns else None
        self._chunk = 0
        self._held: Any = None

    def take(self, rows: int) -> dict[str, Any]:
        if self._reader is None:
            return {}
        if self._held is None:
            self._held = _empty(self._reader) if not self._reader.num_chunks else self._next()
        while self._held.num_rows < rows:
            self._held = pa.concat_tables([self._held, self._next()])
        taken, self._held = self._held.slice(0, rows), self._held.slice(rows)
        return {name: taken[name] for name in taken.column_names}

    def _next(self) -> Any:
        assert self._reader is not None
        self._chunk += 1
        return self._reader.read(self._chunk - 1, "error").table
