"""Views and bytes are strings to every source."""

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparrow.data import DataError, IdFeature, Parquet, Tables
from tests.feed.pipelines import pipeline_of

WORDS = ["a", "longer than twelve bytes", "c"]
FEATURES = [
    IdFeature("word", vocabulary=WORDS, embedding_dim=2),
    IdFeature("words", vocabulary=WORDS, embedding_dim=2, pooling="sum"),
    IdFeature("kind", vocabulary=WORDS, embedding_dim=2),
    IdFeature("bytes", vocabulary=WORDS, embedding_dim=2),
]
ROWS = {"word": ["c", None, "a"], "words": [["a", "c"], [], ["c"]], "kind": ["a", "c", "a"]}


def batch_of(source):
    (batch,) = pipeline_of(source, FEATURES, batch_size=3)
    return {name: (ids.tolist if isinstance(ids, np.ndarray) else ids.to_lists)() for name, ids in batch.ids.items()}


def tables():
    raw = [None if word is None else word.encode() for word in ROWS["word"]]
    plain = pa.table({**ROWS, "bytes": ROWS["word"]})
    arrays = {
        "word": pa.array(ROWS["word"], pa.string_view()),
        "words": pa.array(ROWS["words"], pa.large_list(pa.string_view())),
        "kind": pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), pa.array(["a", "c"], pa.string_view())),
    }
    yield plain, pa.table({**arrays, "bytes": pa.array(raw, pa.binary_view())})
    yield plain, pa.table({**arrays, "bytes": pa.array(raw, pa.binary())})
    yield plain, pl.DataFrame({**ROWS, "bytes": raw}).with_columns(pl.col("kind").cast(pl.Categorical))


@pytest.mark.parametrize("number", range(3))
def test_views_in_memory_and_in_files(tmp_path, number):
    plain, given = list(tables())[number]
    expected = batch_of(Tables(plain))
    assert expected["word"] == [2, -1, 0]
    assert batch_of(Tables(given)) == expected
    path = tmp_path / "rows.parquet"
    if isinstance(given, pa.Table):
        decoded = given.set_column(2, "kind", plain["kind"])  # Arrow writes no dictionary of views
        pq.write_table(decoded, path)
    else:
        given.write_parquet(path)
    assert batch_of(Parquet(str(path))) == expected


def test_bytes_that_are_no_strings():
    rows = Tables({"bytes": pa.array([b"\xff"], pa.binary_view()), "item": [1]})
    rows.open(["item"])  # nobody reads the others
    with pytest.raises(DataError, match="bytes are read as strings, and some are not UTF-8"):
        rows.open(["bytes"])
