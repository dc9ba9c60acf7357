"""Predictions for files: Parquet in, Parquet out."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sparrow.data import DataError, Parquet, Pipeline, Source
from sparrow.runs.evaluation import averaged
from sparrow.runs.feed import Feed, Prepared
from sparrow.runs.predictions import is_matching, predicted
from sparrow.runs.program import Program, TrainState

PREFIX = "prediction"


def predict(
    program: Program,
    state: TrainState,
    source: str | Source,
    output: str | Path,
    *,
    columns: Sequence[str] = (),
    batch_size: int | None = None,
) -> int:
    """Predicts every row of a source, in its order, into one Parquet file. Gives the number of rows.

    The file holds ``columns`` of the source as they are, and a column ``prediction`` (``prediction_<task>`` where there
    are several tasks): a number, or a list of them where there are classes. Of two towers it also holds the vectors
    ``query`` and ``item``.

    Args:
      program: what was trained.
      state: its state; the average of the dense parameters is used where `Evaluator` would use it.
      source: Parquet files, as `sparrow.data.Parquet` takes them, or any source.
      output: the file to write.
      columns: of the source, to keep beside the predictions.
      batch_size: rows at a time; as in evaluation, unless given.
    """
    source = Parquet(source) if isinstance(source, str) else source
    config = program.config
    use_ema = config.train.ema is not None and config.evaluate.use_ema is not False
    optimizer = averaged(state.optimizer) if use_ema else state.optimizer
    compute = jax.jit(functools.partial(_predictions, program))
    size = batch_size or config.evaluate.batch_size or config.train.batch_size
    pipeline = Pipeline(source, program.assembly.features, batch_size=size, prepare=program.prepare)
    kept = _Columns(source, columns)
    path, partial = Path(output), Path(output).with_name(f".{Path(output).name}.partial")
    rows = 0
    with contextlib.ExitStack() as stack:
        stack.callback(partial.unlink, missing_ok=True)  # where something goes wrong
        batches: Iterator[Prepared] = stack.enter_context(contextlib.closing(iter(pipeline)))  # type: ignore[type-var]
        writer: Any = None
        for prepared in batches:
            made = jax.device_get(compute(optimizer, state.rest, prepared.feed))
            table = pa.table(kept.take(prepared.feed.size) | {name: _arrow(values) for name, values in made.items()})
            for name in made.keys() & set(columns):
                raise DataError("the predictions have a column of this name; do not keep it", column=name)
            if writer is None:
                writer = stack.enter_context(pq.ParquetWriter(partial, table.schema))
            writer.write_table(table)
            rows += prepared.feed.size
        if writer is not None:
            writer.close()
            partial.replace(path)
    return rows


def _predictions(program: Program, optimizer: Any, rest: Any, feed: Feed) -> dict[str, jax.Array]:
    outputs, tasks = program.outputs(optimizer, rest, feed), program.config.tasks
    made = {}
    for name, task in tasks.items():
        made[PREFIX if len(tasks) == 1 else f"{PREFIX}_{name}"] = predicted(name, task, outputs)
        if is_matching(task):
            made |= {"query": outputs["query"], "item": outputs["item"][: feed.size]}
    return made


def _arrow(values: np.ndarray[Any, Any]) -> Any:
    if values.ndim == 1:
        return pa.array(values)
    return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])


class _Columns:
    """Some columns of a source, in its order, as many rows at a time as asked for."""

    def __init__(self, source: Source, columns: Sequence[str]) -> None:
        self._reader = source.open(list(columns)) if columns else None
        self._chunk = 0
        self._held: Any = None

    def take(self, rows: int) -> dict[str, Any]:
        if self._reader is None:
            return {}
        while self._held is None or self._held.num_rows < rows:
            more = self._reader.read(self._chunk, "error").table
            self._held = more if self._held is None else pa.concat_tables([self._held, more])
            self._chunk += 1
        taken, self._held = self._held.slice(0, rows), self._held.slice(rows)
        return {name: taken[name] for name in taken.column_names}
