"""Where examples come from and what is read from them: the section ``data`` of a config."""

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
    """The column of the item's id in the examples: a drawn item that an example chose is none of its negatives."""
    items_id_column: Name | None = None
    """The column of the id in the items; that of the examples, unless given."""
    weight_column: Name | None = None
    """The column of the items that says how often each is drawn, in proportion; all as often, unless given."""
    count: Count
    """How many are drawn for a batch of training."""
    evaluate_count: Count | None = None
    """How many are drawn for a batch of evaluation; as many as in training, unless given."""


class Data(Section):
    """Where examples come from, and what is read from them."""

    train: SourceRecord
    """What to train on."""
    features: Annotated[tuple[FeatureRecord, ...], Field(min_length=1)]
    """The inputs of the model."""
    evaluate: SourceRecord | None = None
    """What to evaluate on."""
    labels: tuple[LabelRecord, ...] = ()
    """Labels that are made from a column, such as "a rating of at least 4"; others are columns as they stand."""
    negatives: Negatives | None = None
    """What negatives are drawn from, for the losses sampled_softmax and bpr."""
    shuffle_rows: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Rows that are shuffled among each other, at least; 0: rows come in the source's order."""
    drop_remainder: bool = False
    """Whether an epoch's last rows are left out where they fill no batch."""
    bad_rows: Literal["error", "skip"] = "error"
    """A malformed row is an error, or is left out and counted."""
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
