"""Trees of items: balanced, similar items together, and a beam that is wide enough finds what all scores give."""

import dataclasses

import numpy as np
import pyarrow as pa
import pytest

from sparrow.data import Tables
from sparrow.data.samplers.items import Items
from sparrow.data.samplers.tree import TreeForm
from sparrow.retrieval import RowModel, TreeIndex, build_tree


def points(count, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, 4)).astype(np.float32)


@pytest.mark.parametrize(("count", "branches"), [(2, 2), (13, 2), (16, 2), (27, 3), (50, 4)])
def test_leaves_are_the_items_on_the_last_level(count, branches):
    ids = pa.array(np.arange(count) * 3 + 5)
    tree = build_tree(ids, points(count), branches=branches, attributes=pa.table({"square": np.arange(count) ** 2}))
    nodes = Items(Tables(tree), [], id_column="item", more_keys=["parent"])
    form = TreeForm.of_parents(nodes, nodes.more_keys["parent"])  # refuses leaves on other levels
    leaves = tree["item"].to_numpy()[form.levels[-1]]
    assert sorted(leaves) == ids.to_pylist()
    assert len(form.levels) == 1 + next(d for d in range(1, 20) if branches**d >= count)
    last = {row["item"]: row for row in tree.to_pylist() if row["item"] in set(leaves)}
    assert all(row["square"] == ((item - 5) // 3) ** 2 for item, row in last.items())
    held = [np.isin(form.paths[form.levels[-1], 1], node).sum() for node in form.levels[1]]
    assert max(held) - min(held) <= 1


def test_similar_items_have_the_same_parent():
    centers = points(8, seed=1) * 100
    tree = build_tree(pa.array([f"i{n}" for n in range(16)]), np.repeat(centers, 2, axis=0) + points(16))
    parents = {row["item"]: row["parent"] for row in tree.to_pylist()}
    assert all(parents[f"i{2 * n}"] == parents[f"i{2 * n + 1}"] for n in range(8))
    assert parents["node 0"] == "node 0"


def test_a_wide_beam_finds_the_best_of_all_scores_and_a_narrow_one_follows_the_best_nodes():
    tree = build_tree(pa.array(np.arange(20)), points(20))
    scores = np.random.default_rng(2).random((3, tree.num_rows)).astype(np.float32)
    places = {item: place for place, item in enumerate(tree["item"].to_pylist())}

    def predict(pairs):
        nodes = pairs["item"].to_pylist()
        return {"want": [scores[user, places[node]] for user, node in zip(pairs["user"], nodes, strict=True)]}

    held = TreeIndex.of(tree, "item", "parent", "nodes", model=RowModel(predict, ["user", "item"], ["want"]))
    users = {"user": [0, 1, 2]}
    assert (len(held), held.user_columns, held.first_rows(users)["user"]) == (20, ["user"], [0, 1, 2])
    leaves = np.flatnonzero(held.is_leaf)
    found = held.search(users, 4, exact=True)
    for query in range(3):
        expected = leaves[np.argsort(-scores[query, leaves])][:4]
        assert found.rows[query].tolist() == expected.tolist()
        assert found.scores[query].tolist() == scores[query, expected].tolist()
    best = [[held.ids[int(row)].as_py() for row in rows] for rows in found.rows]
    others = held.search(users, 4, exact=True, exclude=[best[0][:2], [], None])
    assert (others.rows[0, :2].tolist(), others.rows[1:].tolist()) == (
        found.rows[0, 2:].tolist(),
        found.rows[1:].tolist(),
    )
    narrow = dataclasses.replace(held, width=1).search(users, 1)
    for query in range(3):
        node = held.root
        while not held.is_leaf[node]:
            below = np.flatnonzero((held.parents == node) & (np.arange(len(held.ids)) != held.root))
            node = below[np.argmax(scores[query, below])]
        assert narrow.rows[query].tolist() == [node]
    few = held.search(users, 4, exact=True, allow=held.ids.take(pa.array(leaves[:2])))
    assert [set(row) for row in few.rows.tolist()] == [{*leaves[:2].tolist(), -1}] * 3


def test_bad_trees_get_one_sentence():
    with pytest.raises(ValueError, match="a tree needs two items or more"):
        build_tree(pa.array([1]), points(1))
    with pytest.raises(ValueError, match="rename them"):
        build_tree(pa.array(["node 0", "b"]), points(2))
    with pytest.raises(ValueError, match="one root, which is its own parent; found 0"):
        TreeIndex.of(pa.table({"item": [1, 2], "parent": [2, 1]}), "item", "parent", "nodes")
    with pytest.raises(ValueError, match="their own ancestors"):
        TreeIndex.of(pa.table({"item": [1, 2, 3], "parent": [1, 3, 2]}), "item", "parent", "nodes")
