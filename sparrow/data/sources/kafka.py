"""`Kafka`: rows of Kafka's topics, as they come. Needs ``pip install sparrow-rec[kafka]``.

An entry is the messages of a moment, by topic, partition and offset, a chunk those of one partition; the journal holds
their ranges, so that a resumed run reads the same messages from the broker. Offsets live in checkpoints alone: nothing
is committed to the broker.
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import itertools
import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import pyarrow as pa

from sparrow import fields
from sparrow.data.errors import DataError, shown
from sparrow.data.sources.base import BadRows, Reader, Rows, check_columns, register_source
from sparrow.data.sources.growing import Entry, Flight, Growing, GrowingReader
from sparrow.files import at

TIME: Final = "kafka_timestamp"
"""The column of a message's own time, in milliseconds since 1970."""
PATIENCE: Final = 30.0
"""Seconds to wait for a broker."""
NOT_READ: Final = (ValueError, TypeError, KeyError, IndexError, EOFError, StopIteration, pa.ArrowException)
"""Errors of messages that are not of the format."""
Parse = Callable[[bytes], list[dict[str, Any]]]
"""A function from a message to its rows."""


@register_source("kafka")
@dataclasses.dataclass(frozen=True)
class Kafka(Growing):
    """Topics of Kafka. Columns are the fields of the messages, and ``kafka_timestamp``.

    Attributes:
      servers: some of the brokers, such as "broker-1:9092,broker-2:9092".
      topics: the topics.
      format: the form of the messages: "json" (an object), "csv" (lines without a header), "avro" (a record), or
        "arrow" (a stream of record batches).
      columns: the names of the columns of csv, in order.
      types: Arrow's types by column, such as {item: int64, tags: "list<string>"}; of others the first messages decide.
      schema: the file of the Avro schema.
      avro_header: whether messages begin with the five bytes of a schema registry, which are left out.
      settings: a file of further settings of librdkafka, "key = value" lines; for credentials, which are neither logged
        nor saved.
      start: where a new run begins: "earliest" or "latest".
      chunk_rows: the most messages that are read together.
      chunk_seconds: the most seconds that messages wait for others that are read with them.
      idle_partition_seconds: a partition of which nothing came for this long holds the watermark back no longer.
    """

    servers: str
    topics: tuple[str, ...]
    format: Literal["json", "csv", "avro", "arrow"] = "json"
    columns: tuple[str, ...] | None = None
    types: Mapping[str, str] = dataclasses.field(default_factory=dict)
    schema: str | None = None
    avro_header: bool = False
    settings: str | None = None
    start: Literal["earliest", "latest"] = "earliest"
    chunk_rows: fields.Count = 8192
    chunk_seconds: fields.Positive = 0.5
    idle_partition_seconds: fields.Positive = 60.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.topics, str) or not self.topics:
            raise ValueError(f"source 'kafka': topics must be a list of names, got {self.topics!r}")
        if (self.columns is None) == (self.format == "csv"):
            raise ValueError("source 'kafka': columns are the names of the columns of csv, and of no other format")
        if (self.schema is None) == (self.format == "avro"):
            raise ValueError("source 'kafka': schema is the file of an Avro schema, for avro and no other format")
        for column, kind in self.types.items():
            type_of(column, kind)

    def open(self, columns: Sequence[str]) -> Reader:
        return KafkaReader(self, columns)

    def column_names(self) -> list[str]:
        """Return the columns of the first messages."""
        return KafkaReader(self, []).names

    def client(self) -> Any:
        """Return a consumer, which commits nothing."""
        try:
            from confluent_kafka import Consumer
        except ImportError:
            raise DataError("needs confluent-kafka; pip install 'sparrow-rec[kafka]'", "source 'kafka'") from None
        own = {"bootstrap.servers": self.servers, "group.id": "sparrow", "enable.auto.commit": False}
        return Consumer({**own, "auto.offset.reset": "error", **self._settings()}, logger=_silent())

    def _settings(self) -> dict[str, str]:
        if self.settings is None:
            return {}
        try:
            lines = at(self.settings).read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise DataError(f"cannot be read: {error.strerror}", self.settings) from None
        pairs = [line.partition("=") for line in lines if line.strip() and not line.startswith("#")]
        return {key.strip(): value.strip() for key, _, value in pairs}


class Message(NamedTuple):
    """A message: where it is, its own time, and its bytes."""

    topic: str
    partition: int
    offset: int
    time: int
    value: bytes

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition} offset {self.offset}"


class KafkaReader(GrowingReader):
    """Ranges of messages, as they come."""

    def __init__(self, source: Kafka, columns: Sequence[str]) -> None:
        """Find the partitions, and wait for the first messages."""
        super().__init__(source, 0.02, f"kafka {', '.join(source.topics)}")
        self._source, self._columns, self._parse = source, list(columns), _PARSERS[source.format](source)
        self._types = {column: type_of(column, kind) for column, kind in source.types.items()}
        self._client = source.client()
        self._next = self._starts()  # offsets after the entries that were taken
        self._is_assigned = False
        self._reading_again: Any = None  # a client, once it is needed
        self._buffer: list[Message] = []
        self._since, self._begun = 0.0, time.monotonic()
        self._came_at: dict[str, float] = {}  # when the last message of a partition came
        self._held: dict[str, list[Message]] = {}  # messages of entries that are not opened yet
        self.begin()

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint of the topics and the format: the offsets of a position are in the position."""
        text = repr((self._source.topics, self._source.format))
        return "kafka " + hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def names(self) -> list[str]:
        return [*self._types, TIME]

    def _starts(self) -> dict[str, int]:
        from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaException

        names: list[str] = []
        try:
            for topic in self._source.topics:
                found = self._client.list_topics(topic, timeout=PATIENCE).topics[topic]
                if found.error is not None or not found.partitions:
                    raise DataError(f"there is no such topic: {found.error or topic}", self.name)
                names += [f"{topic}/{number}" for number in sorted(found.partitions)]
            return self._offsets(names, OFFSET_BEGINNING if self._source.start == "earliest" else OFFSET_END)
        except KafkaException as error:
            raise DataError(f"cannot be reached: {error.args[0].str()}", self.name) from None

    def _offsets(self, names: Iterable[str], place: int) -> dict[str, int]:
        """Return the offset of a place in each partition: one request, as each waits behind that for new messages."""
        from confluent_kafka import KafkaException

        found = self._client.offsets_for_times(_partitions(dict.fromkeys(names, place)), timeout=PATIENCE)
        if errors := [one.error for one in found if one.error is not None]:
            raise KafkaException(errors[0])
        return {f"{one.topic}/{one.partition}": one.offset for one in found}

    def look(self) -> list[Entry]:
        """Return the messages that came, once there are enough, or they have waited long enough."""
        if not self._is_assigned:
            self._client.assign(_partitions(self._next))
            self._is_assigned = True
        left = self._source.chunk_rows - len(self._buffer)
        came = self._messages(self._client, left)
        if came and not self._buffer:
            self._since = time.monotonic()
        self._buffer += came
        self._came_at |= dict.fromkeys(map(_partition, came), time.monotonic())
        is_due = time.monotonic() - self._since >= self._source.chunk_seconds
        if not self._buffer or (len(self._buffer) < self._source.chunk_rows and not is_due):
            return []
        messages, self._buffer = sorted(self._buffer), []
        ranges: dict[str, list[int]] = {}
        for message in messages:
            own = ranges.setdefault(_partition(message), [message.offset, 0])
            own[1] = message.offset + 1
        entry: Entry = {"offsets": ranges, "active": self._active()}
        self._held[json.dumps(ranges)] = messages
        return [entry]

    def _active(self) -> dict[str, list[int]]:
        """Return the partitions that hold the watermark back, by topic, as ranges: those of which something came."""
        least, made = time.monotonic() - self._source.idle_partition_seconds, dict[str, list[int]]()
        for name in self._next:
            topic, number = _parts(name)
            if self._came_at.get(name, self._begun) > least:
                made.setdefault(topic, []).append(number)
        return {topic: _ranges(sorted(numbers)) for topic, numbers in made.items()}

    def flight_of(self, entry: Entry, own: int, column: str) -> Flight:
        """Return the partition, and those that were not idle when its messages came."""
        others = [
            f"{topic}/{number}"
            for topic, held in entry.get("active", {}).items()
            for begin, end in zip(held[::2], held[1::2], strict=True)
            for number in range(begin, end)
        ]
        return Flight(sorted(entry["offsets"], key=_parts)[own], tuple(others))

    def is_behind(self, idle: float) -> bool:
        """Return whether the broker has messages that did not come yet; not after `PATIENCE` seconds of waiting."""
        from confluent_kafka import OFFSET_END, KafkaException

        if idle >= PATIENCE:  # the last ones are not rows, such as marks of transactions
            return False
        try:
            ends = self._offsets(self._next, OFFSET_END)
        except KafkaException as error:
            self.notes.append(f"{self.name}: {error.args[0].str()}")
            return True
        return bool(self._buffer) or any(self._next[name] < end for name, end in ends.items())

    def _messages(self, client: Any, most: int, seconds: float = 0.0) -> list[Message]:
        from confluent_kafka import KafkaError

        found = []
        for message in client.consume(max(most, 1), timeout=seconds):
            error = message.error()
            if error is None:
                value, (_, own) = message.value() or b"", message.timestamp()
                found.append(Message(message.topic(), message.partition(), message.offset(), own, value))
            elif error.fatal() or error.code() in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET):
                raise DataError(f"messages cannot be read, they may be gone: {error.str()}", self.name)
            elif error.code() != KafkaError._PARTITION_EOF:
                self.notes.append(f"{self.name}: {error.str()}")
        return found

    def open_entry(self, entry: Entry, is_new: bool) -> Reader:
        """Return the messages of some ranges, from the broker where they are not at hand."""
        ranges = entry["offsets"]
        messages = self._held.pop(json.dumps(ranges), None) or self._again(ranges)
        if not self._types or set(self._columns) - {*self._types, TIME}:
            self._learn_types(messages)
        return _Messages(self.name, messages, self._parse, self._types, self._columns)

    def _again(self, ranges: Mapping[str, Sequence[int]]) -> list[Message]:
        """Read ranges once more, by a client of their own."""
        client = self._reading_again = self._reading_again or self._source.client()
        begins = {name: begin for name, (begin, _) in ranges.items()}
        client.assign(_partitions(begins))
        left, found, end = dict(ranges), list[Message](), time.monotonic() + PATIENCE
        while left:
            for message in self._messages(client, self._source.chunk_rows, 0.2):
                name = _partition(message)
                if name in left and begins[name] <= message.offset < left[name][1]:
                    found.append(message)
                if name in left and message.offset >= left[name][1] - 1:
                    del left[name]
            if left and time.monotonic() > end:
                raise DataError(f"messages of {', '.join(left)} did not come in {PATIENCE:.0f} s", self.name)
        client.unassign()
        return sorted(found)

    def _learn_types(self, messages: Sequence[Message]) -> None:
        """Take the types of columns that the config does not give from the first rows that can be read."""
        rows: list[dict[str, Any]] = []
        for message in messages:
            try:
                rows += self._parse(message.value)
            except NOT_READ:
                continue
        names = dict.fromkeys(name for row in rows for name in row)
        for name in names:
            if name not in self._types:
                try:
                    kind = pa.array([row.get(name) for row in rows]).type
                except NOT_READ:
                    kind = pa.string()
                self._types[name] = pa.string() if pa.types.is_null(kind) else kind

    def took(self, entry: Entry) -> None:
        self._next |= {name: end for name, (_, end) in entry.get("offsets", {}).items()}

    @property
    def place(self) -> dict[str, Any]:
        """The next offset of each partition, and the types of columns."""
        return {"offsets": dict(self._next), "types": {name: str(kind) for name, kind in self._types.items()}}

    def go_to(self, place: Mapping[str, Any]) -> None:
        self._next = {**self._starts(), **place["offsets"]}
        self._types |= {column: type_of(column, kind) for column, kind in place["types"].items()}
        self._buffer, self._held, self._is_assigned = [], {}, False

    def seek(self, chunk: int, mark: Mapping[str, Any]) -> None:
        """Continue with a chunk, at its mark, with its offsets, also where the journal has the entries before it."""
        super().seek(chunk, mark)
        self.go_to(mark)


class _Messages(Reader):
    """Messages in order, those of a partition as a chunk."""

    def __init__(
        self,
        name: str,
        messages: Sequence[Message],
        parse: Parse,
        types: Mapping[str, Any],
        columns: Sequence[str],
    ) -> None:
        self._name, self._parse, self._columns = name, parse, list(columns)
        self._chunks = [list(own) for _, own in itertools.groupby(messages, key=_partition)]
        self._types = {**types, TIME: pa.int64()}
        check_columns(name, columns, list(self._types))
        self.num_chunks = len(self._chunks)
        self.schemas = [(name, {column: self._types[column] for column in columns})]

    @property
    def fingerprint(self) -> str:
        """Not used: entries have offsets."""
        return self._name

    def read(self, chunk: int, bad_rows: BadRows) -> Rows:
        """Parse the messages; one that cannot be read is an error, or left out."""
        refused: list[tuple[str, str, str]] = []
        try:
            table, places = self._table(self._chunks[chunk])
        except NOT_READ:  # each alone
            good = []
            for message in self._chunks[chunk]:
                try:
                    self._table([message])
                    good.append(message)
                except NOT_READ as error:
                    why = f"the message cannot be read: {error}"
                    if bad_rows == "error":
                        raise DataError(f"{why}: {shown(message.value)}", self._name, str(message)) from None
                    refused.append((str(message), why, message.value.decode("utf8", "backslashreplace")))
            table, places = self._table(good)
        return Rows(table, self._name, lambda row: str(places[row]), len(refused), refused)

    def _table(self, messages: Sequence[Message]) -> tuple[Any, list[Message]]:
        """Return the rows of messages, and the message of each, or raise one of `NOT_READ`."""
        rows: list[dict[str, Any]] = []
        places: list[Message] = []
        for message in messages:
            own = self._parse(message.value)
            rows += [{**row, TIME: message.time} for row in own]
            places += [message] * len(own)
        schema = pa.schema([(column, self._types[column]) for column in self._columns])
        return pa.Table.from_pylist(rows, schema=schema), places


def type_of(column: str, kind: str) -> Any:
    """Return Arrow's type of a name such as "int64" or "list<string>"."""
    inner = kind.strip()
    if inner.startswith("list<") and inner.endswith(">"):
        return pa.list_(type_of(column, inner[5:-1].removeprefix("item:").removeprefix("element:").strip()))
    try:
        return pa.type_for_alias(inner)
    except ValueError:
        raise ValueError(f"source 'kafka': types: '{kind}' of '{column}' is no type such as int64 or string") from None


def _partition(message: Message) -> str:
    return f"{message.topic}/{message.partition}"


def _parts(name: str) -> tuple[str, int]:
    """Return the topic and the number of a partition, by which messages are sorted."""
    topic, _, number = name.rpartition("/")
    return topic, int(number)


def _ranges(numbers: Sequence[int]) -> list[int]:
    """Return ascending numbers as the begin and end of each run.

    >>> _ranges([0, 1, 2, 5])
    [0, 3, 5, 6]
    """
    made: list[int] = []
    for number in numbers:
        if made and made[-1] == number:
            made[-1] = number + 1
        else:
            made += [number, number + 1]
    return made


def _partitions(offsets: Mapping[str, int]) -> list[Any]:
    from confluent_kafka import TopicPartition

    return [TopicPartition(*_parts(name), offset) for name, offset in offsets.items()]


def _silent() -> logging.Logger:
    """Return a logger for librdkafka, whose lines would stand between those of the run."""
    logger = logging.getLogger("sparrow.kafka")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger


def _of_json(value: bytes) -> list[dict[str, Any]]:
    row = json.loads(value)
    if not isinstance(row, dict):
        raise ValueError("is no object")
    return [row]


def _of_csv(source: Kafka) -> Parse:
    names = list(source.columns or ())

    def parse(value: bytes) -> list[dict[str, Any]]:
        rows = list(csv.reader(io.StringIO(value.decode("utf8"), newline="")))
        for row in rows:
            if len(row) != len(names):
                raise ValueError(f"needs {len(names)} columns, got {len(row)}")
        return [{name: own or None for name, own in zip(names, row, strict=True)} for row in rows]

    return parse


def _of_avro(source: Kafka) -> Parse:
    try:
        import fastavro
    except ImportError:
        raise DataError("avro needs fastavro; pip install 'sparrow-rec[kafka]'", "source 'kafka'") from None
    path = str(source.schema)
    try:
        schema = fastavro.parse_schema(json.loads(at(path).read_text(encoding="utf-8")))
    except (OSError, ValueError, fastavro.schema.SchemaParseException) as error:
        raise DataError(f"is not an Avro schema: {error}", path) from None
    read: Any = fastavro.schemaless_reader
    begin = 5 if source.avro_header else 0
    return lambda value: [read(io.BytesIO(value[begin:]), schema, None)]


_PARSERS: Final[dict[str, Callable[[Kafka], Parse]]] = {
    "json": lambda source: _of_json,
    "csv": _of_csv,
    "avro": _of_avro,
    "arrow": lambda source: lambda value: pa.ipc.open_stream(value).read_all().to_pylist(),
}
