"""Computed columns of small tables, for the tests of each."""

import pyarrow as pa

from sparrow.data import register_function
from sparrow.data.errors import Problems


def column(record, **columns):
    """The computed column of a table, checked to be without mistakes."""
    arrays = {name: value if isinstance(value, pa.Array) else pa.array(value) for name, value in columns.items()}
    batch = pa.RecordBatch.from_pydict(arrays)
    for name in record.columns:
        assert record.refuse(name, arrays[name].type) is None
    problems = Problems(batch.num_rows)
    made = record.compute(batch, problems).to_pylist()
    assert problems.rows is None, problems.first
    return made


def mistakes(record, **columns):
    batch = pa.RecordBatch.from_pydict(columns)
    problems = Problems(batch.num_rows)
    record.compute(batch, problems)
    return (problems.rows.tolist(), problems.first[2]) if problems.rows is not None else None


def read(feature, **columns):
    return feature.convert(pa.RecordBatch.from_pydict(columns), Problems(len(next(iter(columns.values())))))


@register_function("test_initials")
def initials(texts, times=1):
    return [None if text is None else text[0] * times for text in texts.to_pylist()]
