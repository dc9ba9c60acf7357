"""Predictions of a run for files, from Parquet to Parquet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from sparrow.config import Config, ConfigError, Problem
from sparrow.data import Source
from sparrow.optimizer import OptimizerState
from sparrow.runs.loop.compiled import Compiled
from sparrow.runs.loop.evaluation import averaged
from sparrow.runs.loop.feed import Feed, Prepared
from sparrow.runs.loop.program import Program, TrainState
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
        return predictions(program.config.tasks, program.outputs(optimizer, rest, feed))

    compute = Compiled("prediction", outputs, batch=2)

    def fetched(prepared: Prepared) -> dict[str, np.ndarray[Any, Any]]:
        made: dict[str, np.ndarray[Any, Any]] = jax.device_get(compute(optimizer, state.rest, prepared.feed))
        return made

    return write_predictions(
        source,
        output,
        features=program.assembly.features,
        prepare=program.preparer(),
        compute=fetched,
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
