"""Topics of Kafka, by librdkafka's own broker in this process: formats, offsets, replays, messages that are broken."""

import dataclasses
import io
import json

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka import Producer

from sparrow.data import Converter, DataError, IdFeature, Kafka
from sparrow.feed import Batching, EventTime, Pipeline
from tests.feed.pipelines import pipeline_of

FEATURES = [IdFeature("item", num_buckets=1000, embedding_dim=4)]
AVRO = {
    "type": "record",
    "name": "click",
    "fields": [{"name": "item", "type": "long"}, {"name": "click", "type": "double"}],
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """A broker and a file of settings, and a function that sends messages to partitions of a topic."""
    settings = tmp_path_factory.mktemp("kafka") / "settings"
    settings.write_text("# a request waits behind the one for new messages\nfetch.wait.max.ms = 20\n")
    producer = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "in-process"})
    (found,) = producer.list_topics(timeout=20).brokers.values()
    address = f"{found.host}:{found.port}", str(settings)

    def send(topic, messages, partition=0):
        for message in messages:
            producer.produce(topic, message, partition=partition)
        producer.flush(20)

    return address, send


def rows(items):
    return [json.dumps({"item": item, "click": item % 2}).encode() for item in items]


def source(address, topic, **options):
    options = {"end_idle_seconds": 0.6, "chunk_seconds": 0.05, **options}
    servers, settings = address
    return Kafka(servers, (topic,), settings=settings, **options)


def waits(stream):
    """Let a stream wait for messages however long they take; return when it would end."""
    limits, stream._limits = stream._limits, dataclasses.replace(stream._limits, end_idle_seconds=None)
    return limits


def items_of(given, size=4, **batching):
    pipeline = pipeline_of(given, FEATURES, ["click"], batch_size=size, **batching)
    return [batch.ids["item"][: batch.examples].tolist() for batch in pipeline]


def avro(item):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO), {"item": item, "click": float(item % 2)})
    return out.getvalue()


def arrow(items):
    out = io.BytesIO()
    table = pa.table({"item": items, "click": [item % 2 for item in items]})
    with pa.ipc.new_stream(out, table.schema) as stream:
        stream.write_table(table)
    return out.getvalue()


@pytest.mark.parametrize("kind", ["json", "csv", "avro", "arrow", "registry"])
def test_formats(broker, tmp_path, kind):
    address, send = broker
    (tmp_path / "click.avsc").write_text(json.dumps(AVRO))
    messages = {
        "json": rows(range(6)),
        "csv": [f"{item},{item % 2}".encode() for item in range(6)],
        "avro": [avro(item) for item in range(6)],
        "registry": [b"\x00\x00\x00\x00\x07" + avro(item) for item in range(6)],
        "arrow": [arrow([0, 1, 2, 3]), arrow([4, 5])],
    }[kind]
    options = {
        "csv": {"columns": ("item", "click")},
        "avro": {"schema": str(tmp_path / "click.avsc")},
        "registry": {"schema": str(tmp_path / "click.avsc"), "format": "avro", "avro_header": True},
    }.get(kind, {})
    send(f"formats-{kind}", messages)
    given = source(address, f"formats-{kind}", **{"format": kind, **options})
    assert set(given.column_names()) == {"item", "click", "kafka_timestamp"}
    assert items_of(given) == [[0, 1, 2, 3], [4, 5]]


@pytest.mark.parametrize("has_journal", [True, False])
def test_a_resumed_run_reads_the_same_messages(broker, tmp_path, has_journal):
    address, send = broker
    topic, journal = f"resumed-{has_journal}", tmp_path / "stream.jsonl"
    send(topic, rows(range(7)))
    send(topic, rows(range(100, 105)), partition=1)
    given = source(address, topic, chunk_rows=5, cut_seconds=0.3 if has_journal else None)
    first = pipeline_of(given, FEATURES, ["click"], batch_size=4)
    first.stream.keep(journal, is_new=True)
    limits = waits(first.stream)
    batches, positions = [], []
    for batch in first:
        batches.append(batch.ids["item"][: batch.examples].tolist())
        positions.append(json.loads(json.dumps(first.position())))
        if len(batches) == 3:
            send(topic, rows(range(50, 53)))
            first.stream._limits = limits
    assert sorted(item for batch in batches for item in batch) == sorted([*range(7), *range(100, 105), 50, 51, 52])
    kept = journal.read_bytes()
    for number, position in list(enumerate(positions))[::2]:
        again = pipeline_of(given, FEATURES, ["click"], batch_size=4)
        if has_journal:
            journal.write_bytes(kept)
            again.stream.load(journal)
        again.restore(position)
        rest = [batch.ids["item"][: batch.examples].tolist() for batch in again]
        if has_journal:
            assert rest == batches[number + 1 :]
        else:
            left = [item for batch in batches[number + 1 :] for item in batch]
            assert sorted(item for batch in rest for item in batch) == sorted(left)


def test_broken_messages(broker, tmp_path):
    address, send = broker
    send("broken", [*rows([1]), b"{", b'{"item": "x", "click": 1}', b'{"item": 3, "click": null}', *rows([5])])
    types = {"item": "int64", "click": "double"}
    with pytest.raises(DataError, match=r"broken/0 offset 1.*cannot be read"):
        items_of(source(address, "broken", types=types))
    letters = tmp_path / "letters.jsonl"
    given = source(address, "broken", types=types)
    assert items_of(given, bad_rows="skip", dead_letters=str(letters)) == [[1, 5]]
    found = [json.loads(line) for line in letters.read_text().splitlines()]
    assert [one["place"] for one in found] == [f"broken/0 offset {number}" for number in (1, 2, 3)]
    assert found[0]["row"] == "{"
    assert "has no value" in found[2]["reason"]


def test_latest_and_a_wrong_topic(broker):
    address, send = broker
    send("late", rows(range(5)))
    with pytest.raises(DataError, match="ended before its first rows"):
        items_of(source(address, "late", start="latest"))
    with pytest.raises(ValueError, match="columns of csv"):
        source(address, "late", format="csv")
    with pytest.raises(ValueError, match="no type such as int64"):
        source(address, "late", types={"item": "number"})


def test_times_of_messages(broker):
    address, send = broker
    send("times", rows([1]))
    (batch,) = pipeline_of(source(address, "times"), FEATURES, ["click"], keys=["kafka_timestamp"], batch_size=4)
    assert batch.keys["kafka_timestamp"][0] > 1_600_000_000_000


@pytest.mark.slow
def test_the_watermark_is_the_least_over_partitions_but_idle_ones(broker, tmp_path):
    """The broker has four partitions of a topic; the journal knows which of them were idle."""
    address, send = broker

    def timed(times):
        return [json.dumps({"item": 1, "click": 0, "time": own}).encode() for own in times]

    def pipeline(**options):
        columns = Converter(FEATURES, ["click"], times=["time"])
        return Pipeline(source(address, "timed", **options), columns, Batching(4, event_time=EventTime("time")))

    for partition, times in enumerate(([100, 101], [90], [120, 97], [130])):
        send("timed", timed(times), partition)
    made, marks = pipeline(chunk_rows=6, chunk_seconds=60.0, cut_seconds=0.1), []
    made.stream.keep(tmp_path / "stream.jsonl", is_new=True)
    limits = waits(made.stream)
    for batch in made:
        marks.append((batch.examples, made.position()["stream"]["watermark"]))
        if len(marks) == 1:
            first = json.loads(json.dumps(made.position()))
        if len(marks) == 2:
            made.stream._begun = -1000.0
            made.stream._came_at = dict.fromkeys(made.stream._came_at, -1000.0)
            send("timed", timed([200] * 6))
            made.stream._limits = limits
    assert marks == [(4, None), (2, 90), (4, 90), (2, 200)]
    again = pipeline(end_idle_seconds=0.1)
    again.stream.load(tmp_path / "stream.jsonl")
    again.restore(first)
    again.stream.keep(tmp_path / "stream.jsonl")
    assert [(batch.examples, again.position()["stream"]["watermark"]) for batch in again] == marks[1:]
