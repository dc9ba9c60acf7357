"""The house: a folder imports only from folders before it, and `import sparrow` stays light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "sparrow"
ORDER = [
    "versions",
    "trees",
    "files",
    "errors",
    "registry",
    "fields",
    "rules",
    "kernels",
    "embedding",
    "schedules",
    "dense",
    "losses",
    "metrics",
    "optimizer",
    "checkpoint",
    "data",
    "serving",
    "models",
    "config",
    "reports",
    "runs",
    "exports",
    "plan",
    "cli",
]


def room(path: Path) -> str:
    """The folder or top-level file that a module belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level:
            raise AssertionError(f"{path}: imports are absolute")
        elif isinstance(node, ast.ImportFrom) and node.module == "sparrow":
            names = [f"sparrow.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        rooms |= {name.split(".")[1] for name in names if name.startswith("sparrow.")}
    return rooms


MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_up(path):
    own = room(path)
    assert own in ORDER, f"sparrow/{own} has no place in the order of rooms"
    for other in imported_rooms(path):
        if other in ORDER:  # anything else is a name of the package itself, such as sparrow.Rule
            assert ORDER.index(other) <= ORDER.index(own), f"{own} must not import {other}"


def test_import_is_light():
    heavy = ["flax", "pyarrow", "orbax", "pydantic", "matplotlib", "yaml", "sklearn", "torch"]
    code = f"import sys, sparrow; print([m for m in {heavy} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
