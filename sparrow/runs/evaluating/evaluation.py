"""Evaluation: the metrics of all tasks over the data to evaluate on, of a state or of an export."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from sparrow.background import behind
from sparrow.config import Config, ConfigError, catalog_of, evaluate_pipeline
from sparrow.data import Batch
from sparrow.feed import IS_EXAMPLE, Feed, Prepared
from sparrow.kernels.feed import pool
from sparrow.losses import Platt
from sparrow.optimizer import OptimizerState
from sparrow.runs.evaluating.catalog import Catalog, Gathered
from sparrow.runs.loop.sharing import divide
from sparrow.runs.loop.together import Batches, Requests, Together, batches_of
from sparrow.runs.step.calls import filled_up, in_calls, one_by_one, without_padding
from sparrow.runs.step.compiling import Compiled
from sparrow.runs.step.on_mesh import for_this_host, kept_everywhere, summed_in_order
from sparrow.runs.step.program import Program, TrainState
from sparrow.serving import ExportedModel
from sparrow.serving.description import PREDICT
from sparrow.tasks import (
    TOWERS,
    QualityCounts,
    Scores,
    States,
    is_matching,
    judged_rows,
    sample_weights,
    total_loss,
    vector_column,
)

LOSS = "loss"
CALIBRATED: Final = "calibrated_log_loss"
"""The log loss of probabilities that are scaled by the same rows."""
AHEAD: Final = 4
"""Calls that the device is given before the host waits for the results of the first."""
TOGETHER: Final = 2**17
"""Rows that exact metrics get at once: many small batches take many short calls."""


class EvaluationInterrupted(Exception):
    """Raised by an evaluation that was interrupted."""


class Evaluator:
    """Evaluation of states of one program, any number of times: data opened, checked and compiled once.

    Attributes:
      prepare: the work of the pipeline's thread on each batch.
      curves: the data of the quality charts of the last evaluation, by task.
      calibration: the scaling of predictions by the last evaluation, of each task with ``calibrate``.
      examples: the examples of the last evaluation.
      reasons: the reason of each metric that is NaN in the last evaluation, by name.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.scores = Scores(program.config.tasks)
        self.curves: dict[str, Any] = {}
        self.reasons: dict[str, str] = {}
        self.examples = 0
        self.calibration: dict[str, Platt] = {}
        # A trained run is calibrated already.
        tasks = program.config.tasks
        self._to_calibrate = [name for name, task in tasks.items() if task.calibrate and task.calibration is None]
        self._quality = QualityCounts(program.config.tasks)
        self.prepare = program.preparer()
        self.pipeline = self.opened(program.config)
        self._every = program.config.evaluate.log_every_steps
        most = (
            1 if self.pipeline.stream is not None else program.batches_per_call(prediction_batch_size(program.config))
        )
        # A line comes after a call.
        self._most = max(n for n in range(1, most + 1) if self._every is None or self._every % n == 0)
        self._checked = False
        self.catalog = None if catalog_of(program.config) is None else Catalog(program)

    def log_programs(self, log: Callable[[str], None]) -> None:
        self._update.log = log

    def opened(self, config: Config) -> Batches:
        """Return the batches of the data that a config evaluates on; each process reads its share."""
        pipeline = evaluate_pipeline(config)
        divide(pipeline, self.program, self.prepare, is_training=False)
        return batches_of(pipeline, self.prepare)

    def share(self, requests: Requests) -> None:
        """Share the requests and decisions of a training run of several processes."""
        assert isinstance(self.pipeline, Together)
        self.pipeline.requests = requests

    @property
    def names(self) -> list[str]:
        of_catalog = self.catalog.names if self.catalog is not None else ()
        return [LOSS, *self.scores.metrics, *map(self._calibrated_name, self._to_calibrate), *of_catalog]

    def __call__(
        self,
        state: TrainState,
        log: Callable[[str], None] | None = None,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> dict[str, float]:
        """Return the mean loss and the metrics, by name.

        ``log`` receives a line every ``evaluate.log_every_steps`` batches. Raises `EvaluationInterrupted` where
        ``interrupted`` returns True.
        """
        optimizer = used_in_evaluation(self.program.config, state.optimizer)
        host = self.scores.init_host()
        # The states of metrics, of charts, the sum of losses and its number of rows.
        sums = self.program.embedder.on_its_devices((self.scores.init(), self._quality.init(), jnp.zeros(2)))
        examples, number = 0, 0
        rows = Gathered([], [], [])
        held: list[tuple[Any, Any]] = []  # the scores and keys of calls

        def started() -> Generator[tuple[Any, Any, Sequence[Prepared]], None, None]:
            """Start the work on each call; the device has a few at a time."""
            nonlocal sums, examples, number
            with contextlib.closing(iter(self.pipeline)) as batches:  # type: ignore[type-var]
                for call in in_calls(itertools.islice(batches, self.program.config.evaluate.steps), self._most):
                    if interrupted():
                        raise EvaluationInterrupted
                    if not self._checked:
                        self.program.check(state, call[0].feed, self.scores)
                        self._checked = True
                    keys, count = self._own_keys(call[0]), np.int32(len(call))
                    feeds = filled_up(call, self._most)
                    sums, done, *arrays = self._update(sums, optimizer, state.rest, feeds, count, keys)
                    examples += sum(prepared.examples for prepared in call)
                    number += len(call)
                    if log is not None and self._every is not None and number % self._every == 0:
                        log(f"eval   batch {number}  examples {examples:,}  loss {self._mean(sums[2], examples):.4g}")
                    for array in jax.tree.leaves((done, arrays)):
                        array.copy_to_host_async()
                    yield done, arrays, call

        def take(done: Any, arrays: Any, call: Sequence[Prepared]) -> None:
            """Take the results of a call into the exact metrics."""
            nonlocal host, held
            np.asarray(done)  # waits for it
            (scored, query), keys = self._of_examples(arrays, call)
            held.append((scored, keys))
            if len(held) * len(call) * call[0].feed.size >= TOGETHER:
                host, held = self._judged(host, held), []
            if self.catalog is not None:
                self.catalog.add(rows, query, keys)

        with (
            concurrent.futures.ThreadPoolExecutor(1, "sparrow-metrics") as thread,
            contextlib.closing(started()) as begun,
        ):
            for taken in behind((thread.submit(take, *results) for results in begun), AHEAD):
                taken.result()
        host = self._judged(host, held)
        device, counts, total = sums
        self.curves, self.examples = self._quality.plain(counts), examples
        results = {LOSS: self._mean(total, examples)}
        states = {**device, **host}
        results |= self.scores.compute(states)
        self.reasons = self.scores.reasons(states, results)
        results |= self._calibrate()
        if self.catalog is not None:
            results |= self.catalog.results(rows, optimizer, state.rest, log)
        return results

    def _of_examples(self, arrays: Any, call: Sequence[Prepared]) -> tuple[Any, dict[str, npt.NDArray[np.int64]]]:
        """Return the scores and queries of a call without the rows of padding, and the keys of its examples."""
        *scored, keys, marks = arrays
        size = call[0].feed.size
        if marks is None:
            examples = [prepared.examples for prepared in call]
            kept = jax.tree.map(lambda rows: without_padding(np.asarray(rows), examples, size, self._most), scored)
            return kept, {name: _joined([prepared.keys[name] for prepared in call]) for name in call[0].keys}
        there = np.asarray(marks) > 0  # every process has its padding behind its rows
        held = {name: np.asarray(halves).view(np.int64)[:, 0][there] for name, halves in keys.items()}
        if there.all():
            return scored, held
        # An example may have several rows: its candidates.
        return jax.tree.map(lambda rows: np.asarray(rows)[np.repeat(there, len(rows) // len(there))], scored), held

    def _judged(self, host: States, held: list[tuple[Any, Any]]) -> States:
        """Return the states of the exact metrics with the scores and keys of some batches."""
        if not held:
            return host
        scored, keys = held[0] if len(held) == 1 else jax.tree.map(lambda *parts: np.concatenate(parts), *held)
        return self.scores.update_host(host, scored, keys)

    def _calibrate(self) -> dict[str, float]:
        """Fit the scalings of predictions to the counted rows, and return the log losses with them."""
        self.calibration, results = {}, {}
        for name in self._to_calibrate:
            loss = math.nan
            if name in self.curves:  # labels are 0 and 1, and there are some
                self.calibration[name], loss = Platt.of(self.curves[name])
            results[self._calibrated_name(name)] = loss
        return results

    def _calibrated_name(self, task: str) -> str:
        return f"{task}/{CALIBRATED}" if len(self.program.config.tasks) > 1 else CALIBRATED

    def _mean(self, total: jax.Array, examples: int) -> float:
        """Return the mean loss of examples, or of all their candidates."""
        losses, rows = jax.device_get(total)
        return float(losses) / max(float(rows) if self.program.assembly.label_lengths else examples, 1)

    def _own_keys(self, prepared: Prepared) -> dict[str, jax.Array]:
        """Return the keys of this process's rows, in halves, for the others; where all have all keys, none."""
        shards = self.program.embedder.shards
        if shards is None or not self.prepare.has_own_rows:
            return {}
        rows = prepared.feed.size // shards.processes
        padded = {name: np.resize(np.append(own, 0), rows) for name, own in prepared.keys.items()}
        halves = {name: own.view(np.int32).reshape(-1, 2) for name, own in padded.items()}
        made: dict[str, jax.Array] = shards.put_parts(halves)
        return made

    def undefined(self) -> list[str]:
        """Return a line for each metric that is NaN in the last evaluation."""
        return [f"{name} is NaN: {reason}" for name, reason in self.reasons.items()]

    @functools.cached_property
    def _update(self) -> Compiled:
        def update(sums: Any, state: OptimizerState, rest: Any, feeds: tuple[Feed, ...], count: Any, keys: Any) -> Any:
            size = feeds[0].size

            def measured(sums: tuple[States, States, jax.Array], outputs: Any, columns: Any) -> Any:
                states, counts, total = sums
                loss, _ = total_loss(self.program.config.tasks, outputs, columns)
                states = self.scores.update(states, outputs, columns)
                rows = judged_rows(self.program.config.tasks, outputs, columns, size)
                return states, self._quality.update(counts, outputs, columns), total + jnp.stack([rows * loss, rows])

            def of_batch(sums: Any, feed: Feed) -> Any:
                outputs = self.program.outputs(state, rest, feed)
                measure = summed_in_order(self.program.embedder, measured, size)
                summed = kept_everywhere(self.program.embedder, measure(sums, outputs, feed.columns))
                query = None if self.catalog is None else outputs[TOWERS["user"]]
                marks = feed.columns[IS_EXAMPLE] if self.prepare.has_own_rows else None
                return summed, (self.scores.for_host(outputs, feed.columns), query, marks)

            summed, (scored, query, marks) = one_by_one(of_batch, sums, feeds, count)
            return summed, *for_this_host(self.program.embedder, (summed[2][1], scored, query, keys, marks))

        return Compiled("evaluation", update, batch=3, donate=(0,))


def _joined(parts: Sequence[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    """Return the keys of a call in memory that the one before it used."""
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts, out=pool.empty((sum(map(len, parts)),), np.int64))


def used_in_evaluation(config: Config, state: OptimizerState, ema: bool | None = None) -> OptimizerState:
    """Return the state with the average of the dense parameters, or without; ``ema`` None: as in evaluation."""
    if ema and state.ema is None:
        raise ConfigError("the run keeps no average of the parameters; leave --ema out", at=("train", "ema"))
    if ema is None:
        ema = config.train.ema is not None and config.evaluate.use_ema is not False
    return dataclasses.replace(state, params=state.ema.params) if ema and state.ema is not None else state


def prediction_batch_size(config: Config) -> int:
    """Return the number of rows at a time in evaluations and, by default, in predictions."""
    return config.evaluate.batch_size or config.train.batch_size


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
