"""Samplers from a config: runs that stop and go on draw the same, models learn, and their exports serve."""

import io

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from sparrow import config as configs
from sparrow import exports, runs, serving
from sparrow.cli import main
from tests.runs.test_training import assert_same_bits

USERS, LEAVES, FIRST = 12, 8, 7
"""Users; leaves of a tree of four levels, whose ids come after those of the seven nodes above."""


def rows(count, seed):
    """A user wants the leaves below one of the four nodes of the second level."""
    rng = np.random.default_rng(seed)
    user = rng.integers(0, USERS, count)
    item = FIRST + 2 * (user % 4) + rng.integers(0, 2, count)
    past = [(FIRST + 2 * (u % 4) + rng.integers(0, 2, 3)).tolist() for u in user]
    return pa.table({"user": user, "item": item, "past": past, "label": np.ones(count, np.float32)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return written(tmp_path_factory.mktemp("samplers"))


def written(made):
    """The folder, with all files."""
    for name, count, seed in (("train", 2048, 0), ("test", 256, 1)):
        pq.write_table(rows(count, seed), made / f"{name}.parquet")
    nodes = np.arange(FIRST + LEAVES)
    pq.write_table(pa.table({"item": nodes, "parent": np.maximum(nodes - 1, 0) // 2}), made / "nodes.parquet")
    pq.write_table(pa.table({"item": [str(i) for i in nodes[FIRST:]]}), made / "items.parquet")
    wanted = [(u, FIRST + 2 * (u % 4) + i) for u in range(USERS) for i in range(2)]
    other = [(u, FIRST + 2 * ((u + 1) % 4) + i) for u in range(USERS) for i in range(2)]
    for name, pairs in (("bought", wanted), ("seen", other)):
        pq.write_table(
            pa.table({"who": [u for u, _ in pairs], "what": [str(i) for _, i in pairs]}), made / f"{name}.parquet"
        )
    return made


def base(folder, *overrides, **sections):
    described = {
        "train": {
            "sparse_optimizer": {"name": "adagrad", "learning_rate": 0.5},
            "dense_optimizer": {"optimizer": "adam", "learning_rate": 0.01},
            "batch_size": 64,
            "steps": 8,
            "log_every_steps": 4,
        },
        **sections,
    }
    described["data"] |= {
        "train": {"name": "parquet", "path": f"{folder}/train.parquet"},
        "evaluate": {"name": "parquet", "path": f"{folder}/test.parquet"},
        "shuffle_rows": 256,
    }
    return configs.from_mapping(described, overrides=overrides)


def pairs(folder, name):
    return {
        "source": {"name": "parquet", "path": f"{folder}/{name}.parquet"},
        "user_column": "who",
        "item_column": "what",
    }


def two_towers(folder, *overrides):
    table = {"kind": "id", "embedding_dim": 8}
    return base(
        folder,
        *overrides,
        data={
            "features": [
                {**table, "name": "user", "num_buckets": USERS},
                {**table, "name": "item", "num_buckets": FIRST + LEAVES},
            ],
            "negatives": {
                "items": {"name": "parquet", "path": f"{folder}/items.parquet"},
                "group": "items",
                "id_column": "item",
                "count": 6,
                "user_column": "user",
                "positives": pairs(folder, "bought"),
                "hard": pairs(folder, "seen"),
                "hard_count": 2,
            },
        },
        model={
            "architecture": {
                "name": "dssm",
                "user_tower": {"input": "users"},
                "item_tower": {"input": "items"},
                "negatives": "sampled",
            },
            "groups": {"users": ["user"], "items": ["item"]},
        },
        tasks={
            "match": {"label": "label", "losses": ["sampled_softmax"], "metrics": [{"name": "recall_at_k", "top_k": 1}]}
        },
    )


def tree(folder, *overrides):
    items = {"embedding_dim": 8, "num_buckets": FIRST + LEAVES, "table": "items"}
    return base(
        folder,
        *overrides,
        data={
            "features": [
                {"kind": "id", "name": "node", "column": "item", **items},
                {"kind": "sequence", "name": "past", "max_length": 3, **items},
            ],
            "tree": {
                "nodes": {"name": "parquet", "path": f"{folder}/nodes.parquet"},
                "features": ["node"],
                "id_column": "item",
                "parent_column": "parent",
                "counts": [0, 1, 2, 3],
            },
        },
        model={
            "architecture": {
                "name": "tdm",
                "windows_len": [3],
                "attn_mlp": {"hidden_units": [8]},
                "final": {"hidden_units": [16]},
            },
            "groups": {"history": ["node", "past"]},
        },
        tasks={"want": {"label": "label", "losses": ["binary_cross_entropy"], "metrics": ["auc"]}},
    )


def quiet(config, *folder, **options):
    return runs.train(config, *folder, stream=io.StringIO(), **options)


@pytest.mark.slow
def test_two_towers_learn_and_are_resumed(folder, tmp_path):
    whole = quiet(two_towers(folder, "train.steps=40"), tmp_path / "whole")
    assert whole.results["recall_at_1"] > 0.95  # all negatives are of the items that the user does not want
    quiet(two_towers(folder, "train.steps=17"), tmp_path / "stopped")
    resumed = quiet(two_towers(folder, "train.steps=40"), tmp_path / "stopped", resume=True)
    assert_same_bits(whole.state, resumed.state)


@pytest.mark.slow
def test_a_tree_is_learned_level_by_level(folder, tmp_path):
    whole = quiet(tree(folder, "train.steps=60"), tmp_path / "whole")
    assert whole.results["auc"] > 0.95
    quiet(tree(folder, "train.steps=23"), tmp_path / "stopped")
    resumed = quiet(tree(folder, "train.steps=60"), tmp_path / "stopped", resume=True)
    assert_same_bits(whole.state, resumed.state)
    exports.export(whole.program, whole.state, tmp_path / "export")
    scores = serving.load(tmp_path / "export").predict({"item": [3, 4, 7, 11], "past": [[7, 8, 7]] * 4})["want"]
    assert scores[0] > scores[1]  # node 3 is above the leaves 7 and 8
    assert scores[2] > scores[3]


def test_a_tree_is_searched_by_beam_and_built_again(folder, tmp_path):
    run = quiet(tree(folder, "train.steps=2", "data.user_column=user"), tmp_path / "run")
    users = pa.table({"user": [0, 1], "past": [[7, 8], []]})
    found = run.recommend(users, 3, exclude=[[9], []], allow=list(range(8, FIRST + LEAVES)))
    assert found.column_names == ["user", "item", "score", "rank"]
    for user, past, left_out in ((0, [7, 8], 9), (1, [], None)):  # the beam holds all leaves: all scores are known
        leaves = [leaf for leaf in range(8, FIRST + LEAVES) if leaf != left_out]
        history = pa.array([past] * len(leaves), pa.list_(pa.int64()))
        scores = run.predict(pa.table({"item": leaves, "past": history}))["want"]
        own = found.filter(pc.equal(found["user"], user))
        assert own["item"].to_pylist() == [leaves[place] for place in np.argsort(-scores, kind="stable")[:3]]
        np.testing.assert_allclose(own["score"], np.sort(scores)[::-1][:3], rtol=1e-5)
    nodes = tmp_path / "nodes.parquet"
    assert main(["tree", str(tmp_path / "run"), str(nodes), "--branches", "2"]) == 0
    again = pq.read_table(nodes)
    assert (again.num_rows, again["level"].to_pylist().count(3)) == (15, 8)
    assert set(again["item"].to_pylist()[-8:]) == set(range(FIRST, FIRST + LEAVES))
    more = [f"data.tree.nodes.path={nodes}", "data.features[0].num_buckets=40", "data.features[1].num_buckets=40"]
    built = quiet(tree(folder, "train.steps=2", *more))
    assert built.recommend(users, 2).num_rows == 4


@pytest.mark.parametrize(
    ("make", "override", "message"),
    [
        (two_towers, "data.negatives.user_column=null", "positives and hard need user_column"),
        (two_towers, "data.negatives.hard_count=null", "hard and hard_count go together"),
        (tree, "data.tree.parent_column=null", "give either parent_column, or ancestors and level_column"),
        (tree, "data.tree.level_column=level", "ancestors and level_column go together"),
        (tree, "data.tree.counts=[0]", "counts needs a number for each level"),
        (tree, "data.tree.keep_ratio=2", "keep_ratio"),
    ],
)
def test_wrong_sections(make, override, message, folder):
    with pytest.raises(configs.ConfigError, match=message):
        make(folder, override)


def test_an_unknown_feature_of_the_tree(folder):
    with pytest.raises(
        configs.ConfigError, match=r"data.tree.features\[0\]: unknown feature 'nod': did you mean 'node'"
    ):
        configs.train_pipeline(tree(folder, "data.tree.features=[nod]"))
