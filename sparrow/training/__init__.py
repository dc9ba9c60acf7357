"""The optimizer step over tables and dense parameters together."""

from sparrow.training.optimizer import Gradients, Optimizer, OptimizerState, StepInfo
from sparrow.training.precision import LossScale, LossScaleState
from sparrow.training.table_rules import with_rules

__all__ = ["Gradients", "LossScale", "LossScaleState", "Optimizer", "OptimizerState", "StepInfo", "with_rules"]
