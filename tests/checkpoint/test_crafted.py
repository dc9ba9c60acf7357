"""Checkpoints of strangers: their files stay in their folder, and declare no more than they hold."""

import json
import os
import random
import struct
import zlib

import jax.numpy as jnp
import numpy as np
import pytest

from sparrow.checkpoint import Checkpoints, Damaged, Key, Saved, TableRows
from sparrow.checkpoint.content import ABOUT, MANIFEST, STATE, _crc
from tests.crafted import changed


@pytest.fixture
def folder(tmp_path):
    table = jnp.arange(12.0).reshape(6, 2)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(3, {Key("t"): TableRows(table, 0, 6)}, {"x": np.ones(3, np.float32)}, {})
    checkpoints.close()
    return tmp_path / "3"


def put(folder, name, data):
    """Writes a file, and a manifest that agrees with it."""
    (folder / name).write_bytes(data)
    relist(folder, lambda files: files.update({name: {"size": len(data), "crc32": zlib.crc32(data)}}))


def relist(folder, change):
    files = json.loads((folder / MANIFEST).read_text())["files"]
    change(files)
    (folder / MANIFEST).write_text(json.dumps({"crc32": _crc(files), "files": files}))


def redescribe(folder, change):
    about = json.loads((folder / ABOUT).read_text())
    change(about)
    put(folder, ABOUT, json.dumps(about).encode())


def read_all(folder):
    saved = Saved(folder)
    saved.arrays()
    for key in saved.tables:
        for _ in saved.rows(key):
            pass


def refused(folder, match=None):
    with pytest.raises(Damaged, match=match) as error:
        read_all(folder)
    assert len(str(error.value).splitlines()) == 1
    str(error.value).encode()


def test_an_honest_one_is_read(folder):
    redescribe(folder, lambda about: None)
    read_all(folder)


@pytest.mark.parametrize("name", ["../outside", "/etc/hostname", "link", "tables/../../outside", "\ud800", "", "a\0"])
def test_files_of_another_place_are_not_read(name, folder):
    (folder.parent / "outside").write_text("secret")
    (folder / "link").symlink_to("../outside")
    relist(folder, lambda files: files.update({name: {"size": 6, "crc32": zlib.crc32(b"secret")}}))
    refused(folder, "manifest.json: ")


@pytest.mark.parametrize("name", ["../outside", "/etc/hostname", "link"])
def test_tables_are_files_of_the_checkpoint(name, folder):
    (folder / "tables" / "0000-t.npy").rename(folder.parent / "outside")
    (folder / "link").symlink_to("../outside")
    redescribe(folder, lambda about: about["tables"][0].update(file=name))
    refused(folder)


@pytest.mark.parametrize("name", [ABOUT, STATE, "tables/0000-t.npy"])
def test_a_pipe_is_not_waited_for(name, folder):
    (folder / name).unlink()
    os.mkfifo(folder / name)
    relist(folder, lambda files: files.update({name: {"size": 0, "crc32": 0}}))
    refused(folder)


@pytest.mark.parametrize(
    "shape",
    [[10**12, 10**12], [1, 10**15], [2**62, 4], [6, 3], [-6, -2], [6.5, 2], ["6", 2], [True, 12], [], None, 12, [None]],
)
def test_shapes_that_their_files_do_not_hold(shape, folder):
    redescribe(folder, lambda about: about["tables"][0].update(shape=shape))
    refused(folder)


@pytest.mark.parametrize("dtype", ["object", "float64", "U3", "M8[s]", "V4", "no such", "", None, 7, [["a", "f4"]]])
def test_dtypes_that_are_none(dtype, folder):
    redescribe(folder, lambda about: about["tables"][0].update(dtype=dtype))
    refused(folder)


@pytest.mark.parametrize("text", ["[" * 100_000, "[]", "null", "7", '{"form": []}', "{", "\ud800"])
def test_descriptions_that_are_none(text, folder):
    put(folder, ABOUT, text.encode(errors="surrogatepass"))
    with pytest.raises(ValueError, match=r"about.json|was saved in format version") as error:
        read_all(folder)
    assert type(error.value).__name__ in ("Damaged", "CheckpointError")


@pytest.mark.parametrize("text", ["[" * 100_000, "[]", "null", '{"files": [], "crc32": 0}', "{", "\ud800"])
def test_manifests_that_are_none(text, folder):
    (folder / MANIFEST).write_bytes(text.encode(errors="surrogatepass"))
    refused(folder, "manifest.json: ")


def test_arrays_that_are_none(folder):
    text = json.dumps({"x": {"dtype": "F32", "shape": [2**60], "data_offsets": [0, 2**62]}}).encode()
    for data in (b"", b"\xff" * 50, struct.pack("<Q", len(text)) + text):
        put(folder, STATE, data)
        refused(folder, "state.safetensors: ")


def test_random_changes(folder):
    rng = random.Random(0)
    before = {name: (folder / name).read_bytes() for name in (ABOUT, MANIFEST)}
    values = [None, True, -1, 0, 2**70, 1e300, float("nan"), "", "../x", [], {}, [[]], "\ud800"]
    outcomes = set()
    for _ in range(300):
        for name, data in before.items():
            (folder / name).write_bytes(data)
        (redescribe if rng.random() < 0.7 else relist)(folder, lambda held: changed(held, rng, values))
        try:
            read_all(folder)
            outcomes.add("read")
        except ValueError as error:
            outcomes.add(type(error).__name__)
    assert outcomes <= {"read", "Damaged", "CheckpointError"}
    assert "Damaged" in outcomes
