"""Compiled code on disk: found again, never that of others, never damaged."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sparrow.kernels import cache

NAME = "lookup-90a-0123.cubin"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "a" / "cache"))
    return tmp_path / "a" / "cache"


def test_entries_are_found_by_name(folder: Path):
    assert cache.read(NAME) is None
    path = cache.keep(NAME, b"code")
    assert cache.read(NAME) == b"code"
    assert cache.find(NAME) == path
    assert cache.find("lookup-90a-0124.cubin") is None
    assert cache.find("lookup-90a-0123.so") is None
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("damage", [b"", b"cod", b"codf", b"code and more"])
def test_damage_is_found_and_removed(damage):
    path = cache.keep(NAME, b"code")
    path.write_bytes(damage)
    assert cache.read(NAME) is None
    assert not path.exists()


def test_a_loose_umask_makes_no_loose_folder(folder: Path):
    before = os.umask(0)
    try:
        cache.keep(NAME, b"code")
    finally:
        os.umask(before)
    assert not folder.stat().st_mode & 0o022
    assert not folder.parent.stat().st_mode & 0o022
    assert cache.read(NAME) == b"code"


def test_files_of_others_are_not_read(folder: Path, tmp_path: Path, monkeypatch):
    path = cache.keep(NAME, b"code")
    path.chmod(0o620)
    assert cache.read(NAME) is None
    path = cache.keep(NAME, b"code")
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert cache.read(NAME) is None
    cache.keep(NAME, b"code")
    os.mkfifo(folder / "lookup-90a-0123.0.cubin")
    assert cache.read(NAME) == b"code"
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    with pytest.raises(cache.CacheError, match=r"a/cache belongs to another user, so no code is loaded"):
        cache.read(NAME)
    with pytest.raises(cache.CacheError, match=r"a/cache belongs to another user"):
        cache.keep(NAME, b"code")


def test_folders_that_others_may_write_are_not_used(folder: Path):
    cache.keep(NAME, b"code")
    for loose, named in ((folder, "a/cache"), (folder.parent, "a")):
        for mode in (0o770, 0o777):
            loose.chmod(mode)
            with pytest.raises(
                cache.CacheError, match=rf"others may write .*/{named}, so .* run chmod go-w .*/{named},"
            ):
                cache.read(NAME)
            with pytest.raises(cache.CacheError, match="others may write"):
                cache.keep(NAME, b"code")
        loose.chmod(0o700)
    folder.parent.chmod(0o1777)  # as /tmp is: nobody else can move the folder
    assert cache.read(NAME) == b"code"


def test_a_symlink_to_ones_own_folder_is_followed(folder: Path, tmp_path: Path):
    (tmp_path / "large disk").mkdir(mode=0o700)
    folder.parent.mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "large disk")
    cache.keep(NAME, b"code")
    assert cache.read(NAME) == b"code"
    (tmp_path / "large disk").chmod(0o777)
    with pytest.raises(cache.CacheError, match=r"others may write .*large disk"):
        cache.read(NAME)


def test_what_is_no_folder_is_named(folder: Path):
    folder.parent.mkdir()
    folder.write_text("")
    for use in (lambda: cache.read(NAME), lambda: cache.keep(NAME, b"code")):
        with pytest.raises(cache.CacheError, match=r"a/cache is not a folder; remove it, or set SPARROW_CACHE_DIR"):
            use()


def test_many_writers_of_one_entry(folder: Path):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: cache.keep(NAME, b"code" * 10_000), range(40)))
    assert cache.read(NAME) == b"code" * 10_000
    assert len(list(folder.iterdir())) == 1


def test_where_the_folder_is(monkeypatch, tmp_path: Path):
    monkeypatch.delenv(cache.VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.folder() == tmp_path / "xdg" / "sparrow"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # which the specification says to ignore
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.folder() == tmp_path / ".cache" / "sparrow"
    monkeypatch.setenv("HOME", str(tmp_path / "nonexistent"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    assert cache.folder() == tmp_path / "tmp" / f"sparrow-{os.geteuid()}"
