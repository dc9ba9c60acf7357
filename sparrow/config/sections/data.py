"""The section ``data`` of a config: sources, features, labels, negatives."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Literal

from pydantic import Field, model_validator

from sparrow.config.loading.records import FeatureRecord, LabelRecord, SourceRecord
from sparrow.config.loading.section import Section
from sparrow.config.sections.train import Count, Name


class Negatives(Section):
    """Items that are drawn as negatives for each batch, for a model with two towers."""

    items: SourceRecord
    """A row per item, with the columns that its features need."""
    group: Name
    """The group of features, in model.groups, that describe an item."""
    id_column: Name
    """The column of the item's id in the examples; items that the example chose are excluded from its negatives."""
    items_id_column: Name | None = None
    """The column of the id in the items. Default: id_column."""
    weight_column: Name | None = None
    """The column of the items with their sampling weights. Default: all items are drawn equally often."""
    count: Count
    """Items drawn per training batch."""
    evaluate_count: Count | None = None
    """Items drawn per evaluation batch. Default: count."""


class Data(Section):
    """The sources of examples, and the features and labels read from them."""

    train: SourceRecord
    """The source to train on."""
    features: Annotated[tuple[FeatureRecord, ...], Field(min_length=1)]
    """The inputs of the model."""
    evaluate: SourceRecord | None = None
    """The source to evaluate on."""
    labels: tuple[LabelRecord, ...] = ()
    """Labels that are made from a column, such as "a rating of at least 4"; a label that is not listed is a column."""
    negatives: Negatives | None = None
    """The source of negatives, for the losses sampled_softmax and bpr."""
    shuffle_rows: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """The least number of rows that are shuffled together; 0 keeps the order of the source."""
    drop_remainder: bool = False
    """Whether to drop the last rows of an epoch that do not fill a batch."""
    bad_rows: Literal["error", "skip"] = "error"
    """The reaction to a malformed row: raise an error, or skip the row and count it."""
    ahead: Annotated[int, Field(ge=0, le=1000)] | None = None
    """Batches that are made early, in the background; two more than threads, unless given."""
    threads: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Threads that read and convert; the cores of the machine less two, at least one, unless given."""
    memory_ahead: Annotated[int, Field(ge=1)] = 2**31
    """Bytes that rows made early may take, about: 2 GiB unless given."""

    @model_validator(mode="after")
    def _check(self) -> Data:
        for kind, names in (("features", [f.name for f in self.features]), ("labels", [lb.name for lb in self.labels])):
            twice = [name for name, count in Counter(names).items() if count > 1]
            if twice:
                raise ValueError(f"two of the {kind} are called '{twice[0]}'; names must be unique")
        return self
