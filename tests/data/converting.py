"""Features on columns: the values of one, and the first of its problems."""

import pyarrow as pa

from sparrow.data import (
    IdFeature,
)
from sparrow.data.errors import Problems


def convert(feature, problems=None, **columns):
    batch = pa.RecordBatch.from_pydict(columns)
    own = Problems(batch.num_rows)
    result = feature.convert(batch, problems if problems is not None else own)
    assert own.first is None, own.first
    return result


def first_problem(feature, **columns):
    problems = Problems(len(next(iter(columns.values()))))
    convert(feature, problems, **columns)
    return problems.first


def id_feature(**fields):
    return IdFeature("x", embedding_dim=4, **fields)
