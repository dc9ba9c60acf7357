"""Data that was rewritten under the same name and with the same size is other data."""

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparrow.data import Csv, IdFeature, Parquet, Tables
from sparrow.data.sources import files as content
from tests.feed.pipelines import pipeline_of

FEATURE = IdFeature("item", num_buckets=1000, embedding_dim=4)


def write_parquet(path, values):
    pq.write_table(pa.table({"item": values}), path, compression="none", use_dictionary=False)


def write_csv(path, values):
    path.write_text("item\n" + "\n".join(f"{value:03}" for value in values) + "\n")


def pipeline(source):
    return pipeline_of(source, [FEATURE], batch_size=10)


@pytest.mark.parametrize(("name", "write"), [("a.parquet", write_parquet), ("a.csv", write_csv)])
@pytest.mark.parametrize("rows", [100, 200_000], ids=["small", "large"])
def test_the_same_size(tmp_path, name, write, rows):
    path = tmp_path / name
    values = np.random.default_rng(0).integers(0, 500, rows)
    source = Parquet(str(path)) if name.endswith("parquet") else Csv(str(path))
    write(path, values)
    size, position = path.stat().st_size, pipeline(source).position()
    assert (size > content.WHOLE) == (rows > 100)
    os.utime(path, (1, 1))
    pipeline(source).restore(position)
    write(path, values[::-1])
    assert path.stat().st_size == size
    with pytest.raises(ValueError, match="other data"):
        pipeline(source).restore(position)


def test_statistics_of_a_large_file(tmp_path):
    """One value of many, between the blocks: the footer's statistics tell."""
    path, values = tmp_path / "a.parquet", np.full(200_000, 7)
    write_parquet(path, values)
    position = pipeline(Parquet(str(path))).position()
    values[3] = 8
    write_parquet(path, values)
    with pytest.raises(ValueError, match="other data"):
        pipeline(Parquet(str(path))).restore(position)


def test_tables_in_memory():
    values = list(range(50))
    position = pipeline(Tables({"item": values})).position()
    pipeline(Tables({"item": values})).restore(position)
    with pytest.raises(ValueError, match="other data"):
        pipeline(Tables({"item": values[::-1]})).restore(position)
