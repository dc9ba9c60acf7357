"""Runs: a config in, a trained and evaluated model out. `sparrow.cli` is this on the command line."""

from sparrow.runs.errors import FolderError, Interrupted, RunError
from sparrow.runs.evaluation import Evaluator
from sparrow.runs.non_finite import NonFinite
from sparrow.runs.prediction import predict
from sparrow.runs.program import Program, TrainState
from sparrow.runs.run_folder import RunFolder
from sparrow.runs.saving import Extra, load, saved_config
from sparrow.runs.training import Trained, train

__all__ = [
    "Evaluator",
    "Extra",
    "FolderError",
    "Interrupted",
    "NonFinite",
    "Program",
    "RunError",
    "RunFolder",
    "TrainState",
    "Trained",
    "load",
    "predict",
    "saved_config",
    "train",
]
