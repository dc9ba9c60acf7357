"""Optimizers for table rows: each one equation, written once, run by every backend."""

from sparrow.rules.adagrad import F2A, Adagrad, AdagradMomentum, RowwiseAdagrad
from sparrow.rules.adam import LAMB, Adam, PartialRowwiseAdam, PartialRowwiseLAMB
from sparrow.rules.adaptive import Adadelta, LaProp, Lion, RMSprop
from sparrow.rules.base import (
    PER_ELEMENT,
    PER_ROW,
    Hyper,
    Rule,
    ScalarOrSchedule,
    Slot,
    Slots,
    bias_correction,
    divide_or_zero,
    step_count,
)
from sparrow.rules.ftrl import FTRL
from sparrow.rules.names import RULES, register_rule
from sparrow.rules.sgd import SGD, LarsSGD
from sparrow.rules.shipped import SHIPPED
from sparrow.rules.to_optax import as_optax

__all__ = [
    "F2A",
    "FTRL",
    "LAMB",
    "PER_ELEMENT",
    "PER_ROW",
    "RULES",
    "SGD",
    "SHIPPED",
    "Adadelta",
    "Adagrad",
    "AdagradMomentum",
    "Adam",
    "Hyper",
    "LaProp",
    "LarsSGD",
    "Lion",
    "PartialRowwiseAdam",
    "PartialRowwiseLAMB",
    "RMSprop",
    "RowwiseAdagrad",
    "Rule",
    "ScalarOrSchedule",
    "Slot",
    "Slots",
    "as_optax",
    "bias_correction",
    "divide_or_zero",
    "register_rule",
    "step_count",
]
