"""Readers and the writer of the same checkpoints, and checkpoints that the operating system does not give."""

import errno
import os
import shutil
import threading

import jax.numpy as jnp
import numpy as np
import pytest

from sparrow.checkpoint import (
    CheckpointError,
    Checkpoints,
    Damaged,
    Key,
    Saved,
    TableRows,
    Vanished,
    holding,
    saved_steps,
    whole,
    writer,
)

LOADS = 150


def save(checkpoints, step):
    table = jnp.full((4, 2), float(step))
    checkpoints.save(step, {Key("t"): TableRows(table, 0, 4)}, {"a": np.array([step])}, {})


def load(saved):
    (_, rows), *_ = saved.rows(Key("t"))
    assert rows.tolist() == [[saved.step] * 2] * 4
    assert saved.arrays()["a"].tolist() == [saved.step]
    return saved.step


@pytest.fixture
def two(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 1)
    save(checkpoints, 2)
    checkpoints.close()
    return tmp_path


@pytest.mark.parametrize("locks", [True, False])
def test_loads_while_old_ones_are_removed(tmp_path, monkeypatch, locks):
    """The newest stays, a save follows the other, and no load fails; even where the file system keeps no locks."""
    if not locks:

        def flock(descriptor, kind):
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

        monkeypatch.setattr(holding.fcntl, "flock", flock)
    checkpoints, lines, going = Checkpoints(tmp_path, keep=1), [], True
    save(checkpoints, 1)
    checkpoints.wait()

    def write():
        step = 2
        while going:
            save(checkpoints, step)
            step += 1

    writer = threading.Thread(target=write)
    writer.start()

    def one():
        for saved in whole(tmp_path, lines.append):
            try:
                return load(saved)
            except Vanished:
                continue
        return None

    loaded = [one() for _ in range(LOADS)]
    going = False
    writer.join()
    checkpoints.close()
    assert None not in loaded
    assert lines == []
    assert loaded == sorted(loaded)
    assert saved_steps(tmp_path) == [max(saved_steps(tmp_path))]


def test_what_a_reader_holds_stays(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=1)
    save(checkpoints, 1)
    checkpoints.wait()
    reader = Saved(tmp_path / "1")
    save(checkpoints, 2)
    save(checkpoints, 3)
    save(checkpoints, 4)
    checkpoints.wait()
    assert saved_steps(tmp_path) == [4, 1]
    assert load(reader) == 1
    reader.close()
    checkpoints.close()
    assert saved_steps(tmp_path) == [4]
    with pytest.raises(Vanished):
        Saved(tmp_path / "1")


def test_the_best_stays_until_a_better_one_is_saved(tmp_path, monkeypatch):
    checkpoints = Checkpoints(tmp_path, keep=1)
    save(checkpoints, 1)
    checkpoints.best = 1
    save(checkpoints, 2)
    checkpoints.wait()
    checkpoints.best = 3  # known to be better, and not saved yet

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(writer, "write_last", full)
        save(checkpoints, 3)
        with pytest.raises(CheckpointError, match="the disk is full"):
            checkpoints.wait()
    assert saved_steps(tmp_path) == [2, 1]
    save(checkpoints, 3)
    save(checkpoints, 4)
    checkpoints.close()
    assert saved_steps(tmp_path) == [4, 3]


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE, errno.EACCES, errno.ELOOP, errno.EISDIR, errno.EPERM])
@pytest.mark.parametrize("at", ["folder", "manifest.json", "about.json", "state.safetensors", "t.npy"])
def test_the_one_before_is_read(two, monkeypatch, code, at):
    """Where the operating system does not give the newest, or one file of it."""
    opened, bad = os.open, os.fspath(two / "2")
    builtin = open

    def refuse(path):
        name = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
        if name == bad if at == "folder" else name.startswith(bad) and name.endswith(at):
            raise OSError(code, os.strerror(code), name)

    def refusing(path, *arguments, **options):
        refuse(path)
        return opened(path, *arguments, **options)

    def io_open(path, *arguments, **options):
        refuse(path)
        return builtin(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refusing)
    monkeypatch.setattr("io.open", io_open)
    lines, found = [], None
    for saved in whole(two, lines.append):
        try:
            found = load(saved)
            break
        except Damaged as error:
            lines.append(str(error))
    assert found == 1
    assert len(lines) == 1
    assert os.strerror(code) in lines[0]


def test_a_folder_that_cannot_be_listed(two, monkeypatch):
    """It is not taken for an empty one, and a run goes on without removing old ones."""
    lines, scandir = [], os.scandir
    checkpoints = Checkpoints(two, keep=1, log=lines.append)

    def broken(path):
        if os.fspath(path) == os.fspath(two):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return scandir(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", broken)
        with pytest.raises(CheckpointError, match="cannot be listed: Input/output error"):
            saved_steps(two)
        save(checkpoints, 3)
        checkpoints.wait()
    assert saved_steps(two) == [3, 2, 1]
    assert len(lines) == 1
    checkpoints.close()
    assert saved_steps(two) == [3]


def test_names_that_are_no_steps(two):
    for name in ("0500", "٥", "1_0", "+7", "500x"):
        (two / name).mkdir()
    (two / "600").write_text("a file")
    assert saved_steps(two) == [2, 1]
    (two / "700").symlink_to(two / "700")
    lines = []
    assert [saved.step for saved in whole(two, lines.append)] == [2, 1]
    assert len(lines) == 1
    assert "checkpoint 700 is damaged" in lines[0]


def test_a_checkpoint_under_another_name(two):
    shutil.copytree(two / "1", two / "9")
    lines = []
    assert [saved.step for saved in whole(two, lines.append)] == [2, 1]
    assert "holds the checkpoint of step 1" in lines[0]


def test_an_old_one_that_cannot_be_removed(tmp_path, monkeypatch):
    rename, lines = os.rename, []

    def busy(path, *arguments):
        if os.fspath(path).endswith("/1"):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), os.fspath(path))
        return rename(path, *arguments)

    monkeypatch.setattr(holding.os, "rename", busy)
    checkpoints = Checkpoints(tmp_path, keep=1, log=lines.append)
    for step in range(1, 5):
        save(checkpoints, step)
    checkpoints.close()
    assert saved_steps(tmp_path) == [4, 1]
    assert lines == [f"{tmp_path / '1'}: this old checkpoint cannot be removed: {os.strerror(errno.EBUSY)}"]


def test_folders_of_others_stay(tmp_path):
    """Steps that the run did not write are neither removed nor renamed, and remains of others are not swept."""
    for name in ("5", "7.deleted", "bert-base", "9.partial"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "weights").write_text("precious")
    checkpoints = Checkpoints(tmp_path, keep=1, owns=lambda step: step < 5)
    for step in range(1, 4):
        save(checkpoints, step)
    checkpoints.close()
    assert saved_steps(tmp_path) == [5, 3]
    assert len(list(tmp_path.glob("*/weights"))) == 4
    with pytest.raises(CheckpointError, match="is not a checkpoint of this run"):
        checkpoints.set_aside(5)
