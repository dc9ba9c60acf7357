"""Vocabularies counted from sources."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sparrow.data import (
    IdFeature,
    Parquet,
    Tables,
    Vocabulary,
    build_vocabularies,
    write_vocabularies,
)
from tests.feed.pipelines import pipeline_of


def test_vocabularies_count_all_columns_in_one_pass(tmp_path):
    rng = np.random.default_rng(0)
    words = rng.integers(0, 30, 1000)
    lists = [list(map(str, rng.integers(0, 5, n))) for n in rng.integers(0, 3, 1000)]
    table = pa.table({"word": words, "tags": lists, "joined": ["|".join(row) for row in lists]})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=64)
    built = build_vocabularies(
        Parquet(str(tmp_path / "t.parquet")), {"word": None, "tags": None, "joined": "|"}, min_count=30, max_words=20
    )
    values, counts = np.unique(words, return_counts=True)
    order = sorted(zip(-counts, map(str, values), strict=True))
    expected = [(word, -count) for count, word in order if -count >= 30][:20]
    assert list(zip(built["word"].vocabulary.words, built["word"].counts, strict=True)) == expected
    assert built["word"].distinct == 30
    assert built["tags"].counts == built["joined"].counts
    assert built["tags"].vocabulary.words == built["joined"].vocabulary.words
    assert built["tags"].missing == built["joined"].missing == sum(not row for row in lists)


def test_a_built_vocabulary_serves_a_feature(tmp_path):
    source = Tables({"city": ["Oslo", "Rome", "Rome", None, "Bern"]})
    path, counted = write_vocabularies(source, ["city"], tmp_path / "words", min_count=2)["city"]
    assert path == tmp_path / "words" / "city.txt"
    assert (counted.counts, counted.distinct, counted.missing) == ((2,), 3, 1)
    assert Vocabulary.load(path).words == ("Rome",)
    feature = IdFeature("city", vocabulary=str(path), embedding_dim=4)
    (batch,) = pipeline_of(source, [feature], batch_size=5)
    assert batch.ids["city"].tolist() == [1, 0, 0, -1, 1]


def test_merging_counts_often_changes_nothing(monkeypatch):
    source = Tables({"x": [f"w{i % 37}" for i in range(500)]}, chunk_rows=20)
    whole = build_vocabularies(source, ["x"])["x"]
    monkeypatch.setattr("sparrow.data.counting._MERGE_ROWS", 10)
    merged = build_vocabularies(source, ["x"])["x"]
    assert (merged.vocabulary.words, merged.counts) == (whole.vocabulary.words, whole.counts)
    assert sum(whole.counts) == 500
