"""The house: a room imports only from rooms before it, by its door, and `import sparrow` stays light."""

import functools
import subprocess
import sys

from docs.draw_rooms import ORDER, PACKAGE, PICTURE, imported, modules, picture, room

LATER = {("runs", "exports")}
"""Rooms that a room imports when it is asked to: `Run.export` of a run."""


@functools.cache
def imports():
    """The imported names of every module, by its path."""
    return {path: imported(path) for path in modules()}


def upward(path):
    """The sentences on imports of one module that go to a later room."""
    own = room(path)
    if own not in ORDER:
        yield f"sparrow/{own} has no place in the order of rooms"
        return
    for name in imports()[path]:
        other = name.split(".")[1]
        # anything not in the order is a name of the package itself, such as sparrow.Rule
        if other in ORDER and (own, other) not in LATER and ORDER.index(other) > ORDER.index(own):
            yield f"{path.relative_to(PACKAGE)}: {own} must not import {other}"


def test_imports_go_up():
    assert not [sentence for path in imports() for sentence in upward(path)]


def test_import_is_light():
    heavy = ["flax", "pyarrow", "orbax", "matplotlib", "yaml", "sklearn", "torch"]
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
    "sparrow.serving.deltas",
    "sparrow.serving.tensors",
    "sparrow.serving.files",
    "sparrow.embedding.layers.nnx",  # Flax is imported by those who ask for it
    "sparrow.embedding.layers.linen",
    "sparrow.runs.evaluating.predict_files",
}
"""Inner modules that other rooms may import."""


def is_door(name):
    """Whether ``sparrow.a.b`` is a room inside a room, or no file at all."""
    path = PACKAGE.joinpath(*name.split(".")[1:])
    return path.is_dir() or not path.with_suffix(".py").is_file()


def inner_imports(path):
    """The inner modules of other rooms that one module imports."""
    others = {name for name in imports()[path] if name.count(".") > 1 and name.split(".")[1] != room(path)}
    inner = {name for name in others if not is_door(name)} - SIDE_DOORS
    if room(path) == "planning":  # a plan rehearses the training loop piece by piece
        inner = {name for name in inner if not name.startswith("sparrow.runs.")}
    return sorted(inner)


def test_rooms_are_entered_by_their_doors():
    found = {str(path.relative_to(PACKAGE)): inner_imports(path) for path in imports()}
    assert not {path: names for path, names in found.items() if names}, "import from the room itself"


def test_every_side_door_is_a_file():
    gone = [name for name in SIDE_DOORS if not PACKAGE.joinpath(*name.split(".")[1:]).with_suffix(".py").is_file()]
    assert not gone
