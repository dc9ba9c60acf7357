"""Sequences whose elements are bags of ids: TorchEasyRec's numbers, pooling against NumPy, training to serving."""

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest

from sparrow import config, exports, runs, samples, serving
from sparrow.data import BagSequenceFeature, ComboFeature, IdFeature
from sparrow.data.errors import Problems
from sparrow.embedding import Jagged
from tests.config.rows import same_predictions

GENRES = IdFeature("genres", num_buckets=20, separator=",", pooling="mean", embedding_dim=4)


def converted(feature, columns):
    problems = Problems(len(next(iter(columns.values()))))
    made = [part.convert(pa.RecordBatch.from_pydict(columns), problems) for part in feature.outputs]
    return made, problems


def lists(feature, columns):
    made, problems = converted(feature, columns)
    assert problems.rows is None
    return [part.to_lists() for part in made]


@pytest.mark.parametrize("column", [["1,2;3", "", None, "4"], [[[1, 2], [3]], [], None, [[4]]]])
def test_ids_and_sizes_of_texts_and_of_nested_lists(column):
    feature = BagSequenceFeature("genres", element=GENRES, separator=";", max_length=3)
    assert lists(feature, {"genres": column}) == [[[1, 2, 3], [], [], [4]], [[[2], [1]], [], [], [[1]]]]


def test_a_row_without_elements_has_one_of_the_default():
    """As TorchEasyRec: key_lengths [2, 1, 1, 1] and seq_lengths [2, 1, 1] of "abc^efg;hij", "", "hij"."""
    element = IdFeature("x", hash_bucket_size=100, default="0", separator="^", pooling="sum", embedding_dim=4)
    feature = BagSequenceFeature("x", element=element, separator=";", max_length=50, fill=True)
    made, _ = converted(feature, {"x": ["abc^efg;hij", "", "hij"]})
    assert made[1].values[:, 0].tolist() == [2, 1, 1, 1]
    assert np.diff(made[1].offsets).tolist() == [2, 1, 1]
    assert made[0].values[2] == made[0].values[4]


@pytest.mark.parametrize(("keep", "ids"), [("first", [1, 2, 3]), ("last", [3, 4, 5])])
def test_longer_rows_keep_complete_elements(keep, ids):
    feature = BagSequenceFeature("genres", element=GENRES, separator=";", max_length=2, keep=keep)
    assert lists(feature, {"genres": ["1,2;3;4,5"]})[0] == [ids]


def test_crossed_elements_have_one_id_and_repeat_the_columns_that_are_no_sequences():
    element = ComboFeature("c", cross=("user", "seen"), hash_bucket_size=1000, embedding_dim=4)
    feature = BagSequenceFeature("c", element=element, separator=";", max_length=5, sequences=("seen",))
    (made,) = lists(feature, {"user": ["a", "b"], "seen": ["x;y", "x"]})
    alone = element.convert(pa.RecordBatch.from_pydict({"user": list("aab"), "seen": list("xyx")}), Problems(3))
    assert [len(row) for row in made] == [2, 1]
    assert np.concatenate(made).tolist() == alone.tolist()


def test_rows_with_bad_elements_are_problems():
    feature = BagSequenceFeature("genres", element=GENRES, separator=";", max_length=9)
    _, problems = converted(feature, {"genres": ["1;2", "3;40", "5"]})
    assert problems.rows.tolist() == [False, True, False]
    assert "40" in problems.first[2]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"element": IdFeature("x", num_buckets=3, embedding_dim=2)}, "needs a pooling"),
        (
            {"element": IdFeature("x", num_buckets=3, embedding_dim=2, pooling="sum", weight_separator=":")},
            "have no weights",
        ),
        ({"separator": ","}, "must differ"),
        ({"sequences": ("other",)}, "must name some of the columns genres"),
    ],
)
def test_wrong_fields_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        BagSequenceFeature(**{"name": "x", "element": GENRES, "max_length": 3} | fields)


@pytest.mark.parametrize("pooling", ["sum", "mean", "sqrtn"])
def test_pooling_and_its_gradient(pooling):
    rng = np.random.default_rng(0)
    counts, rows = np.array([2, 0, 3, 1]), rng.normal(size=(8, 3)).astype(np.float32)  # two rows of padding
    sizes = Jagged(jnp.array([*counts, 7.0, 7.0])[:, None], jnp.array([0, 2, 2, 4]))
    offsets, weights = jnp.array([0, 2, 2, 6]), rng.normal(size=(6, 3)).astype(np.float32)
    divisor = {"sum": np.ones(4), "mean": np.maximum(counts, 1), "sqrtn": np.sqrt(np.maximum(counts, 1))}[pooling]
    member = np.repeat(np.eye(4), counts, axis=1) / divisor[:, None]  # (elements, ids)

    def total(rows):
        made = Jagged(rows, offsets).pool(sizes, pooling)
        return (made.values * weights).sum(), made

    (_, made), gradient = jax.value_and_grad(total, has_aux=True)(jnp.asarray(rows))
    np.testing.assert_allclose(made.values[:4], member @ rows[:6], atol=1e-6)
    np.testing.assert_allclose(gradient[:6], member.T @ weights[:4], atol=1e-6)
    assert made.offsets.tolist() == [0, 2, 2, 4]


FEATURES = [
    {"kind": "id", "name": "item", "num_buckets": 20, "embedding_dim": 4},
    {"kind": "sequence", "name": "seen", "num_buckets": 20, "embedding_dim": 4, "max_length": 6, "separator": ";"},
    {
        **{"kind": "bag_sequence", "name": "genres", "max_length": 6, "separator": ";"},
        "element": {
            **{"kind": "id", "name": "genres", "num_buckets": 12, "embedding_dim": 4, "pooling": "mean"},
            "separator": ",",
        },
    },
]


def loaded(files, devices=None):
    source = {"name": "parquet", "path": files}
    encoder = {"name": "pooling_encoder", "input": "history", "pooling_type": "mean"}
    return config.from_mapping(
        {
            "data": {"train": source, "evaluate": source, "features": FEATURES},
            "model": {
                "architecture": {"name": "multi_tower", "towers": [{"input": "all", "mlp": {"hidden_units": [8]}}]},
                "groups": {"all": ["item"], "history": ["seen", "genres"]},
                "encoders": {"all": [encoder]},
            },
            "tasks": {"click": {"label": "click", "losses": ["binary_cross_entropy"]}},
            "train": {
                "sparse_optimizer": {"name": "adagrad", "learning_rate": 0.1},
                "dense_optimizer": {"optimizer": "adam", "learning_rate": 0.01},
                **{"batch_size": 16, "steps": 20, "log_every_steps": 1},
                **({} if devices is None else {"mesh": {"data": devices}}),
            },
        }
    )


def test_trains_predicts_exports_and_serves(tmp_path):
    made = samples.write(loaded("train.parquet"), tmp_path / "data", rows=320)
    run = runs.train(made, tmp_path / "run")
    program, state = runs.load(tmp_path / "run")
    files = str(tmp_path / "data" / "train.parquet")
    runs.predict(program, state, files, tmp_path / "predicted.parquet")
    exports.export(program, state, tmp_path / "exported")
    serving.predict(serving.load(tmp_path / "exported"), files, tmp_path / "served.parquet")
    same_predictions(tmp_path / "predicted.parquet", tmp_path / "served.parquet")
    assert run.steps == 20
