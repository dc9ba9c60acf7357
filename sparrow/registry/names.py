"""The nearest valid name, for errors."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from sparrow.registry.synonyms import UNNEEDED, meant


def nearest(name: str, candidates: Iterable[str]) -> str:
    """Return the tail of an error message: the name that is meant, or the nearest one, and all valid names.

    >>> nearest("adm", ["adam", "sgd"])
    "did you mean 'adam'? Valid names: adam, sgd"
    >>> nearest("b1", ["beta1", "eps"])
    "did you mean 'beta1'? Valid names: beta1, eps"
    """
    valid = sorted(candidates)
    known = f"Valid names: {', '.join(valid) or 'none'}"
    close = meant(name, valid)
    if close is None and name in UNNEEDED:
        return f"{UNNEEDED[name]}. {known}"
    close = close or next(iter(difflib.get_close_matches(name, valid, n=1)), None)
    return known if close is None else f"did you mean '{close}'? {known}"
