"""The optimizer step over tables and dense parameters together."""

from sparrow.training.optimizer import Gradients, Optimizer, OptimizerState, StepInfo
from sparrow.training.precision import LossScale, LossScaleState

__all__ = ["Gradients", "LossScale", "LossScaleState", "Optimizer", "OptimizerState", "StepInfo"]
