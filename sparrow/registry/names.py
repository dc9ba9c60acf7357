"""The nearest valid name, for errors."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, candidates: Iterable[str]) -> str:
    """Return the tail of an error message: the nearest valid name, and all of them.

    >>> nearest("adm", ["adam", "sgd"])
    "did you mean 'adam'? Valid names: adam, sgd"
    """
    valid = sorted(candidates)
    close = difflib.get_close_matches(name, valid, n=1)
    hint = f"did you mean '{close[0]}'? " if close else ""
    return f"{hint}Valid names: {', '.join(valid) or 'none'}"
