"""Predictions of a run for all rows of a source: as Arrow, or into a Parquet file."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Container, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from sparrow import processes
from sparrow.config import Config
from sparrow.data import Source, source_of
from sparrow.feed import MeshBatch, Prepared
from sparrow.files import AnyPath
from sparrow.runs.evaluating.evaluation import prediction_batch_size, used_in_evaluation
from sparrow.runs.loop.together import agreed
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
    prepare, compute, finish = computing(program, state)
    with tempfile.TemporaryDirectory() if not processes.is_first() else contextlib.nullcontext() as aside:
        given = source_like(program.config, source), program.assembly.features, prepare, compute, columns
        predicted = Predicted(*given, batch_size or prediction_batch_size(program.config), finish)
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
    prepare, compute, finish = computing(program, state)
    features = program.assembly.features
    if needed is not None:
        features = tuple(own for own in features if any(each.name in needed for each in own.outputs))
    predicted = Predicted(
        source_like(program.config, source),
        features,
        prepare if needed is None else lambda batch: prepare(program.completed(batch)),
        compute,
        (),
        batch_size or prediction_batch_size(program.config),
        finish,
    )
    with contextlib.closing(predicted.tables()) as tables:
        return pa.concat_tables(tables)


def source_like(config: Config, source: Any) -> Source:
    """Return the source of anything that holds rows; files are read with the options of training."""
    return source_of(source, *(() if config.data is None else (config.data.train, config.data.evaluate)))


def computing(
    program: Program, state: TrainState
) -> tuple[Callable[..., Any], Callable[..., Any], Callable[[Any], dict[str, np.ndarray[Any, Any]]]]:
    """Return the functions from a batch to a prepared one, from that to its predictions on the way, and to these."""
    optimizer = used_in_evaluation(program.config, state.optimizer)
    preparer = program.preparer(use="predict")

    def started(prepared: Prepared) -> tuple[Any, int]:
        made = program.predictions(optimizer, state.rest, prepared.feed)
        for array in made.values():
            array.copy_to_host_async()
        return made, prepared.examples

    def agreed_first(routed: MeshBatch) -> tuple[Any, int]:
        return started(preparer.finish(agreed(preparer, routed)))

    def finished(started: tuple[Any, int]) -> dict[str, np.ndarray[Any, Any]]:
        made, examples = started
        return {name: np.asarray(rows)[:examples] for name, rows in made.items()}

    return (preparer, started, finished) if processes.count() == 1 else (preparer.route, agreed_first, finished)
