"""Mutated data files and bodies of requests: each gives the rows that Arrow reads, or one refusal, in time.

A number decides a file and its mutations. `python -m tests.data.fuzzing 0 1000000` tries that many, in a process that
is watched: one that ends or hangs is a failure, and the next goes on behind it. The numbers of failures are printed.
"""

import argparse
import contextlib
import copy
import functools
import mmap
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sparrow.data import Csv, DataError, IdFeature, Parquet, RawFeature, SequenceFeature, Tables
from sparrow.data.converter import Converter
from sparrow.data.values import plain_kind
from sparrow.feed.reading import with_buffers
from sparrow.server.arrow_bodies import table_of
from sparrow.server.limits import Limits, Refused
from tests.data.test_compiled import assert_same
from tests.data.thrift import BYTE, FALSE, I16, I32, I64, LIST, STRUCT, TRUE, File

SECONDS, MEMORY, TIMES = 1.0, 64 * 2**20, 20
"""Limits of a file: processor time, and memory besides this many times its bytes."""
IS_SANITIZED = "-fsanitize=address" in os.environ.get("SPARROW_CXXFLAGS", "")
WORDS = ("a", "b", "", "longer than eight bytes", "ü", "x" * 40, "17", "-3", "1.5")
KINDS = {
    "int8": (pa.int8(), lambda rng: int(rng.integers(-3, 40))),
    "uint16": (pa.uint16(), lambda rng: int(rng.integers(0, 2**16))),
    "int32": (pa.int32(), lambda rng: int(rng.integers(-3, 40))),
    "uint32": (pa.uint32(), lambda rng: int(rng.integers(0, 2**32))),
    "int64": (
        pa.int64(),
        lambda rng: int(rng.integers(-(2**63), 2**63 - 1) if rng.random() < 0.3 else rng.integers(9)),
    ),
    "uint64": (pa.uint64(), lambda rng: int(rng.integers(0, 2**64 - 1, dtype=np.uint64))),
    "text": (pa.string(), lambda rng: str(rng.choice(WORDS))),
    "large": (pa.large_string(), lambda rng: str(rng.choice(WORDS))),
    "bool": (pa.bool_(), lambda rng: bool(rng.random() < 0.5)),
    "float": (pa.float32(), lambda rng: float(rng.choice([0.0, 3.0, 2.5, np.nan]))),
    "double": (pa.float64(), lambda rng: float(rng.choice([0.0, 3.0, 0.1]))),
}
ENCODINGS = {
    "int32": ("DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"),
    "int64": ("DELTA_BINARY_PACKED",),
    "text": ("DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"),
    "float": ("BYTE_STREAM_SPLIT",),
    "bool": ("RLE",),
}


def column(rng):
    """Return a random field, its values, and the encoding of its pages, or None."""
    name = str(rng.choice(list(KINDS)))
    kind, draw = KINDS[name]
    rows, may_miss = 30, bool(rng.random() < 0.5)
    encoding = str(rng.choice(ENCODINGS[name])) if name in ENCODINGS and rng.random() < 0.25 else None

    def one():
        return None if may_miss and rng.random() < 0.2 else draw(rng)

    form = rng.choice(["plain", "list", "fixed"], p=[0.5, 0.4, 0.1])
    inner = pa.field("element", kind, nullable=may_miss)
    if form == "plain":
        return pa.field("c", kind, nullable=may_miss), [one() for _ in range(rows)], encoding
    if form == "fixed":
        return pa.field("c", pa.list_(inner, 2), nullable=False), [[one(), one()] for _ in range(rows)], encoding
    lists_miss, longest = bool(rng.random() < 0.5), int(rng.choice([2, 5, 12]))
    lists = [
        None if lists_miss and rng.random() < 0.2 else [one() for _ in range(rng.integers(0, longest))]
        for _ in range(rows)
    ]
    kind = pa.list_(inner) if rng.random() < 0.7 else pa.large_list(inner)
    return pa.field("c", kind, nullable=lists_miss), lists, encoding


@functools.cache
def parquet(number):
    """Return the bytes of a good file, and the features that read it."""
    rng = np.random.default_rng([1, number])
    field, values, encoding = column(rng)
    table = pa.table(
        [pa.array(values, field.type), pa.array(np.arange(len(values)) % 5, pa.int32())],
        schema=pa.schema([field, pa.field("d", pa.int32(), nullable=False)]),
    )
    path = f"c.{'list.element' if pa.types.is_nested(field.type) else ''}".rstrip(".")
    written = {"use_dictionary": bool(rng.random() < 0.6)}
    if encoding is not None:
        written = {"use_dictionary": False, "column_encoding": {path: encoding}}
    made = pa.BufferOutputStream()
    pq.write_table(
        table,
        made,
        **written,
        dictionary_pagesize_limit=int(rng.choice([1, 64, 2**20])),
        write_batch_size=int(rng.choice([7, 1024])),
        compression=str(rng.choice(["none", "snappy", "zstd", "gzip", "lz4"], p=[0.5, 0.3, 0.1, 0.05, 0.05])),
        data_page_version=str(rng.choice(["1.0", "2.0"])),
        data_page_size=int(rng.choice([16, 100, 2**20])),
        row_group_size=int(rng.choice([20, 10_000])),
        store_schema=bool(rng.random() < 0.7),
        write_page_index=bool(rng.random() < 0.2),
    )
    return made.getvalue().to_pybytes(), features(field.type)


def features(kind):
    """Return features that read the column ``c`` of a type."""
    made = [
        IdFeature("hashed", column="c", hash_bucket_size=1000, embedding_dim=2),
        SequenceFeature("cut", column="c", hash_bucket_size=9, embedding_dim=2, max_length=2, pooling="sum"),
        IdFeature("numbered", column="c", num_buckets=30, embedding_dim=2, unknown="empty"),
        RawFeature("number", column="c"),
    ]
    made.pop(int(np.random.default_rng(len(str(kind))).integers(4)))
    made = [feature for feature in made if not feature.refuse("c", kind)]
    return (*made, IdFeature("d", num_buckets=5, embedding_dim=2, unknown="empty"))


@functools.cache
def text(number):
    """Return the bytes of a good text file, its source, and the features that read it."""
    rng = np.random.default_rng([2, number])
    options = {
        "separator": str(rng.choice([",", "\t", "|"])),
        "quote": '"' if rng.random() < 0.7 else None,
        "missing": ("", "NA") if rng.random() < 0.3 else ("",),
        "chunk_bytes": int(rng.choice([200, 2**20])),
    }
    options["newlines_in_values"] = bool(options["quote"] and rng.random() < 0.5)
    words = ("a", "b", "", "longer than eight bytes", "ü", "17", "NA", "x" * 30)
    if options["quote"]:
        words += ('"q"', '"s,|\ts"', '"d""d"') + (('"l\nl"',) if options["newlines_in_values"] else ())
    numbers = ("1", "2.5", "-3", "", "1e3", "0.1", "123456789012345678", "nan")
    end = "\r\n" if rng.random() < 0.2 else "\n"
    rows = [("c", "d", "e")]
    rows += [(rng.choice(words), rng.choice(numbers), str(rng.integers(5))) for _ in range(40)]
    data = "".join(options["separator"].join(map(str, row)) + end for row in rows).encode()
    made = (
        IdFeature("hashed", column="c", hash_bucket_size=1000, embedding_dim=2),
        IdFeature("several", column="c", hash_bucket_size=99, embedding_dim=2, separator="|" * 2),
        RawFeature("number", column="d"),
        IdFeature("e", num_buckets=5, embedding_dim=2, unknown="empty"),
    )
    return data, options, made


@functools.cache
def body(number):
    """Return a good body of a request in Arrow's format, and the features that read it."""
    rng = np.random.default_rng([4, number])
    field, values, _ = column(rng)
    given = pa.array(values, field.type)
    if rng.random() < 0.4 and not pa.types.is_nested(field.type):
        given = given.dictionary_encode()
    table = pa.table({"c": given, "d": pa.array(np.arange(len(values)) % 5, pa.int32())})
    made = pa.BufferOutputStream()
    with pa.ipc.new_stream(made, table.schema) as writer:
        writer.write_table(table, max_chunksize=int(rng.choice([7, 1000])))
    return made.getvalue().to_pybytes(), features(field.type)


def rows_of_body(data, made):
    """Return what the server converts from a body; raise `Refused`, or `DataError`."""
    table = table_of(data, ["c", "d"], Limits())
    return table, blocks_of(Tables(table), made)


def by_plain_stream(data, made):
    """Return the same by Arrow's plain reader, its values as Python has them, and NumPy's conversions."""
    table = pa.ipc.open_stream(data).read_all()
    table.validate(full=True)
    converter = converter_of(made)
    rows = Tables(pa.table({name: plainly(table[name]) for name in converter.columns})).open(converter.columns)
    return [by_numpy(converter, rows.read(chunk, "skip")) for chunk in range(rows.num_chunks)]


BITS = {I16: 15, I32: 31, I64: 63}


def other(rng, value, kind):
    """Return another integer, near or far."""
    bits = BITS.get(kind, 7)
    near = [value + 1, value - 1, value * 2, value // 2, -value, value ^ 1 << int(rng.integers(bits))]
    far = [0, 1, -1, -5, 2**bits - 1, -(2**bits), 2 ** int(rng.integers(bits)), int(rng.integers(-(2**31), 2**31))]
    chosen = (near + far)[rng.integers(len(near + far))]
    return max(-(2**bits), min(2**bits - 1, chosen)) if kind != BYTE else chosen & 255


def change_number(rng, fields):
    """Change one number or bytes of a struct, or remove, or double a part of it."""
    found = []

    def look(kind, value, put):
        if kind == STRUCT:
            for field, (inner, own) in value.items():
                look(inner, own, lambda new, field=field, inner=inner: value.__setitem__(field, (inner, new)))
                found.append((None, value, field))
        elif kind == LIST:
            for i, own in enumerate(value[1]):
                look(value[0], own, lambda new, i=i: value[1].__setitem__(i, new))
            found.append((LIST, value[1], None))
        else:
            found.append((kind, value, put))

    look(STRUCT, fields, None)
    kind, value, put = found[rng.integers(len(found))]
    if kind is None:
        if rng.random() < 0.3:
            value.pop(put)
    elif kind == LIST:
        if value and rng.random() < 0.5:
            value.append(copy.deepcopy(value[rng.integers(len(value))]))
        elif value:
            value.pop(int(rng.integers(len(value))))
    elif kind in (TRUE, FALSE):
        pass  # a field's kind is its value
    elif isinstance(value, bytes):
        put(change_bytes(rng, value))
    else:
        put(other(rng, value, kind))


def change_bytes(rng, data):
    """Change some bytes; or cut, double or move a piece."""
    data = bytearray(data)
    if not data:
        return bytes(data)
    how = rng.random()
    at = int(rng.integers(len(data)))
    if how < 0.75:
        for _ in range(rng.integers(1, 4)):
            at = int(rng.integers(len(data)))
            data[at] = int(rng.choice([rng.integers(256), data[at] ^ 1 << int(rng.integers(8)), 0, 255, 128]))
    else:
        size = int(rng.integers(1, 20))
        piece = data[at : at + size]
        if how < 0.85:
            del data[at : at + size]
        elif how < 0.95:
            data[at:at] = piece
        else:
            data[int(rng.integers(len(data))) :] = piece
    return bytes(data)


CODECS = {0: None, 1: "snappy", 2: "gzip", 6: "zstd"}


def change_pages(rng, file):
    """Change a page of a random column: its header, or its bytes, packed again so that sizes stay right."""
    group = int(rng.integers(len(file.footer[4][1][1])))
    column = int(rng.integers(len(file.group(group)[1][1][1])))
    pages, codec = file.pages(column, group), file.column(column, group)[4][1]
    which = int(rng.integers(len(pages)))
    header, body = pages[which]
    if rng.random() < 0.5 or codec not in CODECS:
        change_number(rng, header)
    else:
        levels = sum(header[8][1][field][1] for field in (5, 6)) if 8 in header else 0
        packed = CODECS[codec] is not None and not (8 in header and header[8][1].get(7, (TRUE, 0))[0] == FALSE)
        rest = body[levels:]
        if header[2][1] > 2**20:
            raise ValueError("the size was changed before")
        if packed:
            rest = pa.decompress(rest, header[2][1] - levels, CODECS[codec]).to_pybytes() if rest else rest
        raw = change_bytes(rng, body[:levels]) if levels and rng.random() < 0.5 else body[:levels]
        if raw == body[:levels]:
            rest = change_bytes(rng, rest)
        header[2] = (I32, len(raw) + len(rest))
        body = raw + (pa.compress(rest, CODECS[codec]).to_pybytes() if packed else rest)
        header[3] = (I32, len(body))
    pages[which] = (header, body)
    file.set_pages(pages, column, group)


def mutated(rng, data):
    """Return other bytes of a Parquet file."""
    how = rng.random()
    if how < 0.15:
        return change_bytes(rng, data)
    file = File(data)
    for _ in range(rng.integers(1, 3)):
        if how < 0.4:
            change_number(rng, file.footer)
        else:
            with contextlib.suppress(KeyError, IndexError, TypeError, ValueError, OSError, MemoryError):
                change_pages(rng, file)
    return file.to_bytes()


@functools.cache
def converter_of(made):
    """Return a converter of features, which stays for the next file of the same columns."""
    return Converter(made, [], [], [])


def blocks_of(source, made):
    """Return what a pipeline converts from a source, chunk by chunk, and the rows that it leaves out."""
    converter = converter_of(made)
    reader = source.open(converter.columns)
    if not reader.num_chunks:
        raise DataError("there are no rows")
    converter.check(reader)
    found = []
    for chunk, part in with_buffers(range(reader.num_chunks), reader.rows_of, 1000):
        encoded = reader.fetch(chunk) if converter.decodes else None
        own = None if encoded is None else converter.decode(encoded, "skip", part and part.words)
        found.append(converter.convert(reader.read(chunk, "skip"), "skip") if own is None else own[:2])
    return found


def by_arrow(path, made):
    """Return the same by Arrow's plain reader, its values as Python has them, and NumPy's conversions."""
    converter, found = converter_of(made), []
    file = pq.ParquetFile(path)
    for group in range(file.metadata.num_row_groups):
        table = file.read_row_group(group, converter.columns, use_threads=False)
        if table.num_rows:
            rows = Tables(pa.table({name: plainly(table[name]) for name in converter.columns})).open(converter.columns)
            found.append(by_numpy(converter, rows.read(0, "skip")))
    return found


def by_numpy(converter, rows):
    compiled, converter._compiled = converter._compiled, None
    try:
        return converter.convert(rows, "skip")
    finally:
        converter._compiled = compiled


def plainly(values):
    """Return a column that is made of Python's values; strings may be any bytes."""
    kind = plain_kind(values.type)
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    as_bytes = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if not as_bytes:
        return pa.array(values.to_pylist(), kind)
    options = {"options": pa.compute.CastOptions(kind, allow_invalid_utf8=True)}
    return pa.array(values.cast(pa.large_binary()).to_pylist(), pa.large_binary()).cast(**options)


def by_reference(source, made):
    """Return what the readers of text without compiled code give."""
    converter = converter_of(made)
    reader = source.open(converter.columns)
    return [by_numpy(converter, reader.read(chunk, "skip")) for chunk in range(reader.num_chunks)]


def attempt(number, folder):
    """Try one file; return "refused" or "read", or raise what is wrong."""
    rng = np.random.default_rng([3, number])
    path = pathlib.Path(folder) / f"{number}"
    is_text, is_body = number % 8 == 7, number % 8 == 6
    if is_body:
        data, made = body(int(rng.integers(100)))
        data = change_bytes(rng, data)
    elif is_text:
        data, options, made = text(int(rng.integers(40)))
        path = path.with_suffix(".csv")
        data = change_bytes(rng, change_bytes(rng, data))
        source = Csv(str(path), **options)
    else:
        data, made = parquet(int(rng.integers(300)))
        path = path.with_suffix(".parquet")
        data = mutated(rng, data)
        source = Parquet(str(path))
    if not is_body:
        path.write_bytes(data)
    began = time.process_time()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ours, refusal = None, ""
    try:
        ours = rows_of_body(data, made)[1] if is_body else blocks_of(source, made)
    except (DataError, Refused) as error:
        refusal = str(error)
    assert "\n" not in refusal
    took = time.process_time() - began
    used = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert took < SECONDS * (1 + 4 * IS_SANITIZED), f"{took:.1f} s of processor time"
    if not IS_SANITIZED:
        assert used < MEMORY + TIMES * len(data), f"{used:,} bytes of memory for {len(data):,}"
    if ours is not None:
        if is_body:
            theirs = by_plain_stream(data, made)
        else:
            theirs = by_reference(source, made) if is_text else by_arrow(path, made)
        theirs = [own for own in theirs if len(own[0]) or own[1]] if is_text else theirs
        ours = [own for own in ours if len(own[0]) or own[1]] if is_text else ours
        for mine, their in zip(ours, theirs, strict=True):
            assert mine[1] == their[1], f"{mine[1]} rows are left out, not {their[1]}"
            assert_same(mine[0], their[0])
    path.unlink(missing_ok=True)
    return "refused" if ours is None else "read"


def work(first, last, progress):
    """Try some files, and note each before it is tried."""
    with open(progress, "r+b") as file:
        noted = np.frombuffer(mmap.mmap(file.fileno(), 24), np.int64)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        for number in range(first, last):
            noted[0] = number
            try:
                noted[1 if attempt(number, folder) == "refused" else 2] += 1
            except BaseException as error:
                print(f"{number}: {type(error).__name__}: {' '.join(str(error).split())[:300]}", flush=True)
                if not isinstance(error, Exception):
                    raise
        noted[0] = last


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument("--progress", help="the worker's own")
    given = parser.parse_args()
    if given.progress:
        return work(given.first, given.last, given.progress)
    first, refused, read = given.first, 0, 0
    with tempfile.NamedTemporaryFile() as progress:
        progress.write(bytes(24))
        progress.flush()
        while first < given.last:
            command = [sys.executable, "-m", "tests.data.fuzzing", str(first), str(given.last), "--progress"]
            worker = subprocess.Popen([*command, progress.name])
            seen = -1
            while worker.poll() is None:
                try:
                    worker.wait(60)
                except subprocess.TimeoutExpired:
                    now = int(np.fromfile(progress.name, np.int64)[0])
                    if now == seen:
                        print(f"{now}: hangs", flush=True)
                        worker.kill()
                    seen = now
            at, refused, read = np.fromfile(progress.name, np.int64).tolist()
            if worker.returncode != 0:
                print(f"{at}: ended the process: {worker.returncode}", flush=True)
            first = at + 1 if worker.returncode else given.last
    count = given.last - given.first
    print(f"{count:,} files from number {given.first:,} on: {refused:,} refused, {read:,} read")
    sys.exit(refused + read != count)


if __name__ == "__main__":
    main()
