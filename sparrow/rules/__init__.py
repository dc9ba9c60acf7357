"""Optimizers for table rows: each one equation, written once, run by every backend."""

from typing import TYPE_CHECKING, Any

from sparrow.registry import nearest
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
from sparrow.rules.sgd import SGD, LarsSGD
from sparrow.rules.shipped import RULES, SHIPPED, register_rule
from sparrow.rules.to_optax import as_optax

__all__ = [
    "F2A",
    "FTRL",
    "LAMB",
    "PER_ELEMENT",
    "PER_ROW",
    "RULES",
    "SGD",
    "Adadelta",
    "Adagrad",
    "AdagradMomentum",
    "Adam",
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
    "as_optax",
    "bias_correction",
    "divide_or_zero",
    "register_rule",
    "step_count",
]


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:  # a type checker knows the names

    def __getattr__(name: str) -> Any:
        """Answer the name of another library's optimizer, such as ``AdagradOptimizerSpec``, with the one here."""
        if name.startswith("__"):
            raise AttributeError(f"module 'sparrow.rules' has no attribute '{name}'")
        bare = name.removesuffix("OptimizerSpec").removesuffix("Optimizer")
        shipped = [rule.__name__ for rule in SHIPPED]
        answer = f"did you mean '{bare}'?" if bare in shipped else nearest(bare, shipped)
        raise AttributeError(f"module 'sparrow.rules' has no rule '{name}': {answer}")
