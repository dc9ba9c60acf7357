"""Computed features from a config to a service: the label depends on them alone, and the export computes the same."""

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tokenizers

from sparrow import config as configs
from sparrow import exports, runs, serving
from sparrow.data import register_function

COLORS = ["red", "crimson", "blue", "green"]


@register_function("test_is_long")
def is_long(texts, limit):
    return [None if text is None else float(len(text) > limit) for text in texts.to_pylist()]


def rows(count, seed):
    """A click where the item's category is one of the user's, the rate is high, and the color is a red."""
    rng = np.random.default_rng(seed)
    kinds = [f"k{i}" for i in range(6)]
    liked = [rng.choice(kinds, 3, replace=False).tolist() for _ in range(count)]
    category = rng.choice(kinds, count)
    click, show = rng.integers(0, 10, count), rng.integers(1, 10, count)
    color = rng.choice(COLORS, count)
    score = np.array([c in own for c, own in zip(category, liked, strict=True)]).astype(float)
    score += (click / show > 1) + np.isin(color, ["red", "crimson"])
    return pa.table(
        {
            "liked": ["|".join(f"{k}:1" for k in own) for own in liked],
            "category": category,
            "click": click,
            "show": show,
            "color": color,
            "label": (score + rng.normal(0, 0.2, count) > 1.5).astype(np.float32),
        }
    )


def described(folder):
    table = {"embedding_dim": 4}
    found = {"name": "lookup", "map": "liked", "key": "category", "map_separator": "|"}
    rate = {"name": "expr", "expression": "click / show"}
    number = {"kind": "raw", "mean": 1.0, "embedding_dim": 4}
    return configs.from_mapping(
        {
            "train": {
                "sparse_optimizer": {"name": "adagrad", "learning_rate": 0.3},
                "dense_optimizer": {"optimizer": "adam", "learning_rate": 0.02},
                "batch_size": 256,
                "steps": 60,
                "log_every_steps": 30,
            },
            "tasks": {"click": {"label": "label", "losses": ["binary_cross_entropy"], "metrics": ["auc"]}},
            "data": {
                "train": {"name": "parquet", "path": str(folder / "train.parquet")},
                "evaluate": {"name": "parquet", "path": str(folder / "test.parquet")},
                "features": [
                    {"kind": "raw", "name": "found", "compute": found, "boundaries": [0.5], **table},
                    {**number, "name": "rate", "compute": rate, "embedding": {"name": "autodis", "num_channels": 4}},
                    {**number, "name": "roots", "compute": rate, "expression": "sqrt(x)", "embedding": "mlp"},
                    {
                        "kind": "id",
                        "name": "color",
                        "vocabulary": {"red": 1, "crimson": 1, "blue": 2},
                        "unknown": 0,
                        **table,
                    },
                    {
                        "kind": "id",
                        "name": "long",
                        "compute": {
                            "name": "custom",
                            "function": "test_is_long",
                            "arguments": ["color"],
                            "options": {"limit": 4},
                        },
                        "num_buckets": 2,
                        **table,
                    },
                    {
                        "kind": "id",
                        "name": "shade",
                        "column": "color",
                        "vocabulary": str(folder / "shades.txt"),
                        "vocabulary_has_rows": True,
                        **table,
                    },
                    {
                        "kind": "tokenize",
                        "name": "letters",
                        "column": "color",
                        "vocabulary": str(folder / "letters.json"),
                        "pooling": "mean",
                        **table,
                    },
                ],
            },
            "model": {
                "architecture": {"name": "deepfm", "deep": {"hidden_units": [16]}},
                "groups": {
                    "wide": ["color"],
                    "deep": ["found", "rate", "roots", "color", "long", "shade", "letters"],
                },
            },
        }
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("computed")
    for name, count, seed in (("train", 8192, 0), ("test", 512, 1)):
        pq.write_table(rows(count, seed), folder / f"{name}.parquet")
    (folder / "shades.txt").write_text("red 0\ncrimson 0\nblue 3\n")
    letters = {"[UNK]": 0, **{letter: 1 + i for i, letter in enumerate("bcdegilmnorsu")}}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(letters, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    tokenizer.save(str(folder / "letters.json"))
    trained = runs.train(described(folder), folder / "run", stream=io.StringIO())
    (folder / "shades.txt").write_text("blue 0\n")
    (folder / "letters.json").write_text("{}")
    return folder, trained


def test_the_model_learns_from_them(trained):
    assert trained[1].results["auc"] > 0.93


def test_an_export_computes_the_same(trained, tmp_path):
    """Also where the files of words have changed since: a run has its own copies, and so has an export."""
    folder, run = trained
    told = []
    program, state = runs.load(folder / "run", log=told.append)
    assert len(told) == 2
    assert all("holds other words than the run was trained with" in line for line in told)
    by_name = {feature.name: feature for feature in program.assembly.features}
    assert by_name["shade"].num_rows == 5
    assert by_name["letters"].num_rows == 14
    exports.export(program, state, tmp_path / "export")
    runs.predict(program, state, str(folder / "test.parquet"), tmp_path / "predicted.parquet")
    expected = pq.read_table(tmp_path / "predicted.parquet")["click"].to_numpy()
    model, table = serving.load(tmp_path / "export"), pq.read_table(folder / "test.parquet")
    np.testing.assert_allclose(model.predict(table)["click"], expected, rtol=1e-5, atol=1e-6)
    assert sorted(path.suffix for path in (tmp_path / "export" / "vocabularies").iterdir()) == [".json", ".txt"]
    runs.predict(run.program, run.state, str(folder / "test.parquet"), tmp_path / "before.parquet")
    before = pq.read_table(tmp_path / "before.parquet")["click"].to_numpy()
    np.testing.assert_array_equal(before, expected)
    inputs = model.description.functions["predict"].inputs
    assert sorted(inputs) == ["category", "click", "color", "liked", "show"]
    request = {"liked": [None], "category": [None], "click": [1], "show": [2], "color": ["red"]}
    assert np.isfinite(model.predict(request)["click"]).all()
