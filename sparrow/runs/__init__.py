"""Runs: a config in, a trained and evaluated model out. `sparrow.cli` is this on the command line."""

from sparrow.runs.evaluation import Evaluator
from sparrow.runs.prediction import predict
from sparrow.runs.program import Program, TrainState
from sparrow.runs.saving import load, save, saved_config
from sparrow.runs.training import Trained, train

__all__ = ["Evaluator", "Program", "TrainState", "Trained", "load", "predict", "save", "saved_config", "train"]
