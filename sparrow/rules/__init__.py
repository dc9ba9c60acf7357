"""Optimizers for table rows: each one equation, written once, run by every backend."""

from sparrow.rules.adagrad import F2A, Adagrad, AdagradMomentum, RowwiseAdagrad
from sparrow.rules.adam import LAMB, Adam, PartialRowwiseAdam, PartialRowwiseLAMB
from sparrow.rules.adaptive import Adadelta, LaProp, Lion, RMSprop
from sparrow.rules.base import PER_ELEMENT, PER_ROW, Hyper, Rule, ScalarOrSchedule, Slot, Slots
from sparrow.rules.dense import as_optax
from sparrow.rules.ftrl import FTRL
from sparrow.rules.sgd import SGD, LarsSGD

SHIPPED: tuple[type[Rule], ...] = (
    SGD,
    Adagrad,
    RowwiseAdagrad,
    AdagradMomentum,
    Adam,
    PartialRowwiseAdam,
    LAMB,
    PartialRowwiseLAMB,
    LarsSGD,
    FTRL,
    LaProp,
    F2A,
    Adadelta,
    RMSprop,
    Lion,
)
"""Every rule that comes with the package."""

__all__ = [
    "F2A",
    "FTRL",
    "LAMB",
    "PER_ELEMENT",
    "PER_ROW",
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
]
