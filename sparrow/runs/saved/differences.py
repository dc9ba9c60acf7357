"""The differences between two configs, field by field."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from sparrow import processes
from sparrow.config import Config, ConfigError, Problem, dumps, loads, plain
from sparrow.errors import Path, dotted, shown

_NOTHING: Any = object()
PLACES: Final = (("data", "train"), ("data", "evaluate"))
"""Fields in which processes of one run may differ."""


class Difference(NamedTuple):
    """A field with two values."""

    field: Path
    before: Any
    now: Any

    @property
    def sentence(self) -> str:
        return f"was {_text(self.before)}, is now {_text(self.now)}"

    def __str__(self) -> str:
        return f"{dotted(self.field)}: {self.sentence}"


def differences(before: Config, now: Config) -> list[Difference]:
    """Return the fields that differ, defaults included, in the order of the config.

    >>> from sparrow.config import Config
    >>> tasks = {"click": {"label": "clicked", "losses": ["binary_cross_entropy"]}}
    >>> def config(rate, steps):
    ...     return Config(
    ...         train={
    ...             "sparse_optimizer": {"name": "sgd", "learning_rate": rate},
    ...             "dense_optimizer": {"optimizer": "adam", "learning_rate": 0.1},
    ...             "batch_size": 8,
    ...             "steps": steps,
    ...         },
    ...         tasks=tasks,
    ...     )
    >>> print(*differences(config(0.1, 5), config(0.2, 9)), sep="\\n")
    train.sparse_optimizer.learning_rate: was 0.1, is now 0.2
    train.steps: was 5, is now 9
    """
    return list(_between(plain(before, defaults=True), plain(now, defaults=True), ()))


def refuse_unequal(config: Config) -> None:
    """Raise `ConfigError` where the processes of a run have different configs. All processes call this together.

    Each process may have the data in a place of its own; that its rows are the same is checked while they are read.
    """
    text = dumps(config)
    if len(set(processes.said_by_all(hashlib.sha256(text.encode()).hexdigest()))) == 1:
        return
    texts = processes.said_by_all(text)
    for number, other in enumerate(texts):
        for found in differences(loads(texts[0]), loads(other)):
            if found.field[:2] not in PLACES:
                values = f"{_text(found.before)} in process 0 and {_text(found.now)} in process {number}"
                raise ConfigError([Problem(found.field, f"is {values}; make them equal")])


def _between(before: Any, now: Any, path: Path) -> Iterator[Difference]:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in [*before, *(key for key in now if key not in before)]:
            yield from _between(before.get(key, _NOTHING), now.get(key, _NOTHING), (*path, key))
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for index, pair in enumerate(zip(before, now, strict=True)):
            yield from _between(*pair, (*path, index))
    elif before != now:
        yield Difference(path, before, now)


def _text(value: Any) -> str:
    return "not there" if value is _NOTHING else shown(value)
