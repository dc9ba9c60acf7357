"""What an export reads and gives, in words that a stranger understands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparrow.config import Task
from sparrow.data import ComboFeature, Feature, IdFeature, RawFeature, SequenceFeature
from sparrow.exports.functions import Exported
from sparrow.runs.predictions import columns_of, meaning
from sparrow.serving.description import Input, Output


def inputs(features: Sequence[Feature]) -> dict[str, Input]:
    """The columns that the features are made from."""
    made: dict[str, Input] = {}
    for feature in sorted(features, key=lambda feature: isinstance(feature, ComboFeature)):
        for column in feature.columns:
            words, users = holds(feature, column), [feature.name]
            if before := made.get(column):
                users = [*before.features, feature.name]
                # What can be crossed is what any id may be: the other feature says it more exactly.
                known = isinstance(feature, ComboFeature) or words in before.holds
                words = before.holds if known else f"{before.holds}; {words}"
            made[column] = Input(words, users)
    return made


def holds(feature: Feature, column: str) -> str:
    """What a column holds that a feature is made from.

    >>> holds(IdFeature("item", num_buckets=100, embedding_dim=8), "item")
    'whole numbers from 0 to 99; may be missing'
    >>> holds(IdFeature("tags", hash_bucket_size=100, embedding_dim=8, separator="|"), "tags")
    "whole numbers or texts; lists, or texts with '|' between; may be missing"
    >>> holds(RawFeature("price", missing=None), "price")
    'numbers'
    """
    if isinstance(feature, RawFeature):
        count = "numbers" if feature.dim == 1 else f"lists of {feature.dim} numbers"
        return count + ("; may be missing" if feature.missing is not None else "")
    if isinstance(feature, ComboFeature):
        return "whole numbers or texts; may be missing"
    if not isinstance(feature, IdFeature | SequenceFeature):
        return f"as the feature '{feature.name}' reads it"
    if isinstance(feature, IdFeature) and column == feature.weight_column:
        return f"as many weights as ids of '{feature.id_column}'"
    if feature.num_buckets is not None:
        words = f"whole numbers from 0 to {feature.num_buckets - 1}"
    elif feature.words is not None:
        words = f"words of a vocabulary of {len(feature.words)}"
    else:
        words = "whole numbers or texts"
    if feature.separator is not None:
        words += f"; lists, or texts with {feature.separator!r} between"
    elif isinstance(feature, SequenceFeature) or feature.weight_column is not None or feature.pooling is not None:
        words += "; one a row, or lists"
    return words + "; may be missing"


def outputs(tasks: Mapping[str, Task], made: Exported) -> dict[str, Output]:
    """The arrays that a function gives."""
    task_of = {column: name for name, column in columns_of(tasks).items()}
    described = {}
    for name, (shape, dtype) in made.outputs.items():
        task = task_of.get(name)
        words = f"vector of the {name} tower" if task is None else meaning(tasks[task])
        described[name] = Output(shape, dtype, words, task)
    return described
