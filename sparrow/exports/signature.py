"""Inputs and outputs of an export, described in words for people who have not seen the config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparrow.config import Task
from sparrow.data import CANDIDATES, Feature, Holds
from sparrow.exports.functions import Exported
from sparrow.serving.description import Input, Output
from sparrow.tasks import meaning


def inputs(features: Sequence[Feature]) -> dict[str, Input]:
    """Return the columns that the features are made from.

    >>> from sparrow.data import IdFeature, RawFeature
    >>> tags = IdFeature("tags", hash_bucket_size=100, embedding_dim=8, separator="|")
    >>> inputs([IdFeature("item", num_buckets=100, embedding_dim=8), tags, RawFeature("price", missing=None)])
    {'item': Input(holds='integers from 0 to 99; may be missing', features=['item']),
     'tags': Input(holds="integers or strings; lists, or strings separated by '|'; may be missing", features=['tags']),
     'price': Input(holds='numbers', features=['price'])}
    """
    held: dict[str, dict[str, Holds]] = {}
    for feature in features:
        for column in feature.columns:
            held.setdefault(column, {})[feature.name] = feature.holds(column)
    return {column: Input(_words(list(users.values())), list(users)) for column, users in held.items()}


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
        if name == CANDIDATES:
            words = "number of candidates"
        elif CANDIDATES in made.outputs:
            words += " of each candidate"
        described[name] = Output(shape, dtype, words, task)
    return described
