"""Checkpoints of several processes: a start that fails leaves nothing."""

import errno
import os
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
