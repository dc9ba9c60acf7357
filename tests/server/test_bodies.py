"""Bodies that stand for more than they hold: the sum is refused before anything is expanded, in little time and memory.

Some of these bodies once took seconds, or a gigabyte; none may now.
"""

import json
import resource
import struct
import time

import numpy as np
import pyarrow as pa
import pytest

from sparrow.server import Limits
from sparrow.server.arrow_bodies import table_of
from sparrow.server.json_bodies import columns_of
from sparrow.server.limits import Refused

LIMITS = Limits()


def stream(batches, **options):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def batch_of(array):
    return pa.RecordBatch.from_arrays([array], ["item"])


def words_by_chunk():
    """A thousand record batches of ten rows that refer to one long word: each is small, their sum is 1.6 GB."""
    word = pa.array(["x" * 160_000])
    return stream([batch_of(pa.DictionaryArray.from_arrays(pa.array([0] * 10, pa.int8()), word))] * 1000)


def dictionary_by_chunk():
    """A dictionary of 4 MB, validated again for each of 5,000 record batches."""
    words = pa.array(["x" * 4_000_000, "y"])
    return stream([batch_of(pa.DictionaryArray.from_arrays(pa.array([1], pa.int8()), words))] * 5000)


def growing_dictionary():
    """A dictionary that grows by one word with each record batch, and is copied as often."""
    words = ["x" * 200_000, *map(str, range(200))]
    codes = (pa.DictionaryArray.from_arrays(pa.array([n]), pa.array(words[: n + 1])) for n in range(200))
    batches = [batch_of(array) for array in codes]
    return stream(batches, emit_dictionary_deltas=True)


def compressed_dictionary():
    """A stream in which nothing but a dictionary is compressed."""
    first = pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), pa.array(["a"]))
    codes = pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), pa.array([f"{n:0100}" for n in range(20_000)]))
    batch = pa.RecordBatch.from_arrays([first, codes], ["first", "item"])
    plain, packed = (list(pa.ipc.MessageReader.open_stream(stream([batch], compression=c))) for c in (None, "zstd"))
    sink = pa.BufferOutputStream()
    for own, other in zip(plain, packed, strict=True):
        (other if own.type == "dictionary" else own).serialize_to(sink)
    return sink.getvalue().to_pybytes()


def listed_nulls(count, chunks):
    """Rows that hold millions of missing values each, in a few bytes."""
    offsets = pa.py_buffer(struct.pack("<2i", 0, count))
    values = pa.Array.from_buffers(pa.null(), count, [None])
    one = pa.Array.from_buffers(pa.list_(pa.null()), 1, [None, offsets], children=[values])
    return stream([batch_of(one)] * chunks)


def nested_nulls():
    kind = pa.list_(pa.list_(pa.null(), 1000), 1000)
    inner = pa.Array.from_buffers(kind.value_type, 1000, [None], children=[pa.nulls(1_000_000)])
    return stream([batch_of(pa.Array.from_buffers(kind, 1, [None], children=[inner]))])


def views(length, count, lengths=()):
    """Views of the same long word, which the body holds once."""
    word = b"x" * length
    rows = [struct.pack("<i4sii", own, word[:4], 0, 0) for own in [*lengths, *[length] * count]]
    buffers = [None, pa.py_buffer(b"".join(rows)), pa.py_buffer(word)]
    return stream([batch_of(pa.Array.from_buffers(pa.string_view(), len(rows), buffers))])


def many_messages():
    return stream([batch_of(pa.array([], pa.int64()))] * 30_000)


ARROW = {
    "words by chunk": (words_by_chunk, 413, "repeats long words"),
    "dictionary by chunk": (dictionary_by_chunk, 413, "repeats long words"),
    "growing dictionary": (growing_dictionary, 415, "dictionaries that grow"),
    "compressed dictionary": (compressed_dictionary, 415, "without compression"),
    "one list of nulls": (lambda: listed_nulls(2_000_000_000, 1), 413, "values in lists"),
    "lists of nulls by chunk": (lambda: listed_nulls(100_000, 4000), 413, "values in lists"),
    "nested nulls": (nested_nulls, 413, "values in lists"),
    "long views": (lambda: views(100_000, 9000), 413, "repeats long words"),
    "views of a negative length": (lambda: views(4_000_000, 5000, [-(1 << 31)] * 1000), 413, "repeats long words"),
    "messages": (many_messages, 413, "record batches"),
    "none of the columns": (lambda: stream([pa.record_batch({"x" * 50: [1]})]), 400, "none of the columns item"),
    "the same name twice": (
        lambda: stream([pa.RecordBatch.from_arrays([pa.array([1])] * 2, ["item"] * 2)]),
        400,
        "same name",
    ),
}


def rows_of(*rows):
    return json.dumps({"rows": rows}).encode()


OBJECTS = rows_of(*({"item": {f"{n}_{m}": 1 for m in range(40)}} for n in range(8000)))
JSON = {
    "unknown names": (rows_of({"item": 1, **{f"colu{n}mn": 1 for n in range(30_000)}}), None, ""),
    "long names": (rows_of({"item": 1, **{c * 1_000_000: 1 for c in "abcdefg"}}), None, ""),
    "a near name": (rows_of({"item": 1, "pricee": 1}), 400, "did you mean 'price'"),
    "objects": (OBJECTS, 400, "'item' holds an object"),
    "values": (b'{"rows": [{"item": [' + b"1," * 1_000_000 + b"1]}]}", 413, "values in lists"),
    "lists in lists": (rows_of({"item": [[1] * 300] * 4000}), 413, "values in lists"),
    "deep lists": (b'{"rows": [{"item": ' + b"[" * 900 + b"]" * 900 + b"}]}", None, ""),
}
WANTED = ["item", "price", *(f"column_{n}" for n in range(40))]


def taken(read, body, status, why):
    """Check the answer, and return the seconds of the processor and the megabytes that it took beyond the body."""
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.thread_time()
    if status is None:
        read(body)
    else:
        with pytest.raises(Refused, match=why) as refused:
            read(body)
        assert refused.value.status == status
    return time.thread_time() - began, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


@pytest.mark.parametrize("name", ARROW)
def test_arrow(name):
    make, status, why = ARROW[name]
    body = make()
    seconds, megabytes = taken(lambda b: table_of(b, ["item"], LIMITS), body, status, why)
    assert seconds < 1
    assert megabytes < 64 + 20 * len(body) / 2**20


@pytest.mark.parametrize("name", JSON)
def test_json(name):
    body, status, why = JSON[name]
    seconds, megabytes = taken(lambda b: columns_of(b, WANTED, LIMITS), body, status, why)
    assert seconds < 1
    assert megabytes < 64 + 20 * len(body) / 2**20


def test_dictionaries_and_lists_of_usual_sizes_are_read():
    codes = pa.DictionaryArray.from_arrays(pa.array(np.arange(10_000) % 100, pa.int8()), pa.array(["word" * 50] * 100))
    batch = pa.RecordBatch.from_arrays([codes, pa.array([[1, 2, 3]] * 10_000)], ["item", "price"])
    table = table_of(stream([batch.slice(0, 5000), batch.slice(5000)]), WANTED, LIMITS)
    assert table["item"].to_pylist() == ["word" * 50] * 10_000
    assert table["price"].to_pylist() == [[1, 2, 3]] * 10_000
