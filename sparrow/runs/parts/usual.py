"""The parts that runs have, in their order."""

from __future__ import annotations

from collections.abc import Sequence

from sparrow.config import Config
from sparrow.runs.evaluating.evaluation import Evaluator
from sparrow.runs.loop.loop import Loop, Part
from sparrow.runs.loop.staging import Taken
from sparrow.runs.loop.together import Batches, Together
from sparrow.runs.parts.evaluating import Evaluating, Watcher
from sparrow.runs.parts.learned_sizes import LearnedSizes
from sparrow.runs.parts.profiling import PROFILE, Profile
from sparrow.runs.parts.recording import Recorder
from sparrow.runs.parts.reporting import Reporting
from sparrow.runs.parts.signals import Signals
from sparrow.runs.parts.stopping import check_metric
from sparrow.runs.parts.windows import Windows
from sparrow.runs.step.program import Program
from sparrow.tasks import Scores


def usual_parts(
    recorder: Recorder, batches: Batches, signals: Signals, watch: Watcher | None, profile: int | None
) -> list[Part]:
    """Return the parts but the last ones, which save and stop: those that count and log, then those that judge.

    Args:
      recorder: writes the files of the report.
      batches: the batches of training.
      signals: interrupt evaluations.
      watch: as of `sparrow.runs.train`.
      profile: steps to trace; None: none.
    """
    program, folder = recorder.program, recorder.folder
    data, config = program.config.data, program.config
    evaluator = None if data is None or data.evaluate_rows is None else Evaluator(program)
    _check_metrics(config, [] if evaluator is None else evaluator.names)
    preparers, sizes = {"train": recorder.prepare}, {"train": config.train.batch_size}
    if evaluator is not None:
        preparers["evaluate"] = evaluator.prepare
        sizes["evaluate"] = config.evaluate.batch_size or config.train.batch_size
    parts: list[Part] = [recorder, _Checking(program, evaluator), LearnedSizes(preparers, sizes, program.embedder)]
    if folder is not None and profile is not None:
        parts.append(Profile(folder / PROFILE, profile))
    column = None if data is None else data.time_column
    if column is not None or config.evaluate.windows is not None:
        parts.append(Windows(program, column, "s" if data is None else data.time_unit))
    parts.append(Reporting(program, batches, recorder.prepare.unvarying))
    if evaluator is not None:
        if isinstance(batches, Together):
            evaluator.share(batches.requests)
        parts.append(Evaluating(evaluator, recorder, signals, watch))
    return parts


def _check_metrics(config: Config, names: Sequence[str]) -> None:
    best_by, stopping = config.train.checkpoint.best_by, config.evaluate.early_stopping
    if best_by is not None:
        check_metric(best_by.metric, names, ("train", "checkpoint", "best_by", "metric"))
    if stopping is not None:
        check_metric(stopping.metric, names, ("evaluate", "early_stopping", "metric"))


class _Checking(Part):
    """Checks that outputs, labels and metrics fit together, by the first batch."""

    def __init__(self, program: Program, evaluator: Evaluator | None) -> None:
        self._scores: list[Scores] = [program.train_scores, *([evaluator.scores] if evaluator else [])]

    def take(self, loop: Loop, call: Sequence[Taken]) -> None:
        """Check it before the first step."""
        if loop.steps == loop.began_at:
            loop.program.check(loop.state, call[0].batches[0].feed, *self._scores)
