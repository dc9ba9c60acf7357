"""An export is whole or not there, and one that is damaged says so in one sentence."""

import fcntl
import functools
import json
import os
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparrow import exports, runs, serving
from sparrow.data import DataError
from sparrow.exports import exporting
from tests.exports.cases import WORDS, config, program_and_state, rows


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    words = tmp_path_factory.mktemp("words") / "words.txt"
    words.write_text("".join(f"{word}\n" for word in WORDS))
    return program_and_state(config("test_own", words))


@pytest.fixture(scope="module")
def whole(trained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "export"
    exports.export(*trained, folder)
    return folder


@pytest.fixture
def copy(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "copy")


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def edit(path, **fields):
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


DAMAGES = {
    "no folder": (shutil.rmtree, "there is no such folder"),
    "no description": (lambda folder: (folder / "export.json").unlink(), "is not an export: it holds no export.json"),
    "cut description": (lambda folder: (folder / "export.json").write_text('{"form": 1, '), "may be damaged"),
    "edited description": (lambda folder: edit(folder / "export.json", step=7), "its checksum differs"),
    "another version": (lambda folder: edit(folder / "export.json", form=9), r"format version 9 \(spar.*version 4"),
    "another JSON": (lambda folder: (folder / "export.json").write_text("[]"), "does not describe an export"),
    "no tables": (lambda folder: (folder / "tables.safetensors").unlink(), "tables.safetensors: the export lacks"),
    "cut tables": (lambda folder: (folder / "tables.safetensors").write_bytes(b"x" * 99), "holds 99 bytes and was"),
    "flipped table": (lambda folder: flip(folder / "tables.safetensors", -5), "tables.safetensors: is damaged"),
    "flipped parameters": (lambda folder: flip(folder / "parameters.safetensors", -1), "its checksum is not"),
    "flipped function": (lambda folder: flip(folder / "predict.stablehlo", 1000), "predict.stablehlo: is damaged"),
    "no words": (lambda folder: (folder / "vocabularies/0_colors.txt").unlink(), "0_colors.txt: the export lacks"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_one_sentence(damage, copy):
    spoil, message = DAMAGES[damage]
    spoil(copy)
    with pytest.raises(DataError, match=message) as error:
        serving.load(copy)
    assert len(str(error.value).splitlines()) == 1


def test_tables_may_be_left_unverified(copy):
    flip(copy / "tables.safetensors", -5)
    assert serving.load(copy, verify=False).predict(rows(3))["click"].shape == (3,)
    flip(copy / "parameters.safetensors", -5)
    with pytest.raises(DataError, match="parameters"):
        serving.load(copy, verify=False)


def test_nothing_is_replaced_unasked(trained, copy):
    with pytest.raises(DataError, match="is an export already; choose another folder, or add --overwrite"):
        exports.export(*trained, copy)
    edit(copy / "export.json", model="an older one")
    exports.export(*trained, copy, overwrite=True)
    assert serving.load(copy).description.model == "test_own"
    (copy / "export.json").unlink()
    with pytest.raises(DataError, match="is not an export; choose another folder"):
        exports.export(*trained, copy, overwrite=True)
    assert (copy / "tables.safetensors").exists()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_an_interrupted_export_leaves_what_was_there(error, trained, copy, monkeypatch):
    def fails(path, arrays):
        path.write_bytes(b"half of it")
        raise error

    monkeypatch.setattr(exporting, "write", fails)
    for folder, overwrite in ((copy, True), (copy.parent / "new", False)):
        with pytest.raises(
            (KeyboardInterrupt, DataError), match=None if isinstance(error, KeyboardInterrupt) else "No space"
        ):
            exports.export(*trained, folder, overwrite=overwrite)
    assert [path.name for path in copy.parent.iterdir()] == ["copy"]
    assert serving.load(copy).predict(rows(2))["click"].shape == (2,)


def test_one_export_at_a_time(trained, tmp_path):
    with (tmp_path / ".new.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(DataError, match="another export is being written there"):
            exports.export(*trained, tmp_path / "new", overwrite=True)
    exports.export(*trained, tmp_path / "new")  # a lock of a process that is gone is in nobody's way
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_rows_that_do_not_fit(whole):
    model, table = serving.load(whole), rows(3)
    with pytest.raises(DataError, match="lacks column 'item', which the model reads"):
        model.predict(table.drop_columns(["item"]))
    with pytest.raises(DataError, match=r"row 1, column 'user': id 77 is outside 0 to 49"):
        model.predict({**table.to_pydict(), "user": [1, 77, 2]})
    with pytest.raises(TypeError, match="rows must be a frame of pandas or Polars, an Arrow table, or columns by name"):
        model.predict([1, 2])
    with pytest.raises(ValueError, match="batch_size must be"):
        model.predict(table, batch_size=0)
    with pytest.raises(ValueError, match="no tower 'user': Valid names: none"):
        model.vectors("user", table)


def test_predictions_replace_neither_their_input_nor_special_files(trained, whole, tmp_path):
    model, source = serving.load(whole), tmp_path / "rows.parquet"
    pq.write_table(rows(3), source)
    before = source.read_bytes()
    (tmp_path / "link.parquet").symlink_to(source)
    os.link(source, tmp_path / "second.parquet")
    os.mkfifo(tmp_path / "pipe")
    for predict in (functools.partial(serving.predict, model), functools.partial(runs.predict, *trained)):
        for name in ("rows.parquet", "link.parquet", "second.parquet"):
            with pytest.raises(DataError, match=f"{name}: is read by this very prediction; choose another file"):
                predict(str(source), tmp_path / name)
        with pytest.raises(DataError, match="pipe: is a device or another special file"):
            predict(str(source), tmp_path / "pipe")
        with pytest.raises(DataError, match="/dev/null: is a device"):
            predict(str(source), "/dev/null")
    assert source.read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["link.parquet", "pipe", "rows.parquet", "second.parquet"]


def test_predictions_follow_symlinks_and_touch_nothing_else(whole, tmp_path):
    pq.write_table(rows(3), tmp_path / "rows.parquet")
    (tmp_path / ".out.parquet.partial").write_text("of somebody else")
    (tmp_path / "link").symlink_to("out.parquet")
    serving.predict(serving.load(whole), str(tmp_path / "rows.parquet"), tmp_path / "link")
    assert pq.read_table(tmp_path / "out.parquet").num_rows == 3
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / ".out.parquet.partial").read_text() == "of somebody else"


def test_no_rows_give_a_file_of_none(trained, whole, tmp_path):
    source, model = tmp_path / "none.parquet", serving.load(whole)
    pq.write_table(rows(0), source)
    assert runs.predict(*trained, str(source), tmp_path / "run.parquet", columns=["item"]) == 0
    assert serving.predict(model, str(source), tmp_path / "export.parquet", columns=["item"]) == 0
    made = pq.read_table(tmp_path / "export.parquet")
    assert made.equals(pq.read_table(tmp_path / "run.parquet"))
    assert made.schema == pa.schema({"item": pa.string(), "click": pa.float32()})
    (tmp_path / "folder").mkdir()
    with pytest.raises(DataError, match=r"folder: cannot be written: Is a directory"):
        serving.predict(model, str(source), tmp_path / "folder")
    pq.write_table(rows(1).append_column("click", pa.array([1])), source)
    with pytest.raises(
        DataError, match="a prediction has this name; keep the column under another one: click_label=click"
    ):
        serving.predict(model, str(source), tmp_path / "x.parquet", columns=["click"])


def test_a_run_is_not_an_export(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(DataError, match="is a run; export it first, with sparrow export"):
        serving.load(tmp_path)
