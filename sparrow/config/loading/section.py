"""`Section`: the base of all parts of a config."""

from __future__ import annotations

from typing import Any

import pydantic
from pydantic import BaseModel

from sparrow.config.loading.problems import problems
from sparrow.config.loading.records import STRICT
from sparrow.errors import ConfigError
from sparrow.registry import freeze


class Section(BaseModel):
    """A part of a config: typed fields, unknown ones refused, never changed once made.

    Problems raise a `ConfigError` with one line each, from Python as from a file.
    """

    model_config = STRICT

    def __init__(self, **fields: Any) -> None:
        fields = freeze(fields)
        try:
            super().__init__(**fields)
        except pydantic.ValidationError as error:
            raise ConfigError(problems(error, fields, type(self).model_fields)) from None
