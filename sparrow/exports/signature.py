"""Inputs and outputs of an export, described in words for people who have not seen the config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sparrow.config import Task
from sparrow.data import CANDIDATES, Feature, Holds
from sparrow.exports.functions import Exported
from sparrow.serving.description import LEFT, STATE, Input, Output
from sparrow.tasks import meaning

STATE_OUTPUTS: Final = {STATE: "state of the history", LEFT: "number of further events that fit"}


def inputs(features: Sequence[Feature], kinds: Mapping[str, str]) -> dict[str, Input]:
    """Return the columns that the features are made from. ``kinds``: of ids in training, by column.

    >>> from sparrow.data import IdFeature
    >>> tags = IdFeature("tags", hash_bucket_size=100, embedding_dim=8)
    >>> inputs([IdFeature("item", num_buckets=100, embedding_dim=8), tags], {"tags": "strings"})
    {'item': Input(holds='integers from 0 to 99; may be missing', features=['item'], ids=None),
     'tags': Input(holds='strings; may be missing', features=['tags'], ids='strings')}
    """
    held: dict[str, dict[str, Holds]] = {}
    for feature in features:
        for column in feature.columns:
            held.setdefault(column, {})[feature.name] = feature.holds(column)
    made = {}
    for column, users in held.items():
        words = _words(list(users.values()))
        if (kind := kinds.get(column)) is not None:
            words = words.replace("integers or strings", kind, 1)
        made[column] = Input(words, list(users), kind)
    return made


def _words(held: Sequence[Holds]) -> str:
    """Return the words of all features of a column, each once; general ones only where there are no others."""
    exact = [words for words, is_general in held if not is_general]
    return "; ".join(dict.fromkeys(exact or [words for words, _ in held]))


def outputs(tasks: Mapping[str, Task], made: Exported) -> dict[str, Output]:
    """Return the arrays that a function returns."""
    described = {}
    for name, (shape, dtype) in made.outputs.items():
        task = name if name in tasks else None
        tower = name.removesuffix("_vector")
        words = f"vector of the {tower} tower" if task is None else meaning(tasks[task])
        if name in STATE_OUTPUTS:
            words = STATE_OUTPUTS[name]
        elif name == CANDIDATES:
            words = "number of candidates"
        elif CANDIDATES in made.outputs:
            words += " of each candidate"
        described[name] = Output(shape, dtype, words, task)
    return described
