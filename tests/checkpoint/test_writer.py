"""Checkpoints of several processes: a start that fails leaves nothing."""

import errno
import os
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from sparrow.checkpoint import CheckpointError, Key, writer


def test_a_disk_that_is_full_at_the_start_leaves_nothing(tmp_path, monkeypatch):
    rows = SimpleNamespace(shape=(4, 2), array=np.zeros((4, 2), np.float32), nbytes=32)
    held = writer.header_of
    calls = []

    def full(*given):
        calls.append(given)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return held(*given)

    monkeypatch.setattr(writer, "header_of", full)
    with pytest.raises(CheckpointError, match="the disk is full"):
        writer._make_files(tmp_path / "5.partial", {Key("a"): rows, Key("b"): rows})
    assert not list(tmp_path.iterdir())


def test_the_failure_of_one_thread_stays_when_another_succeeds_after_it(tmp_path, monkeypatch):
    """Both threads begin to write before the first fails."""
    has_begun, has_failed, put = threading.Event(), threading.Event(), writer._put

    def slow(path, data, place):
        if path.name == "bad":
            assert has_begun.wait(60)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        has_begun.set()
        assert has_failed.wait(60)
        put(path, data, place)

    monkeypatch.setattr(writer, "_put", slow)
    (tmp_path / "good").touch()
    part, rows = writer.PartFile(tmp_path), np.zeros((4, 2), np.float32)
    good = threading.Thread(target=part.write, args=("good", rows.shape, rows.dtype, [(0, rows)]))
    good.start()
    part.write("bad", rows.shape, rows.dtype, [(0, rows)])
    has_failed.set()
    good.join()
    assert part.error == "the disk is full"
