"""`source_of` and `opened`: a source from anything that holds rows: files, frames, Arrow tables, columns by name."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from sparrow.data.sources.base import Source, registry
from sparrow.data.sources.files import PACKED
from sparrow.data.sources.held_out import HeldOut
from sparrow.data.sources.memory import Tables
from sparrow.data.sources.parquet import Parquet
from sparrow.data.sources.text import Csv

TEXT: Final = (".csv", ".tsv", ".txt", ".dat", ".data")
SEPARATORS: Final = (";", "\t", "|")
"""Separators that a header of one column is looked through for."""


def source_of(given: Any, *like: Source | None) -> Source:
    """Return a source of rows.

    >>> source_of({"item": [1, 2]}).column_names()
    ['item']
    >>> source_of("logs/*.tsv.gz")
    Csv(path='logs/*.tsv.gz', columns=None, separator='\\t', ...)

    Args:
      given: a source, which is returned unchanged; its mapping in a config (``{"name": "csv", "path": ...}``); the path
        of Parquet files, or of text files, known by their ending; anything with ``__arrow_c_stream__``, such as an
        Arrow table or a frame of pandas or Polars; or columns by name.
      like: sources that a model was trained or evaluated on. Files are read with the options of the first that reads
        such files; all their rows, also where that source holds some out.
    """
    if isinstance(given, Source):
        return given
    if isinstance(given, str | os.PathLike):
        return _of_path(os.fspath(given), [source for source in like if source is not None])
    if isinstance(given, Mapping) and isinstance(given.get("name"), str):
        return registry.read(given)
    return Tables(given)


def opened(given: Any) -> Source:
    """Return `source_of`; a text file whose header is one column gets the separator that it holds."""
    source = source_of(given)
    if not isinstance(given, str | os.PathLike) or not isinstance(source, Csv):
        return source
    names = source.column_names()
    found = [separator for separator in SEPARATORS if len(names) == 1 and separator in names[0]]
    return dataclasses.replace(source, separator=found[0]) if found else source


def _of_path(path: str, like: Sequence[Source]) -> Source:
    ending = _ending(path)
    files = [(source, inner) for source in like if hasattr(inner := _innermost(source), "path")]
    by_ending = [pair for pair in files if _ending(_first_path(pair[1])) == ending]
    by_kind = [pair for pair in files if isinstance(pair[1], Csv if ending in TEXT else Parquet)]
    for source, inner in (by_ending or by_kind)[:1]:
        return _around(source, dataclasses.replace(cast("Any", inner), path=path))
    if ending in TEXT:
        return Csv(path, separator="\t" if ending == ".tsv" else ",")
    return Parquet(path)


def _ending(path: str) -> str:
    """Return the ending of a path, without that of a packed file."""
    stem, ending = os.path.splitext(path.lower())
    return os.path.splitext(stem)[1] if ending in PACKED else ending


def _first_path(source: Any) -> str:
    return str(source.path if isinstance(source.path, str) else next(iter(source.path), ""))


def _innermost(source: Source) -> Source:
    """Return the source that reads files, inside of one that changes columns or leaves rows out."""
    while isinstance(inner := getattr(source, "source", None) or getattr(source, "files", None), Source):
        source = inner
    return source


def _around(source: Source, inner: Source) -> Source:
    """Return ``source`` with another innermost source, and with all its rows."""
    below = getattr(source, "source", None)
    if not isinstance(below, Source) or hasattr(source, "files"):  # the latter follows files, and these are given
        return inner
    changed = _around(below, inner)
    if isinstance(source, HeldOut):
        return changed
    made: Source = dataclasses.replace(cast("Any", source), source=changed)
    return made
