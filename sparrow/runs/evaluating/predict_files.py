"""Predictions of a run for all rows of a source: as Arrow, or into a Parquet file."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from sparrow import processes
from sparrow.config import Config
from sparrow.data import Source, source_of
from sparrow.feed import MeshBatch, Prepared
from sparrow.files import AnyPath
from sparrow.runs.evaluating.evaluation import prediction_batch_size, used_in_evaluation
from sparrow.runs.loop.together import agreed
from sparrow.runs.step.calls import filled_up, in_calls, without_padding
from sparrow.runs.step.program import Program, TrainState
from sparrow.serving.files import Predicted, write


def predict(
    program: Program,
    state: TrainState,
    source: Any,
    output: str | AnyPath,
    *,
    columns: Sequence[str] = (),
    batch_size: int | None = None,
) -> int:
    """Predict every row of a source, in its order, into one Parquet file. Return the number of rows.

    The file holds ``columns`` of the source, and a column of each task's name with its prediction: a number, or a list
    of them where there are classes or several candidates. For two towers it also holds their vectors.

    Args:
      program: the trained program.
      state: its state; the average of the dense parameters is used where `Evaluator` would use it.
      source: files, a frame or any source, as `sparrow.data.source_of` takes it; text files are read with the options
        of the source that the run was trained on.
      output: the file to write.
      columns: columns of the source to keep besides the predictions; ``"new=old"`` keeps one under another name.
      batch_size: rows at a time; by default, as in evaluation.
    """
    size = batch_size or prediction_batch_size(program.config)
    prepare, together, compute, finish = computing(program, state, size)
    with tempfile.TemporaryDirectory() if not processes.is_first() else contextlib.nullcontext() as aside:
        given = source_like(program.config, source), program.assembly.features, prepare, compute, columns, size
        predicted = Predicted(*given, finish, together)
        # The first process writes the file.
        return write(output if aside is None else Path(aside) / "predictions", predicted)


def predict_table(
    program: Program,
    state: TrainState,
    source: Any,
    *,
    batch_size: int | None = None,
    needed: Container[str] | None = None,
) -> Any:
    """Predict every row of a source, in its order, as `predict` does, into an Arrow table.

    ``needed``: the features that are read; all others are missing in every row. None: all are read.
    """
    size = batch_size or prediction_batch_size(program.config)
    prepare, together, compute, finish = computing(program, state, size)
    features = program.assembly.features
    if needed is not None:
        features = tuple(own for own in features if any(each.name in needed for each in own.outputs))
    predicted = Predicted(
        source_like(program.config, source),
        features,
        prepare if needed is None else lambda batch: prepare(program.completed(batch)),
        compute,
        (),
        size,
        finish,
        together,
    )
    with contextlib.closing(predicted.tables()) as tables:
        return pa.concat_tables(tables)


def source_like(config: Config, source: Any) -> Source:
    """Return the source of anything that holds rows; files are read with the options of training."""
    return source_of(source, *(() if config.data is None else (config.data.train, config.data.evaluate)))


class Computing(NamedTuple):
    """Functions from batches to their predictions: they are prepared, go in calls, are on the way, and are there."""

    prepare: Callable[..., Any]
    together: Callable[[Iterable[Any]], Iterator[Any]]
    start: Callable[[Any], Any]
    finish: Callable[[Any], dict[str, np.ndarray[Any, Any]]]


def computing(program: Program, state: TrainState, batch_size: int) -> Computing:
    """Return the functions for batches of ``batch_size``."""
    optimizer = used_in_evaluation(program.config, state.optimizer)
    preparer = program.preparer(use="predict")
    most = program.batches_per_call(batch_size)

    def agreed_first(routed: Iterable[MeshBatch]) -> Iterator[Prepared]:
        return (preparer.finish(agreed(preparer, own)) for own in routed)

    def started(call: tuple[Prepared, ...]) -> tuple[Any, list[int], int]:
        made = program.predictions(optimizer, state.rest, filled_up(call, most))
        for array in made.values():
            array.copy_to_host_async()
        return made, [prepared.examples for prepared in call], call[0].feed.size

    def finished(started: tuple[Any, list[int], int]) -> dict[str, np.ndarray[Any, Any]]:
        made, examples, size = started
        return {name: without_padding(np.asarray(rows), examples, size, most) for name, rows in made.items()}

    if processes.count() == 1:
        return Computing(preparer, lambda batches: in_calls(batches, most), started, finished)
    return Computing(preparer.route, lambda batches: in_calls(agreed_first(batches), most), started, finished)
