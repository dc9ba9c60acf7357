"""Two towers from a config: corrected for the frequency of items, copies masked, by default, and resumed to the bit."""

import dataclasses
import io

import hypothesis
import hypothesis.strategies as st
import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparrow import config as configs
from sparrow import runs
from sparrow.feed import POSITIVE_IDS, POSITIVE_LOG_Q, USERS, Preparer
from sparrow.feed.candidates import candidate_columns
from sparrow.kernels import feed
from tests.feed.ways import by_columns
from tests.runs.cases import case
from tests.runs.test_training import assert_same_bits

USERS_, ITEMS_ = 20, 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("towers")
    rng = np.random.default_rng(0)
    for name, count in (("train", 512), ("test", 64)):
        user = rng.integers(0, USERS_, count)
        item = np.where(rng.random(count) < 0.5, 0, (user + rng.integers(0, 3, count)) % ITEMS_)  # item 0 is popular
        columns = {"user": user, "item": item, "kind": item % 2, "label": np.ones(count, np.float32)}
        pq.write_table(pa.table(columns), made / f"{name}.parquet", row_group_size=200)
    return made


def towers(folder, *overrides):
    id_feature = {"kind": "id", "embedding_dim": 4}
    described = {
        "train": {
            "sparse_optimizer": {"name": "adagrad", "learning_rate": 0.5},
            "dense_optimizer": {"optimizer": "adam", "learning_rate": 0.01},
            "batch_size": 32,
            "steps": 6,
            "log_every_steps": 6,
        },
        "data": {
            "train": {"name": "parquet", "path": f"{folder}/train.parquet"},
            "evaluate": {"name": "parquet", "path": f"{folder}/test.parquet"},
            "shuffle_rows": 512,
            "user_column": "user",
            "features": [
                {**id_feature, "name": "user", "num_buckets": USERS_},
                {**id_feature, "name": "kind", "num_buckets": 2},
                {**id_feature, "name": "item", "num_buckets": ITEMS_},
            ],
        },
        "model": {
            "architecture": {
                "name": "dssm",
                "user_tower": {"input": "users"},
                "item_tower": {"input": "items"},
                "output_dim": 4,
            },
            "groups": {"users": ["user"], "items": ["kind", "item"]},
        },
        "tasks": {"match": {"label": "label", "losses": ["in_batch_softmax"]}},
    }
    return configs.from_mapping(described, overrides=overrides)


def test_the_batch_carries_frequencies_and_ids(folder):
    config = towers(folder)
    counts, assembly = configs.item_counts(config), configs.assemble(config)
    batch = next(iter(configs.train_pipeline(config)))
    columns = candidate_columns(batch, assembly.item_id, assembly.user_id, counts)
    rows = pq.read_table(folder / "train.parquet")["item"].to_numpy()
    share = np.bincount(rows, minlength=ITEMS_) / len(rows)
    np.testing.assert_allclose(np.exp(columns[POSITIVE_LOG_Q]), share[batch.keys["item"]], rtol=1e-6)
    for name, key in ((POSITIVE_IDS, "item"), (USERS, "user")):
        same = batch.keys[key][:, None] == batch.keys[key]
        assert ((columns[name][:, None] == columns[name]) == same).all()


@pytest.mark.skipif(feed.unavailable() is not None, reason=str(feed.unavailable()))
@pytest.mark.parametrize("together", [1, 3])
def test_compiled_code_makes_the_batches_to_the_same_bits(folder, monkeypatch, together):
    config = towers(folder, "train.steps=null", "train.epochs=1")
    program = dataclasses.replace(runs.Program.of(config), item_counts=configs.item_counts(config))

    def batches():
        return [
            (jax.device_get(prepared.feed.parts), prepared.keys)
            for prepared in configs.train_pipeline(config, program.preparer())
        ]

    monkeypatch.setattr(Preparer, "together", lambda *_: together)
    with monkeypatch.context() as patch:
        patch.setattr(feed.ColumnFilling, "fill", lambda *_: pytest.fail("ids came as columns"))
        ours = batches()
    with monkeypatch.context() as patch:
        by_columns(patch)
        patch.setattr(feed, "numbered", by_numpy)
        theirs = batches()
    assert len(ours) == 512 // 32
    assert {POSITIVE_IDS, USERS, POSITIVE_LOG_Q} <= ours[0][0].columns.keys()
    assert ours[0][1].keys() == {"item", "user"}
    for (parts, keys), (reference, of_reference) in zip(ours, theirs, strict=True):
        assert jax.tree.structure(parts) == jax.tree.structure(reference)
        jax.tree.map(np.testing.assert_array_equal, (parts, keys), (reference, of_reference))


def by_numpy(keys):
    return np.unique(keys, return_inverse=True)[1].astype(np.int32)


@hypothesis.given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 300), max_size=60))
def test_keys_are_numbered_by_value(keys):
    given = np.array(keys, np.int64)
    np.testing.assert_array_equal(feed.numbered(given), by_numpy(given))


def test_a_run_is_corrected_resumes_to_the_bit_and_evaluates_alike_later(folder, tmp_path):
    log = io.StringIO()
    whole = runs.train(towers(folder), tmp_path / "whole", stream=log)
    assert "log-Q correction by the counts of 'item' (12 items in 512 rows)" in log.getvalue()
    assert "further items of its 'user' in the batch are excluded from the negatives" in log.getvalue()
    runs.train(towers(folder, "train.steps=3"), tmp_path / "part", stream=io.StringIO())
    resumed = runs.train(towers(folder), tmp_path / "part", resume=True, stream=io.StringIO())
    assert_same_bits(whole.state, resumed.state)
    (folder / "train.parquet").rename(folder / "gone.parquet")  # the counts are the run's own
    try:
        assert runs.load(tmp_path / "whole").evaluate()["loss"] == whole.results["loss"]
    finally:
        (folder / "gone.parquet").rename(folder / "train.parquet")


def test_the_correction_can_be_switched_off(folder):
    off = towers(folder, "tasks.match.losses=[{name: in_batch_softmax, log_q: false}]")
    assert configs.item_counts(off) is None
    log = io.StringIO()
    plain = runs.train(off, stream=log)
    assert "no log-Q correction (log_q is false)" in log.getvalue()
    assert plain.results["loss"] != runs.train(towers(folder), stream=io.StringIO()).results["loss"]


def test_the_column_of_the_item(folder, tmp_path):
    assert configs.item_column(towers(folder)) == "item"  # the table with the most rows
    assert configs.item_column(towers(folder, "data.item_column=kind")) == "kind"
    lists = pa.table({"user": [1, 2], "kind": [0, 1], "item": [[1], [2, 3]], "label": [1.0, 1.0]})
    pq.write_table(lists, tmp_path / "lists.parquet")
    config = towers(folder, f"data.train.path={tmp_path}/lists.parquet")
    assert configs.item_counts(config) is None  # a guess that does not fit the data is dropped
    assert next(iter(configs.train_pipeline(config))).keys.keys() == {"user"}


def by_hand(run, folder, top):
    """The mean over users of the share of their items among the first ``top``, without what they had in training."""
    train, test = (pq.read_table(folder / f"{name}.parquet").to_pandas() for name in ("train", "test"))
    items = train.drop_duplicates("item")[["item", "kind"]]
    vectors = run.vectors("item", items)
    shares = []
    for user, of_user in test.drop_duplicates(["user", "item"]).groupby("user"):
        seen = set(train.item[train.user == user])
        scores = vectors @ run.vectors("user", {"user": [user]})[0]
        found = []
        for chosen in of_user.item:
            own = scores[items.item == chosen][0]
            before = (scores >= own) & ~items.item.isin(seen - {chosen}) & (items.item != chosen)
            found.append(before.sum() < top)
        shares.append(np.mean(found))
    return np.mean(shares)


def test_all_items_are_ranked_without_what_the_user_has_seen(folder, tmp_path):
    watched = (
        "evaluate={every_steps: 3, catalog: {top_k: [2]}}",
        "train.checkpoint={best_by: {metric: catalog_hr_at_2, mode: max}}",
    )
    run = runs.train(towers(folder, *watched), tmp_path / "run", stream=io.StringIO())
    names = [f"catalog_{name}" for name in ("recall_at_2", "hr_at_2", "ndcg_at_2", "mrr")]
    assert list(run.results) == ["loss", *names]
    assert run.results["catalog_recall_at_2"] == pytest.approx(by_hand(run, folder, 2), abs=1e-9)
    assert 0 < run.results["catalog_ndcg_at_2"] <= run.results["catalog_hr_at_2"] <= 1
    assert runs.load(tmp_path / "run").evaluate() == run.results
    among_all = towers(folder, "evaluate.catalog={top_k: [2], exclude_seen: false}")
    assert runs.load(tmp_path / "run", among_all).evaluate()["catalog_mrr"] < run.results["catalog_mrr"]


def test_the_catalog_may_be_a_table_and_may_be_switched_off(folder, tmp_path):
    pq.write_table(pa.table({"id": ["0", "1"], "item": ["0", "1"], "kind": [0, 1]}), tmp_path / "items.parquet")
    table = f"evaluate.catalog={{items: {{name: parquet, path: {tmp_path}/items.parquet}}, id_column: id, top_k: [2]}}"
    found = runs.train(towers(folder, table, "train.steps=1"), stream=io.StringIO()).results
    test = pq.read_table(folder / "test.parquet").to_pandas().drop_duplicates(["user", "item"])
    inside = test.item.isin([0, 1]).groupby(test.user).mean().mean()  # all others can not be found
    assert found["catalog_recall_at_2"] == pytest.approx(inside)
    off = runs.train(towers(folder, "evaluate.catalog=false", "train.steps=1"), stream=io.StringIO())
    assert list(off.results) == ["loss"]


def test_a_catalog_of_another_model(folder):
    config = case("evaluate.catalog={top_k: [5]}")
    with pytest.raises(configs.ConfigError, match=r"evaluate\.catalog: ranks among all items are of models with two"):
        runs.train(config, stream=io.StringIO())


def test_a_tower_does_not_hide_the_table_of_its_name(folder, tmp_path):
    """The tables "user" and "item" and the towers of these names: ids are of the table, rows of the tower."""
    run = runs.train(towers(folder), tmp_path, stream=io.StringIO())
    table = np.asarray(run.table("item"))
    for ids in ([3, 5], np.array([3, 5]), pa.array([3, 5])):
        np.testing.assert_array_equal(run.vectors("item", ids), table[[3, 5]])
    near = run.neighbors("item", [3], k=2)
    assert len(near.ids[0]) == 2
    assert 3 not in near.ids[0]
    rows = {"item": [3, 5], "kind": [1, 1]}
    by_tower = run.vectors("item", rows)
    assert not np.array_equal(by_tower, table[[3, 5]])
    assert run.neighbors("item", {"user": [1]}, k=1, among=rows).rows.tolist() in ([[0]], [[1]])
