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
        text = markdown(obj.docstring.value)
        obj.docstring.value = text
        if text.strip() == "See the class.":
            obj.docstring = None


def markdown(text: str) -> str:
    """Return a docstring in Markdown: doctests and tables in fences."""
    text = re.sub(r"(?m)^[ \t]*::[ \t]*\n", "", text)  # a line that only opens a block
    text = re.sub(r"(?m)(\S) ?::$", r"\1:", text)
    text = re.sub(r"`([^`<]+) <(https?://[^>]+)>`_", r"[\1](\2)", text)
    made: list[str] = []
    indent: str | None = None
    for line in text.splitlines():
        kind = "pycon" if line.lstrip().startswith(">>>") else "text" if re.match(r"\s*==+ +==", line) else None
        if indent is None and kind is not None:
            indent = line[: len(line) - len(line.lstrip())]
            made += ["", f"{indent}```{kind}"]
        elif indent is not None and not line.strip():
            made.append(f"{indent}```")
            indent = None
        made.append(line)
    return "\n".join(made if indent is None else [*made, f"{indent}```"])
