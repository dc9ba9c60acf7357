"""Export, load, predict: what the trained model predicts, in a process that has no model's code."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparrow import exports, runs, serving
from sparrow.serving.tensors import read
from tests.exports.cases import MODELS, WORDS, config, program_and_state, rows, served

COUNT = 10_000
VARIANTS = {  # by model: overrides of the config, and the dtype of the tables
    "deepfm": (["train.ema=0.9"], "float32"),
    "dlrm": ([], "bfloat16"),
    "wide_and_deep": ([], "float32"),
    "multi_tower": ([], "float16"),
    "dssm": ([], "float32"),
    "mmoe": ([], "float32"),
    "test_own": ([], "float32"),
}
NO_MODEL_CODE = ["flax", "orbax", *(f"sparrow.{room}" for room in ("models", "config", "runs", "training"))]
SERVE = f"""
import sys, json
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import sparrow.serving

folder, names = sys.argv[1], sys.argv[2:]
table = pq.read_table(folder + "/rows.parquet")
for name in names:
    model = sparrow.serving.load(folder + "/" + name)
    sparrow.serving.predict(model, folder + "/rows.parquet", folder + "/" + name + ".served.parquet", columns=["user"])
    np.savez(folder + "/" + name + ".npz", **model.predict(table))
print(json.dumps([module for module in {NO_MODEL_CODE!r} if module in sys.modules]))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Exports of all models, predictions of the models themselves, and those of a process without their code."""
    folder = tmp_path_factory.mktemp("exports")
    pq.write_table(rows(COUNT), folder / "rows.parquet", row_group_size=3000)
    (folder / "words.txt").write_text("".join(f"{word}\n" for word in WORDS))
    for name, (overrides, dtype) in VARIANTS.items():
        program, state = program_and_state(config(name, folder / "words.txt", *overrides), dtype)
        exports.export(program, state, folder / name)
        runs.predict(program, state, str(folder / "rows.parquet"), folder / f"{name}.parquet", columns=["user"])
    (folder / "words.txt").unlink()  # an export has its own
    done = served(SERVE, folder, *VARIANTS)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []
    return folder


def flat(column):
    """All numbers of a column, of lists too."""
    return np.array(column.to_pylist(), np.float32).reshape(-1)


@pytest.mark.parametrize("name", VARIANTS)
def test_predictions_are_the_models(name, folder):
    expected, made = pq.read_table(folder / f"{name}.parquet"), pq.read_table(folder / f"{name}.served.parquet")
    assert made.schema == expected.schema
    assert made.num_rows == COUNT
    assert made["user"].equals(expected["user"])
    for output in set(expected.column_names) - {"user"}:
        a, b = flat(expected[output]), flat(made[output])
        np.testing.assert_allclose(b, a, rtol=0, atol=1e-6)
        assert np.std(a) > 1e-3
    # In memory: the same by task.
    arrays = np.load(folder / f"{name}.npz")
    tasks = MODELS[name][2]
    assert set(arrays.files) == set(tasks)
    for task in tasks:
        output = flat(expected[task])
        np.testing.assert_allclose(arrays[task].reshape(-1), output, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["deepfm", "dssm"])
def test_any_number_of_rows(name, folder):
    model, table = serving.load(folder / name), rows(40, seed=5)
    (whole,) = model.predict(table).values()
    assert whole.shape == (40,)
    for count in (1, 7, 39):
        (some,) = model.predict(table.slice(0, count).to_pydict()).values()
        np.testing.assert_allclose(some, whole[:count], rtol=0, atol=1e-6)
    (nothing,) = model.predict({column: [None] for column in table.column_names}).values()
    (typed,) = model.predict({c: pa.nulls(1, table.schema.field(c).type) for c in table.column_names}).values()
    assert np.isfinite(nothing).all()
    assert nothing == typed
    (none,) = model.predict(table.slice(0, 0)).values()
    assert (none.shape, none.dtype) == ((0,), np.float32)


def test_towers_need_their_own_columns_only(folder):
    model = serving.load(folder / "dssm")
    assert model.towers == ("user", "item")
    expected, table = pq.read_table(folder / "dssm.parquet"), pq.read_table(folder / "rows.parquet")
    for tower, columns in {
        "user": ["user", "watched", "shares", "seen", "age"],
        "item": ["item", "colors", "user", "prices"],  # user: crossed with item
    }.items():
        assert sorted(model.signature[tower]["inputs"]) == sorted(columns)
        vectors = model.vectors(tower, table.select(columns).slice(0, 100))
        assert vectors.shape == (100, 6)
        of_file = np.array(expected[f"{tower}_vector"].slice(0, 100).to_pylist(), np.float32)
        np.testing.assert_allclose(vectors, of_file, rtol=0, atol=1e-6)
    with pytest.raises(ValueError, match="no tower 'items': did you mean 'item'"):
        model.vectors("items", table)


def test_tables_are_logical_and_of_their_dtype(folder):
    program, state = program_and_state(config("dlrm", folder / "dlrm/vocabularies/0_colors.txt"), "bfloat16")
    assert len(program.embedder.stacks) < len(program.embedder.tables)
    with (folder / "dlrm" / "tables.safetensors").open("rb") as file:
        tables = read(file, "tables")
    assert set(tables) == set(program.embedder.tables)
    for name, table in tables.items():
        held = np.asarray(program.embedder.table(state.optimizer.embedding, name))
        assert (table.dtype, table.shape) == (held.dtype, held.shape)
        assert table.tobytes() == held.tobytes()


def test_average_or_last_parameters(folder, tmp_path):
    words = folder / "deepfm/vocabularies/0_colors.txt"
    program, state = program_and_state(config("deepfm", words, "train.ema=0.9"))
    assert exports.export(program, state, tmp_path / "last", ema=False).ema is False
    table = rows(50)
    average, last = (serving.load(path).predict(table)["click"] for path in (folder / "deepfm", tmp_path / "last"))
    assert np.abs(average - last).max() > 1e-3
    program, state = program_and_state(config("deepfm", words))
    with pytest.raises(ValueError, match="keeps no average"):
        exports.export(program, state, tmp_path / "none", ema=True)
    assert not (tmp_path / "none").exists()


def test_signature_is_for_strangers(folder):
    signature = serving.load(folder / "mmoe").signature["predict"]
    assert (
        signature["inputs"]["colors"]
        == "words of a vocabulary of 3; lists, or strings separated by '|'; may be missing"
    )
    assert signature["inputs"]["shares"] == "as many weights as ids of 'watched'"
    assert signature["inputs"]["user"] == "integers from 0 to 49; may be missing"
    assert signature["outputs"]["buy"] == {"shape": ("batch",), "dtype": "float32", "meaning": "probability"}
    described = json.loads((folder / "dlrm" / "export.json").read_text())
    assert described["platforms"] == ["cpu", "cuda", "rocm", "tpu"]
    assert described["functions"]["predict"]["outputs"]["kind"]["shape"] == ["batch", 3]
