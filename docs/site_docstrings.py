"""Docstrings as the documentation site shows them: their marks of reStructuredText become Markdown's."""

from __future__ import annotations

import re
from typing import Any

import griffe


class Docstrings(griffe.Extension):
    """Rewrite each docstring; leave out methods whose docstring only points to the class."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of one object."""
        if obj.docstring is None:
            return
        text = re.sub(r"(?m)^[ \t]*::[ \t]*\n", "", obj.docstring.value)  # a line that only opens a block
        text = re.sub(r"(?m)(\S) ?::$", r"\1:", text)
        text = re.sub(r"`([^`<]+) <(https?://[^>]+)>`_", r"[\1](\2)", text)
        obj.docstring.value = _fenced(text)
        if text.strip() == "See the class.":
            obj.docstring = None


def _fenced(text: str) -> str:
    """Return the text with its doctests in fences."""
    made: list[str] = []
    indent: str | None = None
    for line in text.splitlines():
        if indent is None and line.lstrip().startswith(">>>"):
            indent = line[: len(line) - len(line.lstrip())]
            made += ["", f"{indent}```pycon"]
        elif indent is not None and not line.strip():
            made.append(f"{indent}```")
            indent = None
        made.append(line)
    return "\n".join(made if indent is None else [*made, f"{indent}```"])
