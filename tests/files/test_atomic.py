"""Files are replaced whole, names are swapped in one step."""

import os
from pathlib import Path

import pytest

from sparrow.files import atomic
from sparrow.files.atomic import exchange, replace_file, sync, write_durably


def test_replace_file(tmp_path: Path):
    path = tmp_path / "x.json"
    for data in (b"first", b"second"):
        replace_file(path, data)
        assert path.read_bytes() == data
    assert os.listdir(tmp_path) == ["x.json"]


def test_a_failure_leaves_the_old_file(tmp_path: Path, monkeypatch):
    path = tmp_path / "x.json"
    write_durably(path, b"old")

    def fails(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match="No space"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["x.json"]


def test_a_symlink_stays(tmp_path: Path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder/x.json")
    replace_file(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder" / "x.json").read_bytes() == b"new"


def test_old_leftovers_are_removed(tmp_path: Path):
    replace_file(tmp_path / "x.json", b"old")
    names = {".x.json.00112233.partial": True, ".x.json.44556677.partial": False, ".y.json.00112233.partial": False}
    for name, old in names.items():
        (tmp_path / name).write_bytes(b"half")
        os.utime(tmp_path / name, (1e9, 1e9) if old or ".y" in name else None)
    replace_file(tmp_path / "x.json", b"new")
    assert sorted(os.listdir(tmp_path)) == [".x.json.44556677.partial", ".y.json.00112233.partial", "x.json"]


def test_exchange(tmp_path: Path):
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    assert exchange(tmp_path / "a", tmp_path / "b")
    assert (os.listdir(tmp_path / "a"), os.listdir(tmp_path / "b")) == (["b"], ["a"])
    with pytest.raises(FileNotFoundError):
        exchange(tmp_path / "a", tmp_path / "none")


def test_exchange_where_there_is_no_such_call(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(atomic, "_renameat2", lambda: None)
    assert not exchange(tmp_path, tmp_path / "x")
    monkeypatch.setattr(atomic, "_renameat2", lambda: lambda *arguments: atomic.ctypes.set_errno(22) or -1)
    assert not exchange(tmp_path, tmp_path / "x")


def test_sync(tmp_path: Path):
    sync(tmp_path)
    with pytest.raises(FileNotFoundError):
        sync(tmp_path / "none")
