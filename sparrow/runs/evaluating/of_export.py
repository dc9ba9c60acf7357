"""The metrics of an export on the data of a run, to be compared with the run's own."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

import jax
import numpy as np

from sparrow.config import ConfigError, evaluate_pipeline
from sparrow.data import Batch
from sparrow.runs.step.program import Program
from sparrow.serving import ExportedModel
from sparrow.serving.description import PREDICT
from sparrow.tasks import TOWERS, Scores, is_matching, sample_weights, vector_column


def evaluate_export(program: Program, model: ExportedModel) -> dict[str, float]:
    """Return the metrics of the run's tasks, of what the export's own tables and programs predict.

    The loss, metrics of a catalog and of several candidates are not among them: an export has predictions alone.
    """
    tasks = program.config.tasks
    missing = sorted(tasks.keys() - model.description.tasks.keys())
    if missing or program.assembly.label_lengths:
        why = f"the export lacks the task '{missing[0]}'" if missing else "the model ranks several candidates per row"
        raise ConfigError(f"the export cannot be compared with the run: {why}")
    scores, preparer = Scores(tasks), program.preparer()
    states = {name: use.metric.init() for name, use in scores.metrics.items()}
    with contextlib.closing(iter(evaluate_pipeline(program.config))) as batches:  # type: ignore[type-var]
        for given in itertools.islice(batches, program.config.evaluate.steps):
            batch = given.without_padding()
            made = model.function(PREDICT).run(batch, model.description.batch_size)
            _, columns = preparer.arrays(batch)
            for name, use in scores.metrics.items():
                task = tasks[use.task]
                if is_matching(task):
                    judged: Any = scores.judged(
                        use.task, use.metric.needs_labels, _vectors(model, made, batch), columns
                    )
                else:
                    judged = made[use.task], columns[task.label] if use.metric.needs_labels else None
                more = {} if use.group_by is None else {"groups": batch.keys[use.group_by]}
                more |= {"weights": sample_weights(task, columns)}
                states[name] = use.metric.update(states[name], *judged, **more)
    return scores.compute(jax.device_get(states))


def _vectors(model: ExportedModel, made: dict[str, Any], batch: Batch) -> dict[str, Any]:
    """Return the vectors of both towers as a model's outputs: of items, those that were drawn come last."""
    outputs = {output: made[vector_column(tower)] for tower, output in TOWERS.items()}
    if batch.negatives is not None:
        (drawn,) = model.function("item").run(batch.negatives, model.description.batch_size).values()
        outputs[TOWERS["item"]] = np.concatenate([outputs[TOWERS["item"]], drawn])
    return outputs
