"""The ids of dynamic tables, for people: how many rows are used, and which ids are looked up most."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from sparrow.config import ConfigError
from sparrow.embedding import Held, Vocabularies
from sparrow.registry import nearest

UNKNOWN: Final = "unknown"
"""The name of the row that unknown ids share."""


@dataclasses.dataclass(frozen=True)
class TableIds:
    """The ids of one table.

    Attributes:
      table: its name.
      held: how many there are.
      most: ids that are looked up most, with their counts; empty where the run counts no lookups.
    """

    table: str
    held: Held
    most: list[tuple[str, int]]

    def lines(self) -> Iterator[str]:
        """Return the counts, and a line for each of the most frequent ids."""
        yield f"{self.table}: {sentence(self.held._asdict())}"
        width = max((len(name) for name, _ in self.most), default=0)
        yield from (f"  {name:>{width}}  {count:,} lookups" for name, count in self.most)


def sentence(held: dict[str, int]) -> str:
    """Return the counts in words, without zeros."""
    words = {
        "waiting": "waiting for a row",
        "admitted": "admitted",
        "evicted": "evicted",
        "expired": "came back after they had expired",
        "refused": "lookups found no free row",
        "forgotten": "forgotten while they waited",
    }
    others = [f"{held[name]:,} {text}" for name, text in words.items() if held[name]]
    return ", ".join([f"{held['used']:,} of {held['rows']:,} rows used", *others])


def names_of(vocabularies: Vocabularies, table: str, rows: Sequence[int]) -> list[str]:
    """Return the ids of rows, as signed integers; strings are known by their hash alone."""
    dynamic = vocabularies.tables[table].dynamic
    reserved = 0 if dynamic is None else dynamic.reserved
    ids = vocabularies.ids(table).view(np.int64)
    made = []
    for row in rows:
        at = row - reserved
        made.append(UNKNOWN if at < 0 else str(ids[at]) if at < len(ids) else "none")
    return made


def with_ids(summary: dict[str, Any], vocabularies: Vocabularies | None) -> dict[str, Any]:
    """Return the summary of `Traffic` with ids instead of the rows of dynamic tables, and their counts."""
    if vocabularies is not None:
        for name in vocabularies.tables:
            table = summary["tables"][name]
            rows = [row for row, _ in table["hottest"]]
            counts = [count for _, count in table["hottest"]]
            table["hottest"] = [list(pair) for pair in zip(names_of(vocabularies, name, rows), counts, strict=True)]
            table["ids"] = vocabularies.held(name)._asdict()
            table["ids_in_words"] = sentence(table["ids"])
    return summary


def table_ids(folder: str | Path, tables: Sequence[str] = (), most: int = 10) -> list[TableIds]:
    """Return the ids of the dynamic tables of a run's newest checkpoint; all tables, unless ``tables`` are named."""
    from sparrow.runs.saved.restoring import extras_of
    from sparrow.runs.saved.saving import all_damaged, config_of, opened

    for saved in opened(folder, log=lambda _: None):
        vocabularies, traffic = ids_of(config_of(saved))
        arrays = saved.arrays()
        if vocabularies is None:
            raise ConfigError(f"{folder}: no table of this run has a dynamic vocabulary")
        vocabularies.restore(extras_of(arrays, "ids"))
        traffic.restore(extras_of(arrays, "traffic"))
        for name in tables:
            if name not in vocabularies.tables:
                raise ConfigError(f"unknown table '{name}': {nearest(name, vocabularies.tables)}")
        summary = with_ids(traffic.summary(), vocabularies)["tables"]
        return [
            TableIds(name, vocabularies.held(name), [(key, count) for key, count in summary[name]["hottest"][:most]])
            for name in tables or vocabularies.tables
        ]
    raise all_damaged(folder)


def ids_of(config: Any) -> tuple[Vocabularies | None, Any]:
    """Empty vocabularies and traffic of a config's tables; None: no table is dynamic."""
    from sparrow.config import assemble
    from sparrow.embedding import Embedder
    from sparrow.runs.recorded.traffic import Traffic

    embedder = Embedder(assemble(config).specs)
    if all(table.dynamic is None for table in embedder.tables.values()):
        return None, None
    return embedder.vocabularies(), Traffic(embedder, 1)
