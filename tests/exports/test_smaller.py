"""Exports with smaller tables: sizes, predictions beside the original's, contradictions, numbers that do not fit."""

import dataclasses

import numpy as np
import pytest

from sparrow import exports, serving
from sparrow.errors import DataError
from sparrow.serving.description import TABLES
from sparrow.serving.parts import lookups
from sparrow.serving.tensors import read
from tests.exports.cases import WORDS, config, program_and_state, rows


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("smaller")
    (folder / "words.txt").write_text("".join(f"{word}\n" for word in WORDS))
    return *program_and_state(config("deepfm", folder / "words.txt")), folder


@pytest.mark.parametrize(("dtype", "within"), [("float16", 1e-3), ("int8", 4e-3), ("int4", 6e-2)])
def test_predictions_are_near_and_files_smaller(trained, dtype, within):
    program, state, folder = trained
    plain, small = folder / f"plain_{dtype}", folder / dtype
    exports.export(program, state, plain)
    exports.export(program, state, small, tables=dtype)
    table = rows(40)
    expected, found = (serving.load(path).predict(table)["click"] for path in (plain, small))
    assert 0 < np.abs(found - expected).max() < within
    assert (small / "tables.safetensors").stat().st_size < (plain / "tables.safetensors").stat().st_size


def test_a_description_that_contradicts_the_table_is_refused(trained, tmp_path):
    program, state, _ = trained
    about = exports.export(program, state, tmp_path / "made", tables="int8")
    with (tmp_path / "made" / TABLES).open("rb") as file:
        tables = read(file, "tables")
    assert lookups(about, tables, tmp_path)
    others = {name: dataclasses.replace(entry, dtype="int4") for name, entry in about.tables.items()}
    with pytest.raises(DataError, match="is described as uint8 of shape"):
        lookups(dataclasses.replace(about, tables=others), tables, tmp_path)


def test_numbers_beyond_float16_are_refused_and_nothing_is_left(trained, tmp_path):
    program, state, _ = trained
    embedding = state.optimizer.embedding
    name = next(name for name, table in program.embedder.tables.items() if table.embedding_dim == 4)
    table = np.full((program.embedder.tables[name].vocabulary_size, program.embedder.tables[name].embedding_dim), 1e6)
    wrong = program.embedder.with_table(embedding, name, table.astype(np.float32))
    broken = dataclasses.replace(state, optimizer=dataclasses.replace(state.optimizer, embedding=wrong))
    with pytest.raises(ValueError, match=f"table '{name}': numbers of 8 bits are between"):
        exports.export(program, broken, tmp_path / "made", tables="int8")
    assert not (tmp_path / "made").exists()
    with pytest.raises(ValueError, match="tables must be one of 'float16', 'int8', 'int4', got 'int2'"):
        exports.export(program, state, tmp_path / "made", tables="int2")
