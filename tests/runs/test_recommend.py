"""Recommendations of a run: against all scores, without seen items, filtered, in any frame, by the command."""

import io

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sparrow as sp
from sparrow import config, runs
from sparrow.cli import main
from sparrow.errors import ConfigError

ITEMS = [f"m{n}" for n in range(12)]
USERS = np.arange(60) % 20


def log():
    return pa.table(
        {
            "user": USERS,
            "item": [ITEMS[(user + n // 20) % 12] for n, user in enumerate(USERS)],
            "year": [2000 + (user + n // 20) % 12 for n, user in enumerate(USERS)],
            "label": np.ones(60),
        }
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("towers")
    pq.write_table(log(), folder / "log.parquet")
    tower = {"mlp": {"hidden_units": [8]}}
    made = config.from_mapping(
        {
            "data": {
                "train": {"name": "parquet", "path": str(folder / "log.parquet")},
                "user_column": "user",
                "item_column": "item",
                "features": [
                    {"kind": "id", "name": "user", "num_buckets": 32, "embedding_dim": 4},
                    {"kind": "id", "name": "item", "hash_bucket_size": 64, "embedding_dim": 4},
                ],
            },
            "model": {
                "architecture": {
                    "name": "dssm",
                    "user_tower": {"input": "users", **tower},
                    "item_tower": {"input": "items", **tower},
                    "output_dim": 4,
                },
                "groups": {"users": ["user"], "items": ["item"]},
            },
            "tasks": {
                "match": {
                    "label": "label",
                    "losses": ["in_batch_softmax"],
                    "metrics": [{"name": "recall_at_k", "top_k": 3}, "mrr"],
                }
            },
            "train": {
                "steps": 5,
                "batch_size": 20,
                "sparse_optimizer": {"name": "sgd", "learning_rate": 0.1},
                "dense_optimizer": {"optimizer": "adam", "learning_rate": 0.01},
            },
        }
    )
    return runs.train(made, folder / "run", stream=io.StringIO()), folder


def ranked(run, user):
    """All items by their score, the statement."""
    scores = run.vectors("user", {"user": [user]}) @ run.vectors("item", {"item": ITEMS}).T
    return [ITEMS[place] for place in np.argsort(-scores[0], kind="stable")]


def test_a_tower_needs_no_columns_of_one_with_a_dynamic_table(trained):
    own, _ = trained
    user = {"kind": "id", "name": "user", "embedding_dim": 4, "dynamic": {"rows": 40}}
    data = {**config.plain(own.config, defaults=False)["data"]}
    data["features"] = [user, data["features"][1]]
    made = config.from_mapping({**config.plain(own.config, defaults=False), "data": data, "model_dir": None})
    run = runs.train(made, stream=io.StringIO())
    alone = run.vectors("item", {"item": ITEMS})
    assert alone.shape == (12, 4)
    np.testing.assert_array_equal(alone, run.vectors("item", {"item": ITEMS, "user": np.arange(12)}))


def test_the_best_items_are_those_of_all_scores(trained):
    run, _ = trained
    found = run.recommend(pd.DataFrame({"user": [3, 31]}), k=4)
    assert list(found.columns) == ["user", "item", "score", "rank"]
    assert found["user"].tolist() == [3] * 4 + [31] * 4
    assert found["rank"].tolist() == [1, 2, 3, 4] * 2
    for user in (3, 31):  # 31 was never seen
        assert found[found["user"] == user]["item"].tolist() == ranked(run, user)[:4]


def test_seen_and_named_items_are_left_out(trained):
    run, _ = trained
    rows = log().to_pandas()
    seen = set(rows[rows["user"] == 5]["item"])
    assert len(seen) == 3
    found = run.recommend(pl.DataFrame({"user": [5]}), k=12, exclude_seen=True, exclude=[[ranked(run, 5)[-1], "none"]])
    assert isinstance(found, pl.DataFrame)
    assert found["item"].to_list() == [item for item in ranked(run, 5)[:-1] if item not in seen]


def test_items_are_filtered_by_attributes_and_by_name(trained):
    run, _ = trained
    index = run.item_index(attributes=["year"])
    found = run.recommend({"user": [1]}, k=12, index=index, where={"year": {"min": 2006}}, allow=ITEMS[:9])
    assert isinstance(found, pa.Table)
    assert set(found["item"].to_pylist()) == {"m6", "m7", "m8"}


def test_a_catalog_of_its_own(trained):
    run, folder = trained
    pq.write_table(pa.table({"movie": ["m1", "m2", "m2", None]}), folder / "items.parquet")
    index = run.item_index(folder / "items.parquet", id_column="movie")
    assert index.ids.to_pylist() == ["m1", "m2"]
    with pytest.raises(ConfigError, match="the catalog has no column 'yeer': did you mean 'year'"):
        run.item_index(attributes=["yeer"])


def test_the_command_writes_a_file(trained, capsys):
    run, folder = trained
    pq.write_table(pa.table({"user": [2, 4]}), folder / "users.parquet")
    output = folder / "made" / "out.parquet"
    arguments = [str(folder / "run"), str(folder / "users.parquet"), str(output), "-k", "3", "--exclude-seen"]
    assert main(["recommend", *arguments]) == 0
    assert pq.read_table(output).equals(run.recommend({"user": [2, 4]}, 3, exclude_seen=True))
    assert f"6 rows among 12 items to {output}" in capsys.readouterr().out


@pytest.mark.parametrize("approximate", [None, "ivf"])
def test_an_export_recommends_as_the_run(trained, approximate, tmp_path, capsys):
    run, folder = trained
    options = ["--index", "--attributes", "year", *(("--approximate", approximate) if approximate else ())]
    assert main(["export", str(folder / "run"), str(tmp_path / "exported"), *options]) == 0
    assert "12 items, searched" in capsys.readouterr().out
    model = sp.serving.load(tmp_path / "exported", approximate=approximate is not None)
    assert (model.index.approximate is None) == (approximate is None)
    users = {"user": [3, 31]}
    own, served = run.recommend(users, 4), model.recommend(users, 4, exact=True)
    assert served.drop(["score"]).equals(own.drop(["score"]))
    np.testing.assert_allclose(served["score"], own["score"], atol=1e-6)
    found = model.recommend(users, 3, where={"year": {"min": 2006}}, exclude=[["m6"], []])
    assert set(found["item"].to_pylist()) <= {f"m{n}" for n in range(6, 12)}
    assert "m6" not in found["item"].to_pylist()[:3]


def test_the_metrics_of_an_export_are_those_of_the_run(trained, tmp_path):
    run, folder = trained
    run.export(tmp_path / "exported")
    own, exported = (run.evaluate(folder / "log.parquet", export=given) for given in (None, tmp_path / "exported"))
    assert exported.keys() == {"recall_at_3", "mrr"}
    for name, value in exported.items():
        assert value == pytest.approx(own[name], abs=1e-6)


def test_an_export_without_items_says_so(trained, tmp_path):
    run, _ = trained
    run.export(tmp_path / "exported")
    with pytest.raises(ValueError, match="no items to recommend; write it with sparrow export --index"):
        sp.serving.load(tmp_path / "exported").recommend({"user": [1]})
