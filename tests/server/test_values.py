"""Values of another form than the data of training had, as docs/serving.md has it."""

import io
import time

import numpy as np
import pytest

import sparrow as sp
from sparrow import runs, serving
from sparrow.data import ComboFeature, DataError, DynamicRows, IdFeature, RawFeature, SequenceFeature
from sparrow.server import Limits
from sparrow.serving.reading import Reading

FEATURES = [
    IdFeature("user", num_buckets=9, embedding_dim=2),
    IdFeature("tags", vocabulary=("red", "blue"), embedding_dim=2, pooling="mean"),
    SequenceFeature("seen", num_buckets=9, embedding_dim=2, max_length=3),
    RawFeature("price"),
    RawFeature("sizes", dim=2),
]
ROW = {"user": 3, "tags": ["red"], "seen": [1, 2], "price": 1.0, "sizes": [1.0, 2.0]}


def read(**fields):
    return Reading(FEATURES).batch({name: [value] for name, value in {**ROW, **fields}.items()})


def test_one_id_of_a_bag_needs_no_list():
    assert read(tags="blue").ids["tags"].tolist() == [1]


@pytest.mark.parametrize(("value", "kind"), [(5, "int64"), ("5", "string"), (0.5, "double")])
def test_one_value_instead_of_a_sequence_is_refused(value, kind):
    with pytest.raises(DataError, match=f"'seen' is a sequence, the column holds {kind}; give lists, such as .7. inst"):
        read(seen=value)


def test_a_text_with_a_separator_and_a_missing_value_are_sequences():
    split = SequenceFeature("seen", num_buckets=9, embedding_dim=2, max_length=3, separator="|")
    assert Reading([split]).batch({"seen": ["1|2"]}).ids["seen"].to_lists() == [[1, 2]]
    assert read(seen=None).ids["seen"].to_lists() == [[]]


def test_a_list_instead_of_one_id_is_pooled():
    assert read(user=[3, 4]).ids["user"].to_lists() == [[3, 4]]


def test_true_and_false_are_numbers():
    assert read(price=True).numbers["price"].tolist() == [[1.0]]
    assert read(user=True).ids["user"].tolist() == [1]
    np.testing.assert_array_equal(read(price="2.5").numbers["price"], [[2.5]])


def test_numbers_of_another_count_are_refused():
    for fields in ({"price": [1.0, 2.0]}, {"sizes": 1.0}, {"sizes": [1.0]}):
        with pytest.raises(DataError, match=f"'{next(iter(fields))}' needs [12] numbers per row"):
            read(**fields)


def test_numbers_that_32_bits_cannot_hold_are_refused():
    assert read(price=3e38).numbers["price"].tolist() == [[float(np.float32(3e38))]]
    for fields, why in (
        ({"price": 1e39}, r"row 0, column 'price': 1e\+39 is too large for feature 'price', which has 32 bits"),
        ({"sizes": [1.0, -1e39]}, r"row 0, column 'sizes': \[1.0, -1e\+39\] is too large"),
    ):
        with pytest.raises(DataError, match=why):
            read(**fields)
    weighted = Reading([IdFeature("user", num_buckets=9, embedding_dim=2, weight_column="share")])
    with pytest.raises(DataError, match=r"row 1, column 'share': \[1.0, 1e\+39\] is too large"):
        weighted.batch({"user": [[1], [2, 3]], "share": [[1.0], [1.0, 1e39]]})


HASHED = [
    IdFeature("tags", hash_bucket_size=1000, embedding_dim=2, pooling="sum"),
    IdFeature("shop", hash_bucket_size=1000, embedding_dim=2),
    ComboFeature("both", cross=("shop", "day"), hash_bucket_size=1000, embedding_dim=2),
    SequenceFeature("seen", dynamic=DynamicRows(rows=10), embedding_dim=2, max_length=3),
    IdFeature("as_integer", hash_bucket_size=1000, embedding_dim=2, as_integer=True),
]
INTEGERS = {"tags": [1, 2], "shop": 7, "day": 3, "seen": [5, 6], "as_integer": 4}
TEXTS = {"tags": ["1", " 2"], "shop": "7", "day": "3", "seen": ["5", "6"], "as_integer": "4"}
KINDS = dict.fromkeys(("tags", "shop", "day", "seen"), "integers")


def ids_of(reading, row):
    found = reading.batch({name: [value] for name, value in row.items()}).ids
    return {name: (held.to_lists() if hasattr(held, "to_lists") else held.tolist()) for name, held in found.items()}


def test_ids_have_the_type_of_training():
    """17 and "17" are different ids where they are hashed; a request may send either."""
    plain = Reading(HASHED)
    whole, texts = ids_of(plain, INTEGERS), ids_of(plain, {**TEXTS, "tags": ["1", "2"]})
    assert all(whole[name] != texts[name] for name in ("tags", "shop", "both", "seen"))
    trained = Reading(HASHED, KINDS)
    assert ids_of(trained, TEXTS) == ids_of(trained, INTEGERS) == whole
    on_texts = Reading(HASHED, dict.fromkeys(KINDS, "strings"))
    assert ids_of(on_texts, {**TEXTS, "tags": ["1", "2"]}) == ids_of(on_texts, INTEGERS) == texts
    missing = {"tags": [], "shop": None, "day": None, "seen": None, "as_integer": None}
    assert ids_of(trained, missing) == ids_of(plain, missing)


def test_ids_that_cannot_have_that_type_are_refused():
    for wrong in ("x", "1.5", "9" * 30):
        with pytest.raises(DataError, match=r"row 0, column 'tags': .* is not an integer, and the model was"):
            ids_of(Reading(HASHED, KINDS), {**INTEGERS, "tags": ["1", wrong]})
    with pytest.raises(DataError, match="'shop': the model was trained on strings, the column holds double"):
        ids_of(Reading(HASHED, {"shop": "strings"}), {**INTEGERS, "shop": 1.5})


def test_the_type_of_training_is_in_the_export(tmp_path):
    rng = np.random.default_rng(0)
    rows = {"item": rng.integers(0, 50, 256), "word": rng.integers(0, 50, 256).astype(str), "click": [0, 1] * 128}
    hashed = {"hash_bucket_size": 1000, "embedding_dim": 4}
    features = {name: IdFeature(name, **hashed) for name in ("item", "word")}
    sp.fit(rows, "click", features=features, epochs=1, batch_size=64, folder=tmp_path / "run", stream=io.StringIO())
    runs.load(tmp_path / "run").export(tmp_path / "export")
    model = serving.load(tmp_path / "export")
    assert model.signature["predict"]["inputs"] == {
        "item": "integers; may be missing",
        "word": "strings; may be missing",
    }
    found = model.predict({"item": ["7"], "word": [9]})["click"]
    assert found == model.predict({"item": [7], "word": ["9"]})["click"]


@pytest.mark.slow
def test_ten_thousand_columns():
    """The first request with a schema costs the most: it stays below the limit of a body's processor time."""
    features = [IdFeature(f"c{n}", num_buckets=9, embedding_dim=2) for n in range(10_000)]
    reading, row = Reading(features), {f"c{n}": [n % 9] for n in range(10_000)}
    began = time.thread_time()
    batch = reading.batch(row)
    assert time.thread_time() - began < Limits().parse_seconds
    assert [int(batch.ids[f"c{n}"][0]) for n in range(20)] == [n % 9 for n in range(20)]


def test_requests_are_converted_together_where_their_types_agree() -> None:
    reading = Reading([RawFeature("price"), IdFeature("item", num_buckets=9, embedding_dim=4)])
    batch = reading.together([{"price": [1], "item": [3]}, {"price": [1.5], "item": [None]}])
    assert batch is not None
    assert batch.numbers["price"].ravel().tolist() == [1.0, 1.5]
    assert len(batch) == 2
    assert reading.together([{"price": [1], "item": [1]}, {"price": [2], "item": ["1"]}]) is None
