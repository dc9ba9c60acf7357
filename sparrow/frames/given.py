"""`given_rows`: the rows that `guess` looks at, and the sources to train and evaluate on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparrow import fields
from sparrow.config import ConfigError
from sparrow.data import HeldOut, Source, Tables, cut_in_two, opened, source_of

SAMPLE: Final = 200_000
"""Rows of a file that are looked at."""
FEW: Final = 1_000
"""Files of fewer rows are cut in two to see that both parts have rows."""


class Given(NamedTuple):
    """Rows to look at, and the sources to train and evaluate on.

    Attributes:
      seen: a table of rows.
      complete: whether these are all rows.
      train: the rows to train on.
      evaluate: the rows to evaluate on, or None.
      notes: sentences about them.
    """

    seen: Any
    complete: bool
    train: Source
    evaluate: Source | None
    notes: tuple[str, ...] = ()


def given_rows(data: Any, targets: Sequence[str], evaluate: Any, by: str | None, seed: int, matching: bool) -> Given:
    """Return the rows of data that `guess` was given; its arguments are those of `guess`.

    ``matching``: whether a model of two towers is to learn from rows that were chosen.
    """
    source = opened(data)
    is_share = isinstance(evaluate, float) and not isinstance(evaluate, bool)
    other = None if evaluate is None or is_share else source_of(evaluate, source)
    if is_share:
        fields.number("guess: evaluate", evaluate, above=0, below=1)
    if not isinstance(source, Tables):
        seen, complete = _sample(source)
        if matching and targets and pc.any(pc.less_equal(seen[targets[0]].cast(pa.float64()), 0)).as_py():
            raise ConfigError(f"two towers learn from rows that were chosen; leave out those whose {targets[0]} is 0")
        if not is_share:
            return Given(seen, complete, source, other)
        train, held_out = _cut(source, evaluate, by, seed)
        if complete and seen.num_rows < FEW and not all(_num_rows(part) for part in (train, held_out)):
            raise ConfigError(_leaves_none(evaluate, seen.num_rows))
        return Given(seen, complete, train, held_out)
    table = source.table
    notes: tuple[str, ...] = ()
    if matching and targets and targets[0] in table.column_names:
        chosen = np.flatnonzero(pc.fill_null(pc.greater(table[targets[0]].cast(pa.float64()), 0), False).to_numpy())
        if len(chosen) < table.num_rows:
            notes = (f"two towers learn from the {len(chosen):,} rows whose {targets[0]} is above 0",)
            source = source.take(chosen)
            table = source.table
    if not table.num_rows:
        raise ConfigError("the data holds no rows")
    if not is_share:
        return Given(table, True, source, other, notes)
    parts = cut_in_two(source, evaluate, by, seed)
    if not all(part.table.num_rows for part in parts):
        raise ConfigError(_leaves_none(evaluate, table.num_rows))
    notes += (f"{parts[1].table.num_rows:,} of {table.num_rows:,} rows are held out to evaluate on",)
    return Given(table, True, *parts, notes)


def _cut(source: Source, share: float, by: str | None, seed: int) -> tuple[HeldOut, HeldOut]:
    parts: tuple[Literal["train"], Literal["evaluate"]] = ("train", "evaluate")
    train, held_out = (HeldOut(source, part, share, by, seed) for part in parts)
    return train, held_out


def _leaves_none(share: float, rows: int) -> str:
    return f"evaluate={share:g} of {rows} rows leaves none; give more rows, other data to evaluate on, or evaluate=None"


def _num_rows(source: Source) -> int:
    reader = source.open(source.column_names()[:1])
    return sum(reader.read(chunk, "skip").table.num_rows for chunk in range(reader.num_chunks))


def _sample(source: Source) -> tuple[Any, bool]:
    """Return the first rows of a source, and whether these are all."""
    names = source.column_names()
    reader = source.open(names)
    tables: list[Any] = []
    while len(tables) < reader.num_chunks and sum(table.num_rows for table in tables) < SAMPLE:
        tables.append(reader.read(len(tables), "skip").table)
    if tables and not any(table.num_rows for table in tables):
        reader.read(0, "error")  # raises the reason why all of its rows were skipped
    if not any(table.num_rows for table in tables):
        raise ConfigError("the data holds no rows")
    return pa.concat_tables(tables, promote_options="permissive").combine_chunks(), len(tables) == reader.num_chunks
