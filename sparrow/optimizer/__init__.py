"""The optimizer step over tables and dense parameters together."""

from sparrow.optimizer.optimizer import Gradients, Optimizer, OptimizerState, StepInfo
from sparrow.optimizer.precision import LossScale, LossScaleState, cast
from sparrow.optimizer.table_rules import with_rules
