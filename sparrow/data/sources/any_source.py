"""`source_of`: a source from anything that holds rows: files, frames, Arrow tables, columns by name."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any, Final

from sparrow.data.sources.base import Source, registry
from sparrow.data.sources.memory import Tables
from sparrow.data.sources.parquet import Parquet
from sparrow.data.sources.text import Csv

TEXT: Final = (".csv", ".tsv", ".txt", ".dat", ".data")
PACKED: Final = (".gz", ".bz2", ".zst")


def source_of(given: Any, like: Source | None = None) -> Source:
    """Return a source of rows.

    >>> source_of({"item": [1, 2]}).column_names()
    ['item']
    >>> source_of("logs/*.tsv.gz")
    Csv(path='logs/*.tsv.gz', columns=None, separator='\\t', ...)

    Args:
      given: a source, which is returned unchanged; its mapping in a config (``{"name": "csv", "path": ...}``); the path
        of Parquet files, or of text files, known by their ending; anything with ``__arrow_c_stream__``, such as an
        Arrow table or a frame of pandas or Polars; or columns by name.
      like: the source that a model was trained on. Text files are read with its options, where it reads such files.
    """
    if isinstance(given, Source):
        return given
    if isinstance(given, str | os.PathLike):
        return _of_path(os.fspath(given), like)
    if isinstance(given, Mapping) and isinstance(given.get("name"), str):
        return registry.read(given)
    return Tables(given)


def _of_path(path: str, like: Source | None) -> Source:
    stem, ending = os.path.splitext(path.lower())
    if ending in PACKED:
        ending = os.path.splitext(stem)[1]
    own = _innermost(like)
    if ending not in TEXT:
        source: Source = Parquet(path)
    elif isinstance(own, Csv):
        source = dataclasses.replace(own, path=path)
    else:
        source = Csv(path, separator="\t" if ending == ".tsv" else ",")
    return _around(like, source) if own is not None and type(own) is type(source) else source


def _innermost(source: Source | None) -> Source | None:
    """Return the source that reads files, inside of one that changes columns."""
    while isinstance(inner := getattr(source, "source", None), Source):
        source = inner
    return source


def _around(source: Source | None, inner: Source) -> Source:
    """Return ``source`` with another innermost source."""
    below = getattr(source, "source", None)
    if not isinstance(below, Source):
        return inner
    made: Any = dataclasses.replace(source, source=_around(below, inner))  # type: ignore[type-var]
    return made  # type: ignore[no-any-return]
