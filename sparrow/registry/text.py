"""YAML as the text of records and configs."""

from __future__ import annotations

import functools
from typing import Any


def load_yaml(text: str) -> Any:
    """Read YAML with JSON's idea of a number: ``1e-3`` is 0.001, not the string "1e-3" as in YAML 1.1."""
    import yaml

    return yaml.load(text, yaml_loader())


@functools.cache
def yaml_loader() -> Any:
    """Return the loader class that `load_yaml` uses."""
    import re

    import yaml

    class Loader(yaml.SafeLoader):
        pass

    Loader.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"^[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+$"),
        list("-+0123456789."),
    )
    return Loader
