"""Runs: train and evaluate the model of a config. `sparrow.cli` is the command line of it."""

from sparrow.runs.errors import Elsewhere, FolderError, Interrupted, RunError
from sparrow.runs.feed_times import FeedTimes, time_feed
from sparrow.runs.loop.evaluation import Evaluator
from sparrow.runs.loop.non_finite import NonFinite
from sparrow.runs.loop.program import Program, TrainState
from sparrow.runs.loop.training import Trained, train
from sparrow.runs.predict_files import predict
from sparrow.runs.recorded.table_ids import TableIds, table_ids
from sparrow.runs.saved.run_folder import RunFolder
from sparrow.runs.saved.saving import Extra, load, saved_config

__all__ = [
    "Elsewhere",
    "Evaluator",
    "Extra",
    "FeedTimes",
    "FolderError",
    "Interrupted",
    "NonFinite",
    "Program",
    "RunError",
    "RunFolder",
    "TableIds",
    "TrainState",
    "Trained",
    "load",
    "predict",
    "saved_config",
    "table_ids",
    "time_feed",
    "train",
]
