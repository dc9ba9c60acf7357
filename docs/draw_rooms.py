"""Draws docs/rooms.svg: the rooms of the package in their order, and who imports whom. Read off the real imports.

Run ``python docs/draw_rooms.py`` after a change of the rooms; a test fails while the picture is stale.
"""

from __future__ import annotations

import ast
from html import escape
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "sparrow"
PICTURE = ROOT / "docs" / "rooms.svg"

ORDER = [
    "versions",
    "trees",
    "background",
    "errors",
    "files",
    "processes",
    "registry",
    "fields",
    "schedules",
    "jaxprs",
    "rules",
    "kernels",
    "embedding",
    "dense",
    "losses",
    "metrics",
    "optimizer",
    "checkpoint",
    "data",
    "feed",
    "retrieval",
    "serving",
    "server",
    "models",
    "tasks",
    "config",
    "reports",
    "runs",
    "exports",
    "samples",
    "frames",
    "planning",
    "tuning",
    "cli",
]
"""A room imports only from rooms before it."""

CELL, LEFT, TOP, TEXT = 22, 100, 92, 640


def modules() -> list[Path]:
    """Return every module of the package but its own ``__init__``."""
    return sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def room(path: Path) -> str:
    """Return the folder or top-level file that a module belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Return the modules of the package that a module imports, such as ``sparrow.rules.base``."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level:
            raise AssertionError(f"{path}: imports are absolute")
        elif isinstance(node, ast.ImportFrom) and node.module == "sparrow":
            found |= {f"sparrow.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return {name for name in found if name.startswith("sparrow.")}


def neighbors() -> dict[str, set[str]]:
    """Return the rooms that each room imports from."""
    found: dict[str, set[str]] = {name: set() for name in ORDER}
    for path in modules():
        found[room(path)] |= {name.split(".")[1] for name in imported(path)} & set(ORDER) - {room(path)}
    return found


def purpose(name: str) -> str:
    """Return the first sentence of a room's docstring."""
    path = PACKAGE / name / "__init__.py"
    text = (path if path.is_file() else PACKAGE / f"{name}.py").read_text(encoding="utf-8")
    line = (ast.get_docstring(ast.parse(text)) or "").splitlines()[0]
    return line.split(". ")[0].rstrip(".").replace("`", "")


def picture() -> str:
    """Return the picture as SVG: a dot means that the room of the line imports the room of the column."""
    imports = neighbors()
    width, height = LEFT + CELL * len(ORDER) + TEXT, TOP + CELL * len(ORDER) + 12
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            'font-family="sans-serif" font-size="13">'
        ),
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for index, name in enumerate(ORDER):
        middle, y = LEFT + CELL * index + CELL / 2, TOP + CELL * index
        if index % 2 == 0:
            parts.append(f'<rect x="0" y="{y}" width="{width}" height="{CELL}" fill="#f2f5f9"/>')
        parts.append(
            f'<text transform="translate({middle + 4},{TOP - 6}) rotate(-60)" fill="#5a6472" font-size="11">'
            f"{name}</text>"
        )
    for index, name in enumerate(ORDER):
        y = TOP + CELL * index + CELL / 2
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end" font-weight="600">{name}</text>')
        for column, other in enumerate(ORDER[:index]):
            x = LEFT + CELL * column + CELL / 2
            used = other in imports[name]
            parts.append(
                f'<circle cx="{x}" cy="{y}" r="{5 if used else 1}" fill="{"#2b6cb0" if used else "#c5ccd6"}"/>'
            )
        words = escape(purpose(name))
        parts.append(f'<text x="{LEFT + CELL * len(ORDER) + 8}" y="{y + 4}" fill="#333">{words}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
