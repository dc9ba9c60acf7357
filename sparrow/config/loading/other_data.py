"""`evaluated_on`: a config with other data to evaluate on."""

from __future__ import annotations

from typing import Any

from sparrow.config.sections.config import Config
from sparrow.data import source_of
from sparrow.errors import ConfigError, Problem


def evaluated_on(config: Config, data: Any) -> Config:
    """Return the config with other data to evaluate on, as `sparrow.data.source_of` takes it.

    Files are read with the options of ``data.evaluate``, else of ``data.train``, where these read such files.
    """
    section = config.data
    if section is None:
        raise ConfigError([Problem(("data",), "is required")])
    source = source_of(data, section.evaluate, section.train)
    return config.model_copy(update={"data": section.model_copy(update={"evaluate": source})})
