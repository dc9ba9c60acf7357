"""Parquet files taken apart and put together again with other numbers: Thrift's compact protocol as plain values.

A struct is a dict of field to (kind, value), a list (kind of its elements, values), all else integers or bytes.
"""

import pyarrow.parquet as pq

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)


def varint(value):
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    return bytes(made) + bytes([value])


def _varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return value, at


def read(data, at=0, kind=STRUCT):
    """Return a value, and the byte behind it."""
    if kind in (TRUE, FALSE):
        return kind, at
    if kind == BYTE:
        return data[at], at + 1
    if kind in (I16, I32, I64):
        value, at = _varint(data, at)
        return value >> 1 ^ -(value & 1), at
    if kind == DOUBLE:
        return data[at : at + 8], at + 8
    if kind == BINARY:
        size, at = _varint(data, at)
        return data[at : at + size], at + size
    if kind == LIST:
        inner, size, at = data[at] & 15, data[at] >> 4, at + 1
        if size == 15:
            size, at = _varint(data, at)
        if size > len(data):
            raise ValueError("a list is longer than the file")
        values = []
        for _ in range(size):
            value, at = read(data, at, BYTE if inner in (TRUE, FALSE) else inner)
            values.append(value)
        return (inner, values), at
    fields, field = {}, 0
    while head := data[at]:
        at += 1
        if head >> 4:
            field += head >> 4
        else:
            field, at = read(data, at, I16)
        value, at = read(data, at, head & 15)
        fields[field] = (head & 15, value)
    return fields, at + 1


def write(value, kind=STRUCT):
    """Return the bytes of a value; bytes in place of a list or struct are written as they are."""
    if kind in (TRUE, FALSE):
        return b""
    if kind == BYTE:
        return bytes([value])
    if kind in (I16, I32, I64):
        return varint((value << 1 ^ value >> 63) & 2**64 - 1)
    if kind == BINARY:
        return varint(len(value)) + value
    if kind == DOUBLE or isinstance(value, bytes):
        return value
    if kind == LIST:
        inner, values = value
        head = bytes([len(values) << 4 | inner]) if len(values) < 15 else bytes([0xF0 | inner]) + varint(len(values))
        return head + b"".join(write(own, BYTE if inner in (TRUE, FALSE) else inner) for own in values)
    made = b""
    for field, (inner, own) in sorted(value.items()):
        made += bytes([inner]) + write(field, I16) + write(own, inner)
    return made + b"\0"


class File:
    """A Parquet file: the bytes before its footer, and the footer."""

    def __init__(self, data):
        size = int.from_bytes(data[-8:-4], "little")
        self.body, self.footer = data[: -8 - size], read(data[-8 - size : -8])[0]

    @classmethod
    def of(cls, path, table, **options):
        pq.write_table(table, path, **options)
        return cls(path.read_bytes())

    def to_bytes(self):
        footer = write(self.footer)
        return self.body + footer + len(footer).to_bytes(4, "little") + b"PAR1"

    def write(self, path):
        path.write_bytes(self.to_bytes())
        return path

    def group(self, number=0):
        return self.footer[4][1][1][number]

    def column(self, number=0, group=0):
        """Return the metadata of a column's pages."""
        return self.group(group)[1][1][1][number][3][1]

    def pages(self, column=0, group=0):
        """Return the headers of a column's pages, and their bodies."""
        meta = self.column(column, group)
        at = min(meta[field][1] for field in (9, 11) if field in meta)
        end, made = at + meta[7][1], []
        while at < end:
            header, at = read(self.body, at)
            if header[3][1] < 0:
                raise ValueError("a page has a negative size")
            made.append((header, self.body[at : at + header[3][1]]))
            at += header[3][1]
        return made

    def set_pages(self, pages, column=0, group=0):
        """Append pages, headers as values or bytes, to the file, as the pages of a column."""
        meta, begin = self.column(column, group), len(self.body)
        meta[9] = (I64, begin)
        meta.pop(11, None)
        for header, body in pages:
            if len(self.body) > begin and 11 not in meta and not isinstance(header, bytes) and header[1][1] != 2:
                meta[9], meta[11] = (I64, len(self.body)), (I64, begin)
            self.body += (header if isinstance(header, bytes) else write(header)) + body
        meta[7] = (I64, len(self.body) - begin)


def changed(fields, **values):
    """Set fields such as ``f3=5`` of a struct, which keep their kinds; return it."""
    for name, value in values.items():
        fields[int(name[1:])] = (fields[int(name[1:])][0], value)
    return fields
