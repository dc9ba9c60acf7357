"""Requests and answers as streams of Arrow's IPC format. A body is hostile until it has passed every check here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from flatbuffers import encode, number_types
from flatbuffers.table import Table as FlatTable

from sparrow.data import shown, without_views
from sparrow.server.json_bodies import check_rows
from sparrow.server.refusals import Refused
from sparrow.serving import arrow_column

_HEADER, _COMPRESSION = 2, 3
"""Fields of the tables Message and RecordBatch in Arrow's Message.fbs."""
_DATA: Final = {"dictionary": 0, "record batch": None}
"""Messages with data: the field of their header that holds the record batch; None: the header is one itself."""


def table_of(body: bytes, wanted: Sequence[str], most_rows: int) -> Any:
    """Return the wanted columns that a body holds, as an Arrow table that is safe to read.

    A few bytes can stand for any amount of memory by compression, views, dictionaries and lists without values:
    the first is refused, and the size of the others is checked.
    """
    try:
        _refuse_compression(body)
        reader = _reader_of(body, wanted)
        _refuse_kinds(reader.schema)
        batches, rows = [], 0
        for batch in reader:
            rows += batch.num_rows
            check_rows(rows, most_rows)
            batches.append(batch.select([name for name in wanted if name in batch.schema.names]))
        schema = batches[0].schema if batches else reader.schema
        table = pa.Table.from_batches(batches, schema)
        table.validate(full=True)
        for name, column in zip(table.column_names, table.columns, strict=True):
            for chunk in column.chunks:
                if _elements(chunk) > 8 * len(body) + most_rows:  # a value takes at least one bit
                    raise Refused(HTTPStatus.BAD_REQUEST, f"column {shown(name)} holds more values than the body has")
        return _decoded(without_views(_checked_views(table, len(body))), len(body))
    except (pa.ArrowException, ValueError, KeyError, IndexError, OverflowError, OSError) as error:
        reason = (str(error) or "it is damaged").splitlines()[0]
        raise Refused(HTTPStatus.BAD_REQUEST, f"the body is not a stream of Arrow's IPC format: {reason}") from None


def _reader_of(body: bytes, wanted: Sequence[str]) -> Any:
    """Return a reader of the wanted columns alone: others may be of any type, and are not read."""
    reader = pa.ipc.open_stream(body)
    places = [place for place, name in enumerate(reader.schema.names) if name in wanted]
    if not places or len(places) == len(reader.schema):
        return reader
    return pa.ipc.open_stream(body, options=pa.ipc.IpcReadOptions(included_fields=places))


def to_arrow(columns: Mapping[str, npt.NDArray[Any]], facts: Mapping[str, str]) -> bytes:
    """Return an answer: one column for each array, and facts in the schema's metadata."""
    arrays = [arrow_column(array) for array in columns.values()]
    batch = pa.RecordBatch.from_arrays(arrays, names=list(columns)).replace_schema_metadata(dict(facts))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _refuse_compression(body: bytes) -> None:
    for message in pa.ipc.MessageReader.open_stream(body):
        if message.type in _DATA and _is_compressed(message.metadata.to_pybytes(), _DATA[message.type]):
            why = "compressed buffers are not read; write the stream without compression"
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, why)


def _is_compressed(metadata: bytes, field: int | None) -> bool:
    """Return whether the record batch of a message, which Arrow has verified, declares compressed buffers."""
    start = encode.Get(number_types.UOffsetTFlags.packer_type, metadata, 0)
    held = _inner(FlatTable(metadata, start), _HEADER)
    if field is not None and held is not None:
        held = _inner(held, field)
    return held is not None and held.Offset(4 + 2 * _COMPRESSION) != 0


def _inner(table: FlatTable, field: int) -> FlatTable | None:
    offset = table.Offset(4 + 2 * field)
    return None if offset == 0 else FlatTable(table.Bytes, table.Indirect(table.Pos + offset))


def _refuse_kinds(schema: Any) -> None:
    for field in schema:
        if not _is_known(field.type):
            why = f"column {shown(field.name)} holds {shown(str(field.type))}; send integers, numbers, strings or lists"
            raise Refused(HTTPStatus.BAD_REQUEST, why)


def _is_known(kind: Any) -> bool:
    types = pa.types
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _is_known(kind.value_type) and not types.is_dictionary(kind.value_type)
    if types.is_dictionary(kind):
        return _is_single(kind.value_type)
    return _is_single(kind)


def _is_single(kind: Any) -> bool:
    types = pa.types
    return any(
        check(kind)
        for check in (
            types.is_integer,
            types.is_floating,
            types.is_decimal,
            types.is_boolean,
            types.is_string,
            types.is_large_string,
            types.is_string_view,
            types.is_binary,
            types.is_large_binary,
            types.is_binary_view,
            types.is_null,
        )
    )


def _elements(array: Any) -> int:
    """Return the number of values that the lists of an array hold, all of them together."""
    kind = array.type
    if pa.types.is_fixed_size_list(kind):
        return max(len(array) * int(kind.list_size), _elements(array.values))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return max(len(array.values), _elements(array.values))
    return len(array)


def _checked_views(table: Any, most_bytes: int) -> Any:
    """Return the table, where its views stand for no more than 16 bodies."""
    for name, column in zip(table.column_names, table.columns, strict=True):
        if sum(map(_view_bytes, column.chunks)) > 16 * most_bytes:
            raise _too_large(name)
    return table


def _view_bytes(array: Any) -> int:
    """Return the bytes that the views of an array stand for; each begins with its length."""
    kind, types = array.type, pa.types
    if types.is_dictionary(kind):
        return _view_bytes(array.dictionary)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _view_bytes(array.values)
    if not (types.is_string_view(kind) or types.is_binary_view(kind)):
        return 0
    views = np.frombuffer(array.buffers()[1] or b"", np.int32).reshape(-1, 4)
    lengths = views[array.offset : array.offset + len(array), 0].astype(np.int64)
    return int(lengths[np.asarray(array.is_valid())].sum())


def _too_large(name: str) -> Refused:
    why = f"column {shown(name)} repeats long words too often; send fewer rows"
    return Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, why)


def _decoded(table: Any, most_bytes: int) -> Any:
    """Return the table with plain values for dictionaries, where they are not larger than 16 bodies."""
    for index, field in enumerate(table.schema):
        if not pa.types.is_dictionary(field.type):
            continue
        for chunk in table[index].chunks:
            if _decoded_bytes(chunk) > 16 * most_bytes:
                raise _too_large(field.name)
        table = table.set_column(index, field.name, table[index].cast(field.type.value_type))
    return table


def _decoded_bytes(chunk: Any) -> int:
    words = chunk.dictionary
    if not (pa.types.is_string(words.type) or pa.types.is_large_string(words.type)):
        return 8 * len(chunk)
    lengths = np.asarray(pc.binary_length(words).fill_null(0), np.int64)
    used = np.asarray(chunk.indices.drop_null(), np.int64)
    return int(lengths[used].sum()) if len(lengths) else 0
