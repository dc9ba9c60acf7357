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

from sparrow.data import is_list, shown, without_views
from sparrow.server.limits import Limits, Refused, check_rows, too_many_values
from sparrow.serving import arrow_column

_HEADER, _COMPRESSION, _DATA, _IS_DELTA = 2, 3, 1, 2
"""Fields of the tables Message, RecordBatch, DictionaryBatch and DictionaryBatch in Arrow's Message.fbs."""
MESSAGES: Final = 20_000
"""The most messages of a body: one for each column that is a dictionary, and record batches."""
SINGLE: Final = (
    *("integer", "floating", "decimal", "boolean", "null"),
    *("string", "large_string", "string_view", "binary", "large_binary", "binary_view"),
)
"""Arrow's names of the types that a value may have."""
TIMES: Final = 16
SPARE: Final = 32 << 20
"""The columns of a body may stand for TIMES its bytes, and SPARE bytes more."""


def table_of(body: bytes, wanted: Sequence[str], limits: Limits) -> Any:
    """Return the wanted columns that a body holds, as an Arrow table that is safe to read.

    A few bytes can stand for any amount of memory by compression, views, dictionaries, lists without values, and
    buffers that are referred to often: the first is refused, and the sum of the others is bounded before any of them
    is expanded or validated.
    """
    try:
        check_messages(body)
        table = _selected(body, wanted, limits.rows)
        table.validate()  # the sizes of buffers: it reads none of their values
        budget = _Budget(limits.values, TIMES * len(body) + SPARE)
        for name, column in zip(table.column_names, table.columns, strict=True):
            budget.take_structure(name, column)
        table.validate(full=True)
        table = without_views(table)
        for index, field in enumerate(table.schema):
            if pa.types.is_dictionary(field.type):
                budget.take_decoded(field.name, table[index])
                table = table.set_column(index, field.name, table[index].cast(field.type.value_type))
        return table
    except (pa.ArrowException, ValueError, KeyError, IndexError, OverflowError, OSError) as error:
        reason = (str(error) or "it is damaged").splitlines()[0]
        raise Refused(f"the body is not a stream of Arrow's IPC format: {reason}") from None


def _selected(body: bytes, wanted: Sequence[str], most_rows: int) -> Any:
    """Return the wanted columns, not validated: others may be of any type, and are not read."""
    reader = pa.ipc.open_stream(body)
    names = set(wanted)
    places = [place for place, name in enumerate(reader.schema.names) if name in names]
    if not places:
        raise Refused(f"the body holds none of the columns {', '.join(wanted)}")
    reader = pa.ipc.open_stream(body, options=pa.ipc.IpcReadOptions(included_fields=places))
    if len(set(reader.schema.names)) < len(places):
        raise Refused("two columns of the body have the same name")
    _refuse_kinds(reader.schema)
    batches, rows = [], 0
    for batch in reader:
        rows += batch.num_rows
        check_rows(rows, most_rows)
        if batch.num_rows:
            batches.append(batch)
    return pa.Table.from_batches(batches, reader.schema)


class _Budget:
    """The values and bytes that the columns of one body may still stand for, all of them together."""

    def __init__(self, values: int, size: int) -> None:
        self._most_values = self._values = values
        self._bytes = size

    def take_structure(self, name: str, column: Any) -> None:
        """Take the values of a column's lists, its buffers and its views, which need not be valid yet."""
        kind, types = column.type, pa.types
        self._take_bytes(name, column.get_total_buffer_size())
        if is_list(kind):
            self._values -= sum(map(_listed, column.chunks))
            if self._values < 0:
                raise too_many_values(self._most_values)
        if _has_views(kind):
            self._take_bytes(name, sum(map(_view_bytes, column.chunks)))
        if types.is_dictionary(kind):  # it is validated with each record batch that refers to it
            self._take_bytes(name, sum(chunk.dictionary.get_total_buffer_size() for chunk in column.chunks))

    def take_decoded(self, name: str, column: Any) -> None:
        """Take the words of a column of dictionaries, once for each row that refers to them."""
        self._take_bytes(name, sum(map(_decoded_bytes, column.chunks)))

    def _take_bytes(self, name: str, size: int) -> None:
        self._bytes -= size
        if self._bytes < 0:
            why = f"column {shown(name)} repeats long words too often; send fewer rows, in one record batch"
            raise Refused(why, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)


def to_arrow(columns: Mapping[str, npt.NDArray[Any]], facts: Mapping[str, str]) -> bytes:
    """Return an answer: one column for each array, and facts in the schema's metadata."""
    arrays = [arrow_column(array) for array in columns.values()]
    return stream(pa.table(arrays, names=list(columns)), facts)


def stream(table: Any, facts: Mapping[str, str]) -> bytes:
    """Return a table as a stream of one record batch, with facts in the schema's metadata."""
    made = table.combine_chunks().replace_schema_metadata(dict(facts))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, made.schema) as writer:
        writer.write_table(made)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def check_messages(body: bytes) -> None:
    """Refuse what makes the reading of a stream dear: compression, dictionaries that grow, and many messages."""
    for count, message in enumerate(pa.ipc.MessageReader.open_stream(body)):
        if count > MESSAGES:
            why = f"the body holds more than {MESSAGES} record batches and dictionaries; send the rows in one batch"
            raise Refused(why, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        metadata = message.metadata.to_pybytes()
        start = encode.Get(number_types.UOffsetTFlags.packer_type, metadata, 0)
        held = _inner(FlatTable(metadata, start), _HEADER)
        if held is not None and message.type == "dictionary":
            if _field(held, _IS_DELTA):
                why = "dictionaries that grow are not read; send the rows in one record batch"
                raise Refused(why, HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
            held = _inner(held, _DATA)
        if held is not None and message.type in ("dictionary", "record batch") and _field(held, _COMPRESSION):
            why = "compressed buffers are not read; write the stream without compression"
            raise Refused(why, HTTPStatus.UNSUPPORTED_MEDIA_TYPE)


def _field(table: FlatTable, field: int) -> int:
    """Return where a table, which Arrow has verified, holds a field; 0: it does not."""
    return int(table.Offset(4 + 2 * field))


def _inner(table: FlatTable, field: int) -> FlatTable | None:
    offset = _field(table, field)
    return None if offset == 0 else FlatTable(table.Bytes, table.Indirect(table.Pos + offset))


def _refuse_kinds(schema: Any) -> None:
    for field in schema:
        if not _is_known(field.type):
            why = f"column {shown(field.name)} holds {shown(str(field.type))}; send integers, numbers, strings or lists"
            raise Refused(why)


def _is_known(kind: Any) -> bool:
    types = pa.types
    if is_list(kind):
        return _is_known(kind.value_type) and not types.is_dictionary(kind.value_type)
    if types.is_dictionary(kind):
        return _is_single(kind.value_type)
    return _is_single(kind)


def _is_single(kind: Any) -> bool:
    return any(getattr(pa.types, f"is_{name}")(kind) for name in SINGLE)


def _listed(array: Any) -> int:
    """Return the number of values that the lists of an array hold, at all depths together."""
    count = 0
    while is_list(array.type):
        is_fixed = pa.types.is_fixed_size_list(array.type)
        count += len(array) * int(array.type.list_size) if is_fixed else len(array.values)
        array = array.values
    return count


def _has_views(kind: Any) -> bool:
    types = pa.types
    if types.is_dictionary(kind) or is_list(kind):
        return _has_views(kind.value_type)
    return bool(types.is_string_view(kind) or types.is_binary_view(kind))


def _view_bytes(array: Any) -> int:
    """Return the bytes that the views of an array stand for; each begins with its length."""
    while is_list(array.type):
        array = array.values
    if pa.types.is_dictionary(array.type):
        array = array.dictionary
    last = array.offset + len(array)
    views = np.frombuffer(array.buffers()[1] or b"", np.uint32, 4 * last)  # a negative length is a huge one
    lengths = views.reshape(-1, 4)[array.offset :, 0].astype(np.int64)
    return int(lengths[np.asarray(array.is_valid())].sum())


def _decoded_bytes(chunk: Any) -> int:
    words = chunk.dictionary
    if not (pa.types.is_string(words.type) or pa.types.is_large_string(words.type)):
        return 8 * len(chunk)
    lengths = np.asarray(pc.binary_length(words).fill_null(0), np.int64)
    used = np.asarray(chunk.indices.drop_null(), np.int64)
    return int(lengths[used].sum()) if len(lengths) else 0
