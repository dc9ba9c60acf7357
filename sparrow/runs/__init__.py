"""Runs: train the model of a config, and use it. `sparrow.cli` is the command line of it.

``train(config)`` and ``load("runs/x")`` return a `Run`, which predicts, evaluates, shows its tables and exports itself.
"""

from sparrow.runs.errors import Elsewhere, FolderError, Interrupted, RunError
from sparrow.runs.evaluating.evaluation import Evaluator
from sparrow.runs.evaluating.predict_files import predict
from sparrow.runs.feed_times import FeedTimes, time_feed
from sparrow.runs.loop.loop import Loop, Part
from sparrow.runs.loop.set_up import as_config, load, train
from sparrow.runs.parts.event_schedule import EventSchedule
from sparrow.runs.recorded.traffic import TableIds, table_ids
from sparrow.runs.run import Run
from sparrow.runs.saved.loading import Extra, saved_config
from sparrow.runs.saved.run_folder import RunFolder
from sparrow.runs.step.non_finite import NonFinite
from sparrow.runs.step.program import Program, TrainState
from sparrow.runs.vectors.table_view import Nearest, TableView, nearest_rows

__all__ = ["Interrupted", "NonFinite", "Part", "Run", "RunError", "TableView", "load", "train"]


def __dir__() -> list[str]:
    return __all__
