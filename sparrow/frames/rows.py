"""The rows that a frame gives: those to look at, and those that are held out to evaluate on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparrow import fields
from sparrow.config import ConfigError
from sparrow.data import HeldOut, Source, Tables, opened, source_of

SAMPLE: Final = 200_000
"""Rows of a file that are looked at."""
FEW: Final = 1_000
"""Files of fewer rows are cut in two to see that both parts have rows; two towers are judged by as many at least."""
TENTH: Final = 0.1
"""The share of the rows that is held out by default."""
EVALUATION: Final = 0.2
"""The largest share of a run that evaluations take by default."""
STEP: Final = 400_000
"""The fixed time of a training step, in scores of a row and an item: about 2 ms on two cores."""


class Given(NamedTuple):
    """Rows to look at, their source, and its number of rows: of those seen, where it is not known.

    ``complete``: whether all were seen; ``notes``: sentences about them.
    """

    seen: Any
    complete: bool
    train: Source
    rows: int
    notes: tuple[str, ...] = ()


def given_rows(data: Any, targets: Sequence[str], matching: bool) -> Given:
    """Return the rows of data; ``matching``: whether two towers are to learn from rows that were chosen."""
    source = opened(data)
    if not isinstance(source, Tables):
        seen, complete, rows = _sample(source)
        if matching and targets and pc.any(pc.less_equal(seen[targets[0]].cast(pa.float64()), 0)).as_py():
            raise ConfigError(f"two towers learn from rows that were chosen; leave out those whose {targets[0]} is 0")
        return Given(seen, complete, source, rows)
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
    return Given(table, True, source, table.num_rows, notes)


def _sample(source: Source) -> tuple[Any, bool, int]:
    """Return the first rows of a source, whether these are all, and the number of all where it is known."""
    names = source.column_names()
    reader = source.open(names)
    tables: list[Any] = []
    while len(tables) < reader.num_chunks and sum(table.num_rows for table in tables) < SAMPLE:
        tables.append(reader.read(len(tables), "skip").table)
    if tables and not any(table.num_rows for table in tables):
        reader.read(0, "error")  # raises the reason why all of its rows were skipped
    if not any(table.num_rows for table in tables):
        raise ConfigError("the data holds no rows")
    seen = pa.concat_tables(tables, promote_options="permissive").combine_chunks()
    return seen, len(tables) == reader.num_chunks, reader.num_rows or seen.num_rows


def share_held_out(rows: int, items: int, batch_size: int) -> tuple[float, int]:
    """Return the share of rows to hold out, and the epochs between evaluations, so that these take a fifth of a run.

    The unit is the score of a row and an item. A row of two towers meets the batch three times in training (once
    forward, twice for gradients), besides its part of the `STEP`; in evaluation it meets the batch and all items once.

    >>> share_held_out(600_000, 3_500, 1024), share_held_out(5_000, 20_000, 64)
    ((0.1, 1), (0.1, 1))
    >>> share_held_out(10_000_000, 1_000_000, 1024), share_held_out(5_000, 1_000_000, 64)
    ((0.00086, 1), (0.1, 62))
    """
    if not items:
        return TENTH, 1
    most = EVALUATION / (1 - EVALUATION) * (3 * batch_size + STEP / batch_size) / (batch_size + items)
    share = float(f"{min(TENTH, max(most, FEW / rows)):.2g}")
    return share, max(1, round(share / most))


def held_out(held: Given, evaluate: Any, by: str | None, seed: int) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the fields of the section ``data`` that give rows to evaluate on, and a sentence about them."""
    if evaluate is None:
        return {}, ()
    if not isinstance(evaluate, float):
        return {"evaluate": source_of(evaluate, held.train)}, ()
    fields.number("evaluate", evaluate, above=0, below=1)
    total = held.rows
    if isinstance(held.train, Tables) or (held.complete and total < FEW):
        parts: tuple[Literal["train"], Literal["evaluate"]] = ("train", "evaluate")
        counts = [_num_rows(HeldOut(held.train, part, evaluate, by, seed)) for part in parts]
        if not all(counts):
            raise ConfigError(
                f"evaluate={evaluate:g} of {total} rows leaves none; give more rows, other data to evaluate on, or "
                "evaluate=None"
            )
        notes: tuple[str, ...] = (f"{counts[1]:,} of {total:,} rows are held out to evaluate on",)
    else:
        notes = ()
    split: dict[str, Any] = {"share": evaluate, **({"seed": seed} if seed else {})}
    return {"split": split if by is None else {**split, "by": "user", "column": by}}, notes


def held_events(evaluate: Any) -> dict[str, Any]:
    """Return the fields of the section ``data.histories`` that hold events out."""
    if evaluate is True or evaluate is None:
        return {} if evaluate else {"last": 0}
    if isinstance(evaluate, float):
        fields.number("evaluate", evaluate, above=0, below=1)
        return {"newest": evaluate}
    raise ConfigError("with time=, evaluate is True (the last event of each user), a share of the newest, or None")


def _num_rows(source: Source) -> int:
    reader = source.open(source.column_names()[:1])
    return sum(reader.read(chunk, "skip").table.num_rows for chunk in range(reader.num_chunks))
