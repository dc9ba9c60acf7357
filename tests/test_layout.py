"""The house: a room imports only from rooms before it, by its door, and `import sparrow` stays light."""

import subprocess
import sys

import pytest

from docs.draw_rooms import ORDER, PACKAGE, PICTURE, imported, modules, picture, room

LATER = {("runs", "exports")}
"""Rooms that a room imports when it is asked to: `Run.export` of a run."""


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_up(path):
    own = room(path)
    assert own in ORDER, f"sparrow/{own} has no place in the order of rooms"
    for name in imported(path):
        other = name.split(".")[1]
        if other in ORDER:  # anything else is a name of the package itself, such as sparrow.Rule
            later = (own, other) in LATER
            assert later or ORDER.index(other) <= ORDER.index(own), f"{own} must not import {other}"


def test_import_is_light():
    heavy = ["flax", "pyarrow", "orbax", "pydantic", "matplotlib", "yaml", "sklearn", "torch"]
    code = f"""import sys, sparrow
print([m for m in ["jax", "numpy"] if m in sys.modules])
sparrow.Embedder
print([m for m in {heavy} if m in sys.modules])"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split("\n")[:2] == ["[]", "[]"]


def test_the_picture_of_the_rooms_is_fresh():
    assert PICTURE.read_text(encoding="utf-8") == picture(), "run python docs/draw_rooms.py"


SIDE_DOORS = {
    "sparrow.serving.description",  # the format of an export: serving reads it, exports writes it
    "sparrow.serving.tensors",
    "sparrow.serving.files",
    "sparrow.embedding.nnx",  # Flax is imported by those who ask for it
    "sparrow.embedding.linen",
    "sparrow.config.building.objective",
    "sparrow.runs.predictions",
    "sparrow.runs.predict_files",
}
"""Inner modules that other rooms may import."""


def is_door(name):
    """Whether ``sparrow.a.b`` is a room inside a room, or no file at all."""
    path = PACKAGE.joinpath(*name.split(".")[1:])
    return path.is_dir() or not path.with_suffix(".py").is_file()


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_rooms_are_entered_by_their_doors(path):
    others = {name for name in imported(path) if name.count(".") > 1 and name.split(".")[1] != room(path)}
    inner = {name for name in others if not is_door(name)} - SIDE_DOORS
    if room(path) == "plan":  # a plan rehearses the training loop piece by piece
        inner = {name for name in inner if not name.startswith("sparrow.runs.")}
    assert not inner, f"import from the room itself, not from {', '.join(sorted(inner))}"
