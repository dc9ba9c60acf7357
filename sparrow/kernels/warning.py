"""Warnings that are given once."""

from __future__ import annotations

import warnings

_warned: set[str] = set()


def warn_once(message: str) -> None:
    """Warn, the first time that this message is given."""
    if message not in _warned:
        _warned.add(message)
        warnings.warn(message, stacklevel=3)
