"""One table of all dense optimizers, one suite of properties that each must have.

A new optimizer costs one row here.
"""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Row:
    """One optimizer under test: ``dense.build(name, learning_rate, **hyper)``."""

    name: str
    learning_rate: float  # converges on the targets below in a few hundred steps
    hyper: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        return "-".join([self.name, *(f"{key}={value}" for key, value in self.hyper.items())])


OPTIMIZERS = [
    Row("sgd", 0.1),
]
