"""The rules for tables by name, as configs write them."""

from __future__ import annotations

import re
from typing import Final

import sparrow.schedules  # noqa: F401  the numbers of a rule may be schedules, by name
from sparrow.registry import Registry
from sparrow.rules.base import Rule
from sparrow.rules.descriptions import DESCRIPTIONS
from sparrow.rules.shipped import SHIPPED

RULES: Final[Registry[Rule]] = Registry("rule", Rule, descriptions=DESCRIPTIONS)
register_rule = RULES.register
"""Class decorator: makes one's own rule known to configs, by name."""

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
