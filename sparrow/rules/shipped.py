"""Every rule that comes with the package."""

from __future__ import annotations

from typing import Final

from sparrow.rules.adagrad import F2A, Adagrad, AdagradMomentum, RowwiseAdagrad
from sparrow.rules.adam import LAMB, Adam, PartialRowwiseAdam, PartialRowwiseLAMB
from sparrow.rules.adaptive import Adadelta, LaProp, Lion, RMSprop
from sparrow.rules.base import Rule
from sparrow.rules.ftrl import FTRL
from sparrow.rules.sgd import SGD, LarsSGD

SHIPPED: Final[tuple[type[Rule], ...]] = (
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
