"""A loaded export is one model for good, whatever happens to its folder."""

import shutil
import threading

import jax
import numpy as np
import pytest

from sparrow import exports, serving
from sparrow.exports.folder import whole
from tests.exports.cases import WORDS, config, program_and_state, rows


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Exports of two models of two towers, with the same words in another order."""
    folder, made = tmp_path_factory.mktemp("two"), []
    for name, words in (("a", WORDS), ("b", WORDS[::-1])):
        (folder / f"{name}.txt").write_text("".join(f"{word}\n" for word in words))
        program, state = program_and_state(config("dssm", folder / f"{name}.txt"))
        if name == "b":
            state = jax.tree.map(lambda x: -x if x.dtype == np.float32 else x, state)
        exports.export(program, state, folder / name)
        made.append(folder / name)
    return made


@pytest.fixture(params=["copied", "mapped"])
def tables(request, monkeypatch):
    if request.param == "mapped":
        monkeypatch.setattr("sparrow.serving.tensors.COPIED_BYTES", 0)


def outputs(model):
    table = rows(20)
    return [model.predict(table)["match"], *(model.vectors(tower, table) for tower in model.towers)]


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def replace(folder, other):
    with whole(folder, overwrite=True) as partial:
        shutil.copytree(other, partial, dirs_exist_ok=True)


@pytest.mark.usefixtures("tables")
def test_replacing_the_folder_changes_nothing(two, tmp_path):
    a, b = two
    expected = outputs(serving.load(a))
    assert not same(outputs(serving.load(b)), expected)
    shutil.copytree(a, tmp_path / "export")
    model = serving.load(tmp_path / "export")
    replace(tmp_path / "export", b)
    assert same(outputs(model), expected)  # nothing was used before
    assert same(outputs(serving.load(tmp_path / "export")), outputs(serving.load(b)))


@pytest.mark.usefixtures("tables")
def test_removing_the_folder_changes_nothing(two, tmp_path):
    expected = outputs(serving.load(two[0]))
    shutil.copytree(two[0], tmp_path / "export")
    model = serving.load(tmp_path / "export")
    shutil.rmtree(tmp_path / "export")
    assert same(outputs(model), expected)


def test_small_tables_outlive_a_file_that_is_cut_off(two, tmp_path):
    expected = outputs(serving.load(two[0]))
    shutil.copytree(two[0], tmp_path / "export")
    model = serving.load(tmp_path / "export")
    for path in (tmp_path / "export").rglob("*.*"):
        path.write_bytes(b"")
    assert same(outputs(model), expected)


def test_loading_while_it_is_replaced(two, tmp_path):
    """Each load gives the one model or the other, never an error, never a mixture."""
    shutil.copytree(two[0], tmp_path / "export")
    stop = threading.Event()

    def replacing():
        while not stop.is_set():
            for other in two[::-1]:
                replace(tmp_path / "export", other)

    expected = [outputs(serving.load(folder)) for folder in two]
    thread = threading.Thread(target=replacing)
    thread.start()
    seen = []
    try:
        for _ in range(12):
            made = outputs(serving.load(tmp_path / "export"))
            seen.append([same(made, one) for one in expected])
    finally:
        stop.set()
        thread.join()
    assert all(sum(which) == 1 for which in seen), seen
