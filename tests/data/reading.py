"""Rows of a source, for tests."""

import pyarrow as pa


def read_all(source, columns=None, bad_rows="error"):
    reader = source.open(columns or source.column_names())
    rows = [reader.read(chunk, bad_rows) for chunk in range(reader.num_chunks)]
    return pa.concat_tables(row.table for row in rows).to_pydict(), rows
