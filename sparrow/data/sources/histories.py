"""Histories from a plain log: a row per user or per event, with the events before it as lists."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparrow import fields
from sparrow.data.errors import DataError
from sparrow.data.sources.base import BadRows, Reader, Source, register_source
from sparrow.data.sources.held_out import numbers_of
from sparrow.data.sources.memory import Tables
from sparrow.data.values import offsets_of, places_of

HISTORY: Final = "_history"
"""The suffix of a column's name where it holds the values of the events before."""

Integers = npt.NDArray[np.int64]


@register_source("histories")
@dataclasses.dataclass(frozen=True)
class Histories(Source):
    """The events of another source by user, in the order of time: one to predict, and those before it.

    A row has the columns of its event, and for each of them, such as ``item``, the list ``item_history`` of the values
    of the user's events before, the oldest first. The log is held in memory.

    >>> log = Tables({"user": [1, 2, 1, 1, 2], "item": [10, 20, 11, 12, 21], "time": [1, 2, 3, 4, 5]})
    >>> for part in ("train", "evaluate"):
    ...     reader = Histories(log, "user", "item", "time", part).open(["item", "item_history"])
    ...     print(reader.read(0, "error").table.to_pydict())
    {'item': [11], 'item_history': [[10]]}
    {'item': [12, 21], 'item_history': [[10, 11], [20]]}

    Attributes:
      source: the log, a row per event.
      user: the column of the user.
      item: the column of the item.
      time: the column of the time; None: the order of the rows. Events of one time keep the order of the rows.
      part: "train", or "evaluate" for the events that are held out.
      rows: "user", a row for the newest event of each user that has others before it; "event": a row for each event.
        Of the part "evaluate", there is a row for each event that is held out.
      last: the events of each user that are held out, the newest; the oldest of these is evaluated on.
      newest: the share of all events that is held out instead, the newest by time; all of them are evaluated on.
      max_length: the most events before, the newest.
      bad_rows: the reaction to an event without user, item or time: "error", or "skip".
    """

    source: Source
    user: str
    item: str
    time: str | None = None
    part: Literal["train", "evaluate"] = "train"
    rows: Literal["user", "event"] = "user"
    last: Annotated[int, fields.Bounds(at_least=0)] = 1
    newest: Annotated[float, fields.Bounds(above=0, below=1)] | None = None
    max_length: fields.Count = 200
    bad_rows: BadRows = "error"

    def __post_init__(self) -> None:
        fields.check(self)
        if self.newest is not None and self.time is None:
            raise ValueError("source 'histories': newest holds out by time; set time to the column of the time")

    def column_names(self) -> list[str]:
        names = self.source.column_names()
        return [*names, *(name + HISTORY for name in names)]

    def open(self, columns: Sequence[str]) -> Reader:
        own = [self.user, self.item] if self.time is None else [self.user, self.item, self.time]
        known = self.source.column_names()
        of = {name: name if name in known else name.removesuffix(HISTORY) for name in columns}
        reader = self.source.open(list(dict.fromkeys([*own, *of.values()])))
        return Tables(_grouped(self, reader.fingerprint, tuple(of.items()))).open(columns)


@functools.lru_cache(maxsize=8)
def _grouped(histories: Histories, fingerprint: str, columns: tuple[tuple[str, str], ...]) -> Any:
    """Return the rows as a table: each of ``columns`` by the column of the log that it is made of."""
    log, users, times = _events(histories, [of for _, of in columns])
    held = np.zeros(len(users), np.bool_)
    if histories.newest is not None:
        begin = np.sort(times)[-max(round(histories.newest * len(times)), 1)]
        held = times >= begin
    # Events by user, in the order of time.
    order = np.lexsort((times, users))
    users, held = users[order], held[order]
    starts = np.searchsorted(users, users)  # the first event of each event's user
    ends = np.searchsorted(users, users, side="right")
    at = np.arange(len(users))
    if histories.newest is None:
        held = at >= ends - histories.last
    if histories.part == "evaluate":
        chosen = held & (at > starts)
        if histories.newest is None:
            chosen &= at == ends - histories.last
    else:
        chosen = ~held
        if histories.rows == "user":
            chosen &= (at > starts) & np.append(held[1:] | (users[1:] != users[:-1]), True)
    targets = np.flatnonzero(chosen)
    made = {}
    for name, of in columns:
        column = log[of].combine_chunks()
        if name == of:
            made[name] = column.take(pa.array(order[targets]))
        else:
            made[name] = _lists(column, order, np.maximum(starts[targets], targets - histories.max_length), targets)
    return pa.table(made)


def _events(histories: Histories, columns: list[str]) -> tuple[Any, Integers, npt.NDArray[np.float64]]:
    """Return the log, the number of each event's user, and the times."""
    own = [name for name in (histories.user, histories.item, histories.time) if name is not None]
    reader = histories.source.open(list(dict.fromkeys([*own, *columns])))
    parts = list(reader.tables(histories.bad_rows))
    if not parts:
        raise DataError("the log has no events", reader.schemas[0][0])
    log = pa.concat_tables(parts)
    times = np.zeros(log.num_rows)
    if histories.time is not None:
        times = numbers_of(log[histories.time].combine_chunks(), histories.time)
    missing = np.isnan(times)
    for name in own[:2]:
        missing |= log[name].is_null().to_numpy()
    if missing.any():
        if histories.bad_rows == "error":
            row = int(np.argmax(missing))
            why = f"an event has no value in one of the columns {', '.join(own)}; set data.bad_rows to skip such events"
            raise DataError(why, reader.schemas[0][0], f"event {row}")
        kept = np.flatnonzero(~missing)
        log, times = log.take(pa.array(kept)), times[kept]
    users = log[histories.user].combine_chunks()
    users = users if pa.types.is_dictionary(users.type) else users.dictionary_encode()
    return log, users.indices.to_numpy(zero_copy_only=False).astype(np.int64), times


def _lists(column: Any, order: Integers, starts: Integers, ends: Integers) -> Any:
    """Return the lists of the events from starts to ends, in ``order``."""
    lengths = ends - starts
    offsets = offsets_of(lengths)
    values = column.take(pa.array(order[places_of(starts, lengths)]))
    is_small = offsets[-1] < 2**31
    made = pa.ListArray if is_small else pa.LargeListArray
    return made.from_arrays(pa.array(offsets, pa.int32() if is_small else pa.int64()), values)
