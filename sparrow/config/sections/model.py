"""The section ``model`` of a config: the architecture, and the features that it reads."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from sparrow.config.loading.records import ArchitectureRecord, EncoderRecord
from sparrow.config.loading.section import Section
from sparrow.config.sections.tables import TableOptions
from sparrow.config.sections.train import Count, Name, Names, NotNegative
from sparrow.registry import nearest


class Model(Section):
    """The architecture, and the groups of features that it reads."""

    architecture: ArchitectureRecord
    """The model's name, or a mapping with its name and options."""
    groups: Annotated[dict[Name, Names], Field(min_length=1)]
    """The names of the features in each group; the architecture defines the groups that it reads."""
    wide_dim: Count = 1
    """The embedding dim of features in a group of their own tables, such as the wide part of Wide & Deep."""
    encoders: dict[Name, tuple[EncoderRecord, ...]] = {}
    """Encoders of histories, by the group that their results join; each reads a group of its own, its input."""
    variational_dropout: NotNegative | None = None
    """The strength of variational dropout, which learns the features of each group that the model can do without."""

    tables: tuple[TableOptions, ...] = ()
    """Tables that start from other values, or are kept in another precision."""

    @model_validator(mode="after")
    def _check(self) -> Model:
        for group, names in self.groups.items():
            if len(set(names)) < len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise ValueError(f"group '{group}' names the feature '{twice}' more than once")
        for group, encoders in self.encoders.items():
            for encoder in encoders:
                if encoder.input not in self.groups:
                    raise ValueError(
                        f"an encoder of '{group}' reads the group '{encoder.input}': "
                        f"{nearest(encoder.input, self.groups)}"
                    )
        return self
