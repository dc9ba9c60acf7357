"""Where examples come from and what is read from them: the section ``data`` of a config."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Literal

from pydantic import Field, model_validator

from sparrow.config.records import FeatureRecord, LabelRecord, SourceRecord
from sparrow.config.section import Section


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
    shuffle_rows: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Rows that are shuffled among each other, at least; 0: rows come in the source's order."""
    drop_remainder: bool = False
    """Whether an epoch's last rows are left out where they fill no batch."""
    bad_rows: Literal["error", "skip"] = "error"
    """A malformed row is an error, or is left out and counted."""
    ahead: Annotated[int, Field(ge=0, le=1000)] = 2
    """Batches that are made early, in the background."""

    @model_validator(mode="after")
    def _check(self) -> Data:
        for kind, names in (("features", [f.name for f in self.features]), ("labels", [lb.name for lb in self.labels])):
            twice = [name for name, count in Counter(names).items() if count > 1]
            if twice:
                raise ValueError(f"two of the {kind} are called '{twice[0]}'; names must be unique")
        return self
