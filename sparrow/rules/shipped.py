"""Every rule that comes with the package, by name as configs write them, with descriptions of the fields they share."""

from __future__ import annotations

import re
from typing import Final

import sparrow.schedules  # noqa: F401  the numbers of a rule may be schedules, by name
from sparrow.registry import Registry
from sparrow.rules.adagrad import F2A, Adagrad, AdagradMomentum, RowwiseAdagrad
from sparrow.rules.adam import LAMB, Adam, PartialRowwiseAdam, PartialRowwiseLAMB
from sparrow.rules.adaptive import Adadelta, LaProp, Lion, RMSprop
from sparrow.rules.base import Rule
from sparrow.rules.ftrl import FTRL
from sparrow.rules.sgd import SGD, LarsSGD

DESCRIPTIONS: Final = {
    "alpha": "The decay of the running mean of squared gradients.",
    "beta": "Added to the root of the accumulator.",
    "beta1": "The decay of the running mean of gradients.",
    "beta2": "The decay of the running mean of squared gradients.",
    "bias_correction": 'The count that corrects the means: steps of training ("step"), or updates of the row ("row").',
    "eps": "A small number in the denominator.",
    "eta": "The trust coefficient, a multiple of the ratio of the row's norm to its gradient's.",
    "exponent": "The power of the accumulator that divides the gradient.",
    "initial_accumulator": "The accumulator of a row that has had no update.",
    "initial_linear": "The linear term of a row that has had no update.",
    "initial_momentum": "The momentum of a row that has had no update.",
    "initial_slot": "Both slots of a row that has had no update.",
    "l1": "The strength of the L1 penalty.",
    "l2": "The strength of the L2 penalty.",
    "learning_rate_power": "The power of the accumulator that scales the rate.",
    "max_norm": "The largest norm of a row after its update.",
    "momentum": "The decay of the momentum; 0 keeps none.",
    "multiply_linear_by_learning_rate": "Whether the linear term holds the rate, as in some implementations.",
    "nesterov": "Whether to look one step ahead along the momentum.",
    "rho": "The decay of the running means.",
    "weight_decay": "The share of a touched row that each update takes off, times the learning rate.",
    "weight_decay_mode": 'Weight decay "none", "l2" (joins the gradient) or "decouple" (acts on the row alone).',
}


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


RULES: Final[Registry[Rule]] = Registry("rule", Rule, descriptions=DESCRIPTIONS)
register_rule = RULES.register
"""Class decorator: makes a rule of yours known to configs, by name."""

_WORDS: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
_ONE_WORD: Final = {"LaProp": "laprop"}


def snake_case(name: str) -> str:
    """Return a class's name as configs write it.

    >>> snake_case("PartialRowwiseLAMB"), snake_case("RMSprop"), snake_case("LarsSGD")
    ('partial_rowwise_lamb', 'rmsprop', 'lars_sgd')
    """
    return _ONE_WORD.get(name) or _WORDS.sub("_", name).lower()


for _rule in SHIPPED:
    register_rule(snake_case(_rule.__name__))(_rule)
