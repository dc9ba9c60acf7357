"""Negative samplers: what is drawn, how often, and again after going back."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparrow.data import Batch, DataError, IdFeature, NegativeSampler, Parquet, RawFeature, Tables
from sparrow.data.samplers import ID
from tests.feed.pipelines import pipeline_of

ITEMS = {
    "item": ["7", "8", "9"],
    "price": [0.7, 0.8, 0.9],
    "tags": ["a|b", "", "c"],
    "count": [1.0, 0.0, 3.0],
}
FEATURES = [
    IdFeature("item", num_buckets=10, embedding_dim=4),
    IdFeature("tags", hash_bucket_size=100, embedding_dim=4, separator="|"),
    RawFeature("price"),
]


def sampler(items=ITEMS, features=FEATURES, **options):
    return NegativeSampler(Tables(items), features, **{"id_column": "item", "count": 40_000, **options})


def test_features_of_an_item_stay_together():
    drawn = sampler(count=50).draw(3)
    assert len(drawn) == 50
    item = drawn.ids["item"]
    np.testing.assert_allclose(drawn.numbers["price"][:, 0], item / 10, rtol=1e-6)
    assert [len(tags) for tags in drawn.ids["tags"].to_lists()] == [{7: 2, 8: 0, 9: 1}[i] for i in item.tolist()]
    keys = {int(i): int(k) for i, k in zip(item, drawn.keys[ID], strict=True)}
    assert len(set(keys.values())) == 3


@pytest.mark.parametrize(("weights", "shares"), [(None, [1 / 3, 1 / 3, 1 / 3]), ("count", [0.25, 0.0, 0.75])])
def test_shares(weights, shares):
    drawn = sampler(weight_column=weights).draw(0).ids["item"]
    counts = np.bincount(drawn, minlength=10)[7:]
    np.testing.assert_allclose(counts / counts.sum(), shares, atol=0.01)
    assert (shares[1] == 0.0) == (counts[1] == 0)


def test_draws_depend_on_seed_and_batch_alone():
    one = sampler(count=100)
    np.testing.assert_array_equal(one.draw(5).ids["item"], sampler(count=100).draw(5).ids["item"])
    assert (one.draw(5).ids["item"] != one.draw(6).ids["item"]).any()
    assert (one.draw(5).ids["item"] != sampler(count=100, seed=1).draw(5).ids["item"]).any()


def test_items_are_read_as_examples_are():
    """Texts in the items and numbers in the examples: the same item has the same row and the same key."""
    feature = [IdFeature("item", hash_bucket_size=1000, embedding_dim=4)]
    numbers = sampler({"item": [7, 8]}, feature, count=20).draw(0)
    read = sampler({"item": ["7", "8"]}, feature, count=20, like={"item": pa.int64()}).draw(0)
    np.testing.assert_array_equal(numbers.ids["item"], read.ids["item"])
    np.testing.assert_array_equal(numbers.keys[ID], read.keys[ID])
    texts = sampler({"item": ["7", "8"]}, feature, count=20).draw(0)
    read = sampler({"item": [7, 8]}, feature, count=20, like={"item": pa.string()}).draw(0)
    np.testing.assert_array_equal(texts.ids["item"], read.ids["item"])
    assert (texts.ids["item"] != numbers.ids["item"]).any()


def examples(make=sampler):
    table = Tables({"item": range(10), "price": [0.0] * 10, "tags": [""] * 10}, chunk_rows=4)
    return pipeline_of(table, FEATURES, batch_size=3, epochs=2, ahead=0, negatives=lambda reader: make(count=8))


def test_negatives_of_a_pipeline_come_again_at_a_position():
    def drawn(pipeline):
        return [batch.negatives.ids["item"].tolist() for batch in pipeline]

    whole = examples()
    batches = drawn(whole)
    assert len(batches) == 8  # four of each epoch
    assert len({tuple(batch) for batch in batches}) > 5
    for stop in (1, 4, 6):
        first = examples()
        iterator = iter(first)
        for _ in range(stop):
            next(iterator)
        again = examples()
        again.restore(first.position())
        assert drawn(again) == batches[stop:]
    other = examples(lambda **options: sampler(weight_column="count", **options))
    with pytest.raises(ValueError, match="taken with other data"):
        other.restore(whole.position())


@pytest.mark.parametrize(
    ("items", "options", "message"),
    [
        ({"item": ["7"]}, {}, "column 'tags': there is no such column"),
        ({**ITEMS, "count": [0.0, 0.0, 0.0]}, {"weight_column": "count"}, "column 'count': all weights are 0"),
        (
            {**ITEMS, "count": [1.0, -1.0, 0.0]},
            {"weight_column": "count"},
            "row 1, column 'count': a sample weight must",
        ),
        ({**ITEMS, "item": ["7", "x", "9"]}, {"like": {"item": pa.int64()}}, "column 'item': cannot be read as int64"),
        ({**ITEMS, "item": ["7", None, "9"]}, {}, "row 1, column 'item': the key has no value"),
        (
            ITEMS,
            {"like": {"tags": pa.list_(pa.int64())}},
            "column 'tags': cannot be read as lists of int64, which the examples hold",
        ),
        (ITEMS, {"like": {"price": pa.list_(pa.float64())}}, "column 'price': holds double, the examples list"),
        ({name: values[:0] for name, values in ITEMS.items()}, {}, "there are no items"),
    ],
)
def test_wrong_items(items, options, message):
    with pytest.raises(DataError) as error:
        sampler(items, **options)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_items_in_a_file(tmp_path):
    pq.write_table(pa.table(ITEMS), tmp_path / "items.parquet")
    read = NegativeSampler(Parquet(str(tmp_path / "items.parquet")), FEATURES, id_column="item", count=9).draw(1)
    np.testing.assert_array_equal(read.ids["item"], sampler(count=9).draw(1).ids["item"])


def test_strings_of_items_are_lists_where_the_examples_have_lists():
    items = Tables({"item": [1, 2], "tags": ["3|4", None]})
    tags = IdFeature("tags", num_buckets=10, embedding_dim=4, separator="|", pooling="sum")
    like = {"tags": pa.list_(pa.int64()), "item": pa.int64()}
    sampler = NegativeSampler(items, [tags], id_column="item", count=8, like=like)
    assert {tuple(row) for row in sampler.draw(batch=0).ids["tags"].to_lists()} == {(3, 4), ()}


def test_the_sampler_gives_the_logarithm_of_how_often_items_are_drawn():
    items = Tables({"item": [3, 5, 8], "count": [0.0, 1.0, 3.0]})
    features = [IdFeature("item", num_buckets=10, embedding_dim=4)]
    sampler = NegativeSampler(
        items, features, id_column="item", weight_column="count", count=8, chosen_key="item", seed=3
    )
    batch = Batch(keys={"item": np.array([8, 3, 4])})  # 3 is never drawn, 4 is unknown: as rare as the rarest
    made = sampler.add(batch, 0)
    expected = {5: 2.0, 8: 6.0}
    drawn = [expected[key] for key in made.negatives.keys["id"].tolist()]
    np.testing.assert_allclose(np.exp(made.log_q), [6.0, 2.0, 2.0, *drawn], rtol=1e-6)
