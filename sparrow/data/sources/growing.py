"""`GrowingReader`: chunks that come while they are read, each once, in one order that a resumed run repeats.

A stream is a list of entries: a file, or a range of messages. Each has some chunks, which are numbered throughout. The
order in which entries came is written to a journal before they are read, so that a resumed run takes the same ones in
the same order; a position names the entry and the chunk in it, and stands by itself where the journal is lost. Of
several processes, the first decides the order, and the others take the same entries: `Order`.
"""

from __future__ import annotations

import abc
import dataclasses
import datetime
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from sparrow import fields
from sparrow.data.errors import DataError
from sparrow.data.sources.base import BadRows, Reader, Rows, Source, registry
from sparrow.kernels.feed import Encoded, EncodedText

Kind = Literal["chunk", "cut", "end", "stop"]
"""The next thing in a stream: rows, the early end of a batch, the end of the stream, or a request to stop reading."""
Entry = dict[str, Any]
"""Plain values that find the rows of an entry again."""
POLL: float = 0.05
"""Seconds between two looks at a request to end."""


class Flight(NamedTuple):
    """The place of a chunk among all that may hold the watermark back: what it depends on, besides the chunk's rows.

    Attributes:
      partition: the partition of a topic that the rows are of, or the file.
      others: the partitions that hold the watermark beside it, in any order; idle ones do not.
      least: the least time of the entries that wait already; None: not known.
    """

    partition: str
    others: tuple[str, ...] = ()
    least: float | None = None


class Order(Protocol):
    """The order of entries that several processes agree on. The first process (``is_first``) decides it."""

    is_first: bool

    def put(self, entry: Entry) -> None:
        """Give the next entry to the other processes."""

    def get(self) -> Entry | None:
        """Return the next entry of the first process; None: it is not there yet."""

    def is_stopped(self) -> bool:
        """Return whether some process was asked to stop."""


class _Chunk(NamedTuple):
    """A chunk of an entry: its number there; ``reader`` None: a cut."""

    reader: Reader | None
    own: int
    mark: dict[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Growing(Source):
    """A source that grows while it is read: `open` returns a `GrowingReader`.

    Attributes:
      cut_seconds: rows that do not fill a batch are trained on where nothing came for this long; None: they wait.
      end_idle_seconds: the stream ends where nothing came for this long; None: it waits.
      end_at: the stream ends at this time, such as "2026-01-31T06:00:00+00:00"; None: it does not.
    """

    cut_seconds: fields.Positive | None = None
    end_idle_seconds: fields.Positive | None = None
    end_at: str | None = None

    def __post_init__(self) -> None:
        name = registry.name_of(self) if type(self) in registry else type(self).__name__
        fields.check(self, f"source '{name}': ")
        seconds_of(self.end_at)


class GrowingReader(Reader):
    """A reader of entries, which a subclass finds and opens; ``notes``: lines for the log."""

    grows = True

    def __init__(self, source: Growing, poll_seconds: float, name: str) -> None:
        """Take the source with its limits, the seconds between two looks for entries, and the name in errors."""
        self.name = name
        self.notes: deque[str] = deque(maxlen=1000)
        self._limits, self._ends_at, self._poll = source, seconds_of(source.end_at), poll_seconds
        self._lock = threading.RLock()
        self._chunks: dict[int, _Chunk] = {}
        self._count = self._entries = 0
        self._waiting: deque[Entry] = deque()  # known, and not opened
        self._replayed: deque[Entry] = deque()
        self._journal: BinaryIO | None = None
        self._recorded: list[Entry] = []
        self._first: tuple[Entry, Reader] | None = None
        self._left_out: list[Entry] = []  # before the first one that can be read
        self._has_rows = False  # since the last cut
        self._is_over = self._is_stopped = False
        self._order: Order | None = None  # None: this process is alone
        self._looked, self._came = -np.inf, time.monotonic()

    @abc.abstractmethod
    def look(self) -> list[Entry]:
        """Return the entries that came since the last look, in their order."""

    @abc.abstractmethod
    def open_entry(self, entry: Entry, is_new: bool) -> Reader | None:
        """Return the rows of an entry; None: they are left out. ``is_new``: else it was read before, and is the same.

        May add fields to a new entry, for the journal.
        """

    @abc.abstractmethod
    def took(self, entry: Entry) -> None:
        """Note that an entry is taken: `look` does not return it again."""

    @property
    @abc.abstractmethod
    def place(self) -> dict[str, Any]:
        """The place in the stream after the entries that were taken, for a position; plain values."""

    @abc.abstractmethod
    def go_to(self, place: Mapping[str, Any]) -> None:
        """Continue after a place, where no journal has the entries before it."""

    @abc.abstractmethod
    def flight_of(self, entry: Entry, own: int, column: str) -> Flight:
        """Return the place of chunk ``own`` of an entry; ``column``: of the times of its rows."""

    def has_ended(self) -> bool:
        """Return whether nothing comes any more after the entries that `look` has returned."""
        return False

    def is_behind(self, idle: float) -> bool:
        """Return whether entries that are known to exist have not come yet, after ``idle`` seconds without any."""
        return False

    def begin(self) -> None:
        """Wait for the first entry that can be read: its columns are those of the stream."""
        self._came = time.monotonic()  # finding the source may have taken long
        while self._first is None:
            while not self._waiting:
                if not self.look_again() and self._is_at_end():
                    raise DataError("the stream ended before its first rows; check its path and its end", self.name)
                if not self._waiting:
                    time.sleep(min(self._poll, POLL))
            self._came, entry = time.monotonic(), self._waiting[0]
            opened = self.open_entry(entry, is_new=True)
            if opened is None:
                self._left_out.append(self._waiting.popleft())
                self.took(entry)
            else:
                self._first, self.schemas = (entry, opened), opened.schemas

    @property
    def num_chunks(self) -> int:  # type: ignore[override]
        """The chunks that are known so far."""
        with self._lock:
            return self._count if self._first is None else self._first[1].num_chunks

    def known(self, chunk: int) -> Kind | None:
        """Return the kind of a chunk; None: it is not there yet. Opens the next entry, and never waits for one."""
        with self._lock:
            if chunk >= self._count and not (self._is_over or self._is_stopped):
                self._advance()
            if chunk < self._count:
                held = self._chunks.get(chunk)  # of those that are forgotten, only a cut may be asked for
                return "cut" if held is None or held.reader is None else "chunk"
            return "end" if self._is_over else "stop" if self._is_stopped else None

    def wait(self, chunk: int, is_over: Callable[[], bool]) -> Kind:
        """Wait until the kind of a chunk is known; ``is_over``: returns whether to return "end" at once."""
        while (kind := self.known(chunk)) is None:
            if is_over():
                return "end"
            time.sleep(min(self._poll, POLL))
        return kind

    def flight(self, chunk: int, column: str) -> Flight:
        with self._lock:
            held = self._chunks[chunk]
        return self.flight_of(held.mark["next"], held.own, column)

    def agree(self, order: Order) -> None:
        """Take the entries in the order that several processes agree on, from here on. All of them call this."""
        with self._lock:
            self._order = order
            if order.is_first:
                order.put({"entries": self._entries, "place": self.place})
                return
            while (begin := order.get()) is None:
                time.sleep(POLL)
            self._waiting, self._replayed, self._left_out, self._first = deque(), deque(), [], None
            self._entries = begin["entries"]
            self.go_to(begin["place"])

    def _advance(self) -> None:
        """Add the next entry, if there is one: its own where this process decides the order, else as it was decided."""
        if self._order is None:
            self._decide()
        elif self._order.is_first:
            try:
                self._decide()
            except Exception as error:
                self._order.put({"failed": str(error)})
                raise
            if self._is_over:
                self._order.put({"end": True})
            elif self._order.is_stopped() and not (self._waiting or self._replayed):
                self._is_stopped = True
                self._order.put({"stop": True})
        elif (entry := self._order.get()) is not None:
            self._follow(entry)

    def _follow(self, entry: Entry) -> None:
        """Do what the first process did."""
        if "failed" in entry:
            raise DataError(f"the first process cannot read on: {entry['failed']}", self.name)
        self._is_over, self._is_stopped = "end" in entry, "stop" in entry
        if not (self._is_over or self._is_stopped):
            self._add(entry, is_new=False)

    def _decide(self) -> None:
        """Add the chunks of the next entry, if there is one; else a cut, or the end, where it is due."""
        now = time.monotonic()
        if self._replayed:
            entry = self._replayed.popleft()
            self._add(entry, is_new=False)
            self._came = now
            return
        if not self._waiting and now - self._looked >= self._poll:
            self._looked = now
            self._waiting.extend(self.look())
        if self._waiting:
            self._add(self._waiting.popleft(), is_new=True)
            self._came = now
            return
        cut_seconds = self._limits.cut_seconds
        if self._is_at_end():
            self._is_over = True
        elif cut_seconds is not None and self._has_rows and now - self._came >= cut_seconds:
            self._add({"cut": True}, is_new=True)

    def _is_at_end(self) -> bool:
        most, idle = self._limits.end_idle_seconds, time.monotonic() - self._came
        if most is not None and idle >= most and not self.is_behind(idle):
            return True
        if self._ends_at is not None and time.time() >= self._ends_at:
            return True
        return self.has_ended() and not self.look_again()

    def look_again(self) -> bool:
        """Return whether entries came before the end was seen."""
        self._waiting.extend(self.look())
        return bool(self._waiting)

    def _add(self, entry: Entry, is_new: bool) -> None:
        before = {"entry": self._entries, **self.place}
        reader: Reader | None = None
        if "cut" not in entry:
            first, self._first = self._first, None
            reader = first[1] if first is not None and first[0] is entry else self.open_entry(entry, is_new)
            if reader is not None and reader.schemas[0][1] != self.schemas[0][1]:
                self._refuse_other_columns(reader)
        if is_new:
            self._record(entry)
        else:
            self._entries += 1
            self.took(entry)
        if self._order is not None and self._order.is_first:
            self._order.put(entry)
        own = range(1 if "cut" in entry else 0 if reader is None else reader.num_chunks)
        for number in own:
            self._chunks[self._count] = _Chunk(reader, number, {**before, "chunk": number, "next": entry})
            self._count += 1
        self._has_rows = (self._has_rows or bool(own)) and "cut" not in entry

    def _refuse_other_columns(self, reader: Reader) -> None:
        (first, kinds), (file, own) = self.schemas[0], reader.schemas[0]
        column = next(name for name in kinds if own[name] != kinds[name])
        why = f"the column holds {own[column]}, but {kinds[column]} in {first}; make the files alike"
        raise DataError(why, file, column=column)

    def _record(self, entry: Entry) -> None:
        """Write an entry to the journal, before any of its rows is trained on."""
        self._entries += 1
        self.took(entry)
        if self._journal is not None:
            self._journal.write(_line(entry))

    def mark(self, chunk: int) -> dict[str, Any]:
        """Return the place of a chunk, for a position; forgets the chunks before it."""
        with self._lock:
            for old in [number for number in self._chunks if number < chunk]:
                del self._chunks[old]
            if chunk in self._chunks:
                return self._chunks[chunk].mark
            return {"entry": self._entries, **self.place, "chunk": 0, "next": None}

    def load(self, journal: Path) -> None:
        """Read the entries that a run took before, for `seek`; a journal of another stream is ignored."""
        try:
            lines = journal.read_bytes().split(b"\n")[:-1]  # the last piece is empty, or was cut off
            held = [json.loads(line) for line in lines]
        except (OSError, ValueError):
            held = []
        self._recorded = held[1:] if held and held[0] == {"stream": self.fingerprint} else []

    def seek(self, chunk: int, mark: Mapping[str, Any]) -> None:
        """Continue with a chunk, at its mark."""
        with self._lock:
            entry, own = int(mark["entry"]), int(mark["chunk"])
            self._chunks, self._waiting, self._is_over, self._is_stopped = {}, deque(), False, False
            self._count, self._entries = chunk - own, entry
            recorded = self._recorded
            is_here = len(recorded) >= entry and (mark["next"] is None or recorded[entry : entry + 1] == [mark["next"]])
            if is_here:
                for old in recorded[:entry]:
                    self.took(old)
                self._replayed = deque(recorded[entry:])
            else:
                if recorded:
                    self.notes.append("the journal of the stream does not fit the checkpoint; it is left out")
                self._recorded = []
                self.go_to(mark)
                self._replayed = deque([] if mark["next"] is None else [dict(mark["next"])])
            self._came = time.monotonic()

    def keep(self, journal: Path, is_new: bool = False) -> None:
        """Write the entries that are taken from now on to a journal, behind those of `load` unless ``is_new``."""
        with self._lock:
            self._recorded = [] if is_new else self._recorded
            left_out, self._left_out = ([] if self._recorded else self._left_out), []
            head = [{"stream": self.fingerprint}, *self._recorded, *left_out]
            self._entries += len(left_out)
            self._recorded = []
            partial = journal.with_name(f".{journal.name}.partial")
            partial.write_bytes(b"".join(map(_line, head)))
            partial.replace(journal)
            self._journal = journal.open("ab", buffering=0)

    def fetch(self, chunk: int) -> Encoded | EncodedText | None:
        reader, own = self._at(chunk)
        return reader.fetch(own)

    def chosen(self, chunk: int, rows: int) -> npt.NDArray[np.bool_] | None:
        reader, own = self._at(chunk)
        return reader.chosen(own, rows)

    def read(self, chunk: int, bad_rows: BadRows) -> Rows:
        reader, own = self._at(chunk)
        return reader.read(own, bad_rows)

    def _at(self, chunk: int) -> tuple[Reader, int]:
        with self._lock:
            if chunk not in self._chunks and self._first is not None:  # before the stream is read
                return self._first[1], chunk
            found = self._chunks[chunk]
        assert found.reader is not None
        return found.reader, found.own


def _line(entry: Entry) -> bytes:
    return (json.dumps(entry, separators=(",", ":")) + "\n").encode()


def seconds_of(time: str | None) -> float | None:
    """Return a time such as "2026-01-31T06:00:00+01:00" in seconds since 1970; without a zone it is of this machine.

    >>> seconds_of("1970-01-02T00:00:00+00:00")
    86400.0
    """
    if time is None:
        return None
    try:
        return datetime.datetime.fromisoformat(time).timestamp()
    except ValueError:
        raise ValueError(f"end_at must be a time such as 2026-01-31T06:00:00+00:00, got {time!r}") from None
