"""Samplers that know users, and the one of trees: against plain Python, and again after going back."""

import numpy as np
import pyarrow as pa
import pytest

from sparrow.data import (
    Ancestors,
    Batch,
    DataError,
    EdgeTable,
    IdFeature,
    Masks,
    NegativeSampler,
    Parents,
    RawFeature,
    Tables,
    TreeSampler,
)
from sparrow.data.samplers import ID
from tests.feed.pipelines import pipeline_of

ITEMS = {"item": list(range(20)), "price": [i / 10 for i in range(20)]}
FEATURES = [IdFeature("item", num_buckets=20, embedding_dim=4), RawFeature("price")]
BOUGHT = {(user, item) for user in range(6) for item in range(20) if (user * 7 + item * 3) % 5 == 0}
SEEN = {(user, item) for user in range(6) for item in range(20) if (user + item) % (3 + user) == 1}


def pairs(edges, kind=int):
    users, items = zip(*sorted(edges), strict=True)
    return EdgeTable(Tables({"u": [kind(u) for u in users], "i": [kind(i) for i in items]}), "u", "i")


def sampler(**options):
    fixed = {"id_column": "item", "count": 30, "chosen_key": "item", "user_key": "user"}
    return NegativeSampler(Tables(ITEMS), FEATURES, **{**fixed, **options})


USERS, CHOSEN = np.array([0, 3, 5, 99]), np.array([4, 4, 17, 2])


def batch():
    numbers = {"price": np.zeros((4, 1), np.float32)}
    return Batch(ids={"item": CHOSEN.astype(np.int32)}, numbers=numbers, keys={"user": USERS, "item": CHOSEN})


def items_of(drawn):
    np.testing.assert_allclose(drawn.numbers["price"][:, 0] * 10, drawn.ids["item"], rtol=1e-6)
    return drawn.ids["item"]


def test_positives_of_a_user_are_no_negatives():
    made = sampler(positives=pairs(BOUGHT)).add(batch(), 3)
    drawn = items_of(made.negatives)
    np.testing.assert_array_equal(drawn, sampler().draw(3).ids["item"])
    expected = [[i != c and (u, i) not in BOUGHT for i in drawn] for u, c in zip(USERS, CHOSEN, strict=True)]
    np.testing.assert_array_equal(made.takes_part, expected)
    assert not made.takes_part[0].all()


@pytest.mark.parametrize("positives", [None, pairs(BOUGHT)])
def test_hard_negatives_are_those_of_the_user(positives):
    made = sampler(hard=pairs(SEEN), hard_count=4, positives=positives).add(batch(), 3)
    drawn = items_of(made.negatives)
    assert len(drawn) == 30 + 4 * 4
    assert made.takes_part.shape == (4, 34)
    own = drawn[30:].reshape(4, 4)
    for row, (user, chosen) in enumerate(zip(USERS, CHOSEN, strict=True)):
        known = {i for u, i in SEEN if u == user} - {chosen}
        there = made.takes_part[row, 30:]
        found = own[row][there].tolist()
        assert len(found) == len(set(found)) == min(4, len(known))
        assert set(found) <= known
    shared = [
        [i != c and (positives is None or (u, i) not in BOUGHT) for i in drawn[:30]]
        for u, c in zip(USERS, CHOSEN, strict=True)
    ]
    np.testing.assert_array_equal(made.takes_part[:, :30], shared)
    others = {
        tuple(sampler(hard=pairs(SEEN), hard_count=4).add(batch(), n).negatives.ids["item"][30:34]) for n in range(9)
    }
    assert len(others) > 1, "a user with many has other ones in other batches"


def test_ids_of_edges_are_read_as_those_of_examples():
    kinds = {"like": {"item": pa.int64()}, "user_kind": pa.int64()}
    texts = sampler(positives=pairs(BOUGHT, str), hard=pairs(SEEN, str), hard_count=2, **kinds).add(batch(), 1)
    numbers = sampler(positives=pairs(BOUGHT), hard=pairs(SEEN), hard_count=2).add(batch(), 1)
    np.testing.assert_array_equal(texts.takes_part, numbers.takes_part)
    np.testing.assert_array_equal(items_of(texts.negatives), items_of(numbers.negatives))


def test_weights_hold_with_users():
    weights = {**ITEMS, "weight": [float(i < 2) * (1 + i) for i in range(20)]}
    many = NegativeSampler(
        Tables(weights), FEATURES, id_column="item", weight_column="weight", count=30_000,
        chosen_key="item", user_key="user", positives=pairs(BOUGHT),
    )  # fmt: skip
    counts = np.bincount(items_of(many.add(batch(), 0).negatives), minlength=20)
    np.testing.assert_allclose(counts / counts.sum(), [1 / 3, 2 / 3, *[0.0] * 18], atol=0.02)


def test_wrong_edges():
    with pytest.raises(ValueError, match="need the keys of the user and of the item chosen"):
        NegativeSampler(Tables(ITEMS), FEATURES, id_column="item", count=3, positives=pairs(BOUGHT))
    with pytest.raises(DataError, match="1 of 2 pairs name an item that is not among the items"):
        sampler(hard=pairs({(1, 2), (1, 77)}), hard_count=2)
    made = sampler(hard=pairs({(0, 2), (0, 77)}), hard_count=2, bad_rows="skip").add(batch(), 0)
    assert made.takes_part[:, 30:].sum() == 1


# --- trees -----------------------------------------------------------------------------------------------------------
# 0 is the root, 1 and 2 its children, 3 to 6 theirs, 10 to 17 the leaves.
PARENT = {0: 0, 1: 0, 2: 0, 3: 1, 4: 1, 5: 2, 6: 2, **{10 + i: 3 + i // 2 for i in range(8)}}
LEVEL = {node: 0 if node == 0 else 1 if node < 3 else 2 if node < 10 else 3 for node in PARENT}
NODES = {
    "node": list(PARENT),
    "parent": list(PARENT.values()),
    "price": [node / 10 for node in PARENT],
    "level": list(LEVEL.values()),
    "weight": [1.0 + (node % 2) for node in PARENT],
}
NODE_FEATURES = [IdFeature("node", num_buckets=20, embedding_dim=4), RawFeature("price")]


def path(leaf):
    return [leaf, *path(PARENT[leaf])] if leaf else [0]


def ancestors():
    edges = [(leaf, node) for leaf in range(10, 18) for node in path(leaf)[1:-1]]
    return Ancestors(
        EdgeTable(Tables({"leaf": [a for a, _ in edges], "above": [b for _, b in edges]}), "leaf", "above"), "level"
    )


def tree(nodes=NODES, **options):
    fixed = {
        "id_column": "node",
        "form": Parents("parent"),
        "counts": (0, 1, 2, 3),
        "chosen_key": "item",
        "labels": ["click"],
    }
    return TreeSampler(Tables(nodes), NODE_FEATURES, **{**fixed, **options})


def chosen(*leaves):
    ids = np.array(leaves)
    return Batch(
        ids={"user": np.arange(len(ids), dtype=np.int32), "node": ids.astype(np.int32)},
        numbers={"price": np.zeros((len(ids), 1), np.float32)},
        labels={"click": np.ones(len(ids), np.float32), "other": np.full(len(ids), 5.0, np.float32)},
        keys={"item": ids},
    )


@pytest.mark.parametrize("form", [Parents("parent"), ancestors()], ids=["parents", "ancestors"])
@pytest.mark.parametrize("weights", [None, "weight"])
def test_levels_of_a_tree(form, weights):
    leaves = [10, 13, 17, 10]
    made = tree(form=form, weight_column=weights).add(chosen(*leaves), 5)
    assert made.negatives is None
    nodes, labels = made.ids["node"].reshape(4, -1), made.labels["click"].reshape(4, -1)
    assert nodes.shape == (4, 3 + 1 + 2 + 3)
    np.testing.assert_allclose(made.numbers["price"][:, 0] * 10, made.ids["node"], rtol=1e-6)
    np.testing.assert_array_equal(made.ids["user"], np.repeat(np.arange(4), 9))
    assert set(made.labels["other"]) == {5.0}
    for leaf, own, label in zip(leaves, nodes, labels, strict=True):
        assert own[label == 1].tolist() == path(leaf)[:-1][::-1]
        for level, count in ((1, 1), (2, 2), (3, 3)):
            drawn = [n for n, is_own in zip(own, label, strict=True) if not is_own and LEVEL[n] == level]
            assert len(drawn) == len(set(drawn)) == count
            assert not set(drawn) & set(path(leaf))


@pytest.mark.parametrize(("share", "negatives_share"), [(1.0, 0.0), (0.0, 1.0)])
def test_masks_of_a_tree_tell_drawn_nodes_from_ancestors(share, negatives_share):
    """As TorchEasyRec: positives have the chance of examples, drawn nodes that of negatives."""
    price = RawFeature("price", missing=-1.0)
    masks = Masks([price], {"price": pa.float64()}, share=share, negatives_share=negatives_share, sampler=tree())
    made = masks.add(chosen(10, 13, 17), 5)
    hidden = made.numbers["price"][:, 0] == -1
    assert hidden.tolist() == (made.labels["click"] == (1.0 if share else 0.0)).tolist()


def test_both_forms_draw_the_same():
    a, b = tree().add(chosen(10, 16), 2), tree(form=ancestors()).add(chosen(10, 16), 2)
    np.testing.assert_array_equal(a.ids["node"], b.ids["node"])
    rootless = {name: values[1:] for name, values in NODES.items()}
    c = tree(rootless, form=ancestors()).add(chosen(10, 16), 2)
    np.testing.assert_array_equal(a.ids["node"], c.ids["node"])
    counted = {**NODES, "level": [level + 5 for level in NODES["level"]]}
    d = tree(counted, form=ancestors()).add(chosen(10, 16), 2)
    np.testing.assert_array_equal(a.ids["node"], d.ids["node"])
    with pytest.raises(DataError, match="the nodes are on 4 levels, and counts has 3"):
        tree(form=ancestors(), counts=(0, 1, 2))


def test_draws_without_replacement_have_the_shares_of_an_urn():
    """Of the second level, with weights 2 1 2 1 of nodes 3 4 5 6; the own node is 3, two of the others are drawn."""
    made = tree(weight_column="weight").add(chosen(*[10] * 20_000), 0)
    nodes = made.ids["node"].reshape(20_000, -1)[:, 3:5]
    weights = {4: 1.0, 5: 2.0, 6: 1.0}
    expected = {}
    for node in weights:
        first = weights[node] / 4
        second = sum(weights[other] / 4 * weights[node] / (4 - weights[other]) for other in weights if other != node)
        expected[node] = first + second
    for node, share in expected.items():
        assert (nodes == node).any(axis=1).mean() == pytest.approx(share, abs=0.015)


def test_large_levels_are_drawn_by_trying_again():
    wide = {"node": list(range(1001)), "parent": [0] * 1001, "price": [n / 10 for n in range(1001)]}
    features = [IdFeature("node", num_buckets=1001, embedding_dim=4), RawFeature("price")]
    options = {"id_column": "node", "form": Parents("parent"), "chosen_key": "item", "labels": ["click"]}
    made = TreeSampler(Tables(wide), features, counts=(0, 200), **options).add(chosen(*range(1, 30)), 1)
    rows = made.ids["node"].reshape(29, 201)
    assert all(len(set(row.tolist())) == 201 for row in rows)
    assert rows.min() > 0
    heavy = {**wide, "weight": [0.0, 1e9, *[1e-3] * 999]}
    made = TreeSampler(Tables(heavy), features, counts=(0, 50), weight_column="weight", **options).add(chosen(2, 3), 1)
    assert all(len(set(row.tolist())) == 51 for row in made.ids["node"].reshape(2, 51))


def test_some_levels_are_left_out():
    seen = set()
    for number in range(40):
        made = tree(keep_ratio=0.5).add(chosen(10), number)
        levels = {LEVEL[n] for n in made.ids["node"].tolist()}
        assert 3 in levels
        assert len(levels) == 2
        seen |= levels
    assert seen == {1, 2, 3}
    later = [tree(keep_ratio=0.5, keep_weights="arithmetic").add(chosen(10), n).ids["node"] for n in range(300)]
    assert np.mean([2 in {LEVEL[n] for n in nodes.tolist()} for nodes in later]) == pytest.approx(2 / 3, abs=0.1)


@pytest.mark.parametrize(
    "make",
    [
        lambda _: tree(),
        lambda _: sampler(positives=pairs(BOUGHT), hard=pairs(SEEN), hard_count=3, count=8),
    ],
    ids=["tree", "hard"],
)
def test_draws_come_again_at_a_position(make):
    rows = {"item": [10 + i % 8 for i in range(10)], "user": [i % 6 for i in range(10)], "click": [1.0] * 10}
    rows |= {"node": rows["item"], "price": [0.0] * 10}

    def pipeline():
        features = NODE_FEATURES if make is not None and make(None).__class__ is TreeSampler else FEATURES
        return pipeline_of(
            Tables(rows, chunk_rows=4), features, labels=["click"], keys=["item", "user"], batch_size=3, epochs=2,
            ahead=0, shuffle_rows=5, negatives=make,
        )  # fmt: skip

    def seen(pipeline):
        made = []
        for batch in pipeline:
            drawn = batch if batch.negatives is None else batch.negatives
            mask = None if batch.takes_part is None else batch.takes_part.tolist()
            made.append((drawn.ids[next(iter(drawn.ids))].tolist(), mask))
        return made

    whole = seen(pipeline())
    assert len(whole) == 8
    for stop in (1, 5):
        first = pipeline()
        iterator = iter(first)
        for _ in range(stop):
            next(iterator)
        again = pipeline()
        again.restore(first.position())
        assert seen(again) == whole[stop:]


@pytest.mark.parametrize(
    ("nodes", "options", "message"),
    [
        (NODES, {"counts": (0, 1, 2)}, "the tree has 4 levels, and counts has 3"),
        (NODES, {"counts": (0, 2, 2, 2)}, "level 1 has 2 nodes that can be drawn, and so at most 1 besides"),
        (NODES, {"counts": (1, 1, 2, 2)}, "counts must begin with 0"),
        ({**NODES, "parent": [99, *NODES["parent"][1:]]}, {}, "the parent of node 0, counted from 0, is no node"),
        ({**NODES, "parent": [0, 1, *NODES["parent"][2:]]}, {}, "one root, which is its own parent; found 2"),
        ({**NODES, "parent": [0, 3, 0, 1, *NODES["parent"][4:]]}, {}, "nodes are their own ancestors"),
        ({name: values[:-2] for name, values in NODES.items()}, {}, "all leaves must be on the last level, 3"),
        (
            NODES,
            {"form": Ancestors(EdgeTable(Tables({"l": [10], "a": [3]}), "l", "a"), "level")},
            "has no ancestor on level",
        ),
        (NODES, {"keep_ratio": 2.0}, "keep_ratio must be a finite number"),
    ],
)
def test_wrong_trees(nodes, options, message):
    with pytest.raises(ValueError, match=message):
        tree(nodes, **options)


def test_an_item_that_is_no_leaf():
    with pytest.raises(DataError, match="the item of 2 examples of a batch is no leaf of the tree"):
        tree().add(chosen(10, 3, 99), 0)
    assert ID in tree()._nodes.rows.keys


def test_masked_features_are_missing():
    """Hidden rows are those of a null column, for all features together; padding and other features stay."""
    named = IdFeature("words", hash_bucket_size=9, embedding_dim=4, separator=",", pooling="sum")
    number = RawFeature("price", missing=-1.0)
    kinds = {"item": pa.int64(), "price": pa.float64(), "words": pa.string()}
    masks = Masks([named, number], kinds, share=0.3, negatives_share=0.6, seed=3, sampler=sampler(user_key=None))
    rows = {"item": [i % 20 for i in range(500)], "price": [1.0] * 500, "words": ["a,b"] * 500}
    features = [FEATURES[0], number, named]
    made = pipeline_of(
        Tables(rows), features, batch_size=500, keys=["item"], negatives=lambda reader: masks, labels=["price"]
    )
    (batch,) = made
    hidden = batch.numbers["price"][:, 0] == -1
    assert 100 < hidden.sum() < 200
    assert [not bag for bag in batch.ids["words"].to_lists()] == hidden.tolist()
    assert batch.ids["item"].tolist() == rows["item"]
    assert batch.labels["price"].tolist() == [1.0] * 500
    drawn = batch.negatives.numbers["price"][:, 0]
    assert 0 < (drawn == -1).sum() < len(drawn)
    (again,) = made
    assert np.array_equal(again.numbers["price"], batch.numbers["price"])
    padded = masks.add(
        Batch(numbers={"price": np.zeros((50, 1), np.float32)}, keys={"item": np.zeros(50)}, padding=50), 1
    )
    assert not padded.numbers["price"].any()
    with pytest.raises(ValueError, match="feature 'price' cannot be masked"):
        Masks([RawFeature("price", missing=None)], kinds, share=0.1)
