"""Predictions of a run for files, from Parquet to Parquet."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from sparrow import processes
from sparrow.config import Config, ConfigError, Problem
from sparrow.data import Source
from sparrow.optimizer import OptimizerState
from sparrow.runs.loop.compiled import Compiled
from sparrow.runs.loop.evaluation import averaged
from sparrow.runs.loop.feed import Feed, Measured, Prepared
from sparrow.runs.loop.on_mesh import for_this_host
from sparrow.runs.loop.program import Program, TrainState
from sparrow.runs.loop.together import agreed
from sparrow.serving.files import write_predictions
from sparrow.tasks import predictions


def predict(
    program: Program,
    state: TrainState,
    source: str | Source,
    output: str | Path,
    *,
    columns: Sequence[str] = (),
    batch_size: int | None = None,
) -> int:
    """Predict every row of a source, in its order, into one Parquet file. Return the number of rows.

    The file holds ``columns`` of the source unchanged, and a column ``prediction`` (``prediction_<task>`` where there
    are several tasks): a number, or a list of them where there are classes. For two towers it also holds the vectors
    ``query`` and ``item``.

    Args:
      program: the trained program.
      state: its state; the average of the dense parameters is used where `Evaluator` would use it.
      source: Parquet files, as `sparrow.data.Parquet` takes them, or any source.
      output: the file to write.
      columns: columns of the source to keep besides the predictions.
      batch_size: rows at a time; by default, as in evaluation.
    """
    optimizer = used_in_evaluation(program.config, state.optimizer)

    def outputs(optimizer: OptimizerState, rest: Any, feed: Feed) -> dict[str, jax.Array]:
        made = predictions(program.config.tasks, program.outputs(optimizer, rest, feed))
        everywhere: dict[str, jax.Array] = for_this_host(program.embedder, made)
        return everywhere

    program_of = Compiled("prediction", outputs, batch=2)

    def fetched(prepared: Prepared) -> dict[str, np.ndarray[Any, Any]]:
        made: dict[str, np.ndarray[Any, Any]] = jax.device_get(program_of(optimizer, state.rest, prepared.feed))
        return made

    preparer = program.preparer()
    prepare: Any = preparer
    compute: Any = fetched

    def agreed_first(routed: Measured) -> dict[str, np.ndarray[Any, Any]]:
        return fetched(preparer.finish(agreed(preparer, routed)))

    if processes.count() > 1:
        prepare, compute = preparer.route, agreed_first

    with tempfile.TemporaryDirectory() if not processes.is_first() else contextlib.nullcontext() as aside:
        return write_predictions(
            source,
            output if aside is None else Path(aside) / "predictions",  # the first process writes the file
            features=program.assembly.features,
            prepare=prepare,
            compute=compute,
            columns=columns,
            batch_size=batch_size or prediction_batch_size(program.config),
        )


def prediction_batch_size(config: Config) -> int:
    """Return the default number of rows at a time."""
    return config.evaluate.batch_size or config.train.batch_size


def used_in_evaluation(config: Config, state: OptimizerState, ema: bool | None = None) -> OptimizerState:
    """Return the state with the average of the dense parameters, or without; ``ema`` None: as in evaluation."""
    if ema and state.ema is None:
        raise ConfigError([Problem(("train", "ema"), "the run keeps no average of the parameters; leave --ema out")])
    if ema is None:
        ema = config.train.ema is not None and config.evaluate.use_ema is not False
    return averaged(state) if ema else state
