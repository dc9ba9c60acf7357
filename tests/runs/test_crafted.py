"""Runs of strangers: a description that does not fit the files is one line, before anything is allocated."""

import io
import json
import shutil
import zlib

import pytest

from sparrow import runs
from sparrow.checkpoint.content import ABOUT, MANIFEST, _crc
from sparrow.runs.step.program import Program
from tests.runs.cases import case


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    runs.train(case("train.steps=2"), folder, stream=io.StringIO())
    return folder


@pytest.fixture
def folder(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run")


def redescribe(folder, change):
    """Changes what the only checkpoint declares, with a manifest that agrees with it."""
    path = folder / "checkpoints" / "2"
    about = json.loads((path / ABOUT).read_text())
    change(about)
    data = json.dumps(about).encode()
    (path / ABOUT).write_bytes(data)
    files = json.loads((path / MANIFEST).read_text())["files"]
    files[ABOUT] = {"size": len(data), "crc32": zlib.crc32(data)}
    (path / MANIFEST).write_text(json.dumps({"crc32": _crc(files), "files": files}))


def test_tables_larger_than_their_files_are_not_allocated(folder, monkeypatch):
    redescribe(folder, lambda about: about.update(config=about["config"].replace(": 20\n", ": 2000\n")))
    monkeypatch.setattr(Program, "init", lambda self: pytest.fail("allocated before it was checked"))
    with pytest.raises(ValueError, match=r"has the shape \(20, .\) in the checkpoint, \(2000, .\) here") as error:
        runs.load(folder)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("progress", [None, 7, [], {}, {"steps": "2"}, {"results": None}], ids=str)
def test_progress_that_is_none(progress, folder):
    def change(about):
        held = about["progress"]
        about["progress"] = {**held, **progress} if isinstance(progress, dict) and progress else progress

    redescribe(folder, change)
    with pytest.raises(ValueError, match="every checkpoint is damaged") as error:
        runs.train(case("train.steps=3"), folder, resume=True, stream=io.StringIO())
    assert len(str(error.value).splitlines()) == 1
    with pytest.raises(ValueError, match="no best step is known"):
        runs.load(folder, step="best")
