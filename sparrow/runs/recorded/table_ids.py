"""The ids of dynamic tables, for people: how many rows are used, and which ids are looked up most."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sparrow.config import ConfigError
from sparrow.embedding import Held, SavedIds
from sparrow.registry import nearest


@dataclasses.dataclass(frozen=True)
class TableIds:
    """The ids of one table.

    Attributes:
      table: its name.
      held: how many there are.
      most: ids that are looked up most, with their counts; empty unless evict, as "lfu", counts them.
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


def with_ids(summary: dict[str, Any], held: Mapping[str, Held]) -> dict[str, Any]:
    """Return the summary of `Traffic` with the counts of dynamic tables."""
    counts = {name: {"ids": own._asdict(), "ids_in_words": sentence(own._asdict())} for name, own in held.items()}
    return {**summary, "vocabularies": counts} if counts else summary


def table_ids(folder: str | Path, tables: Sequence[str] = (), most: int = 10) -> list[TableIds]:
    """Return the ids of the dynamic tables of a run's newest checkpoint; all tables, unless ``tables`` are named."""
    from sparrow.config import assemble
    from sparrow.runs.saved.loading import all_damaged, config_of, opened
    from sparrow.runs.saved.restoring import ids_of

    for saved in opened(folder, log=lambda _: None):
        specs = {spec.table_spec.name: spec.table_spec for spec in assemble(config_of(saved)).specs}
        dynamic = {name: spec for name, spec in specs.items() if spec.dynamic is not None}
        if not dynamic:
            raise ConfigError(f"{folder}: no table of this run has a dynamic vocabulary")
        for name in tables:
            if name not in dynamic:
                raise ConfigError(f"unknown table '{name}': {nearest(name, dynamic)}")
        arrays = saved.arrays()
        held = {name: ids_of(arrays, name) for name in tables or dynamic}
        return [TableIds(name, own.held(dynamic[name]), _most(own, most)) for name, own in held.items()]
    raise all_damaged(folder)


def _most(held: SavedIds, most: int) -> list[tuple[str, int]]:
    """Return the ids that are looked up most, as signed integers; strings are known by their hash alone."""
    rows = np.argsort(-held.counts.astype(np.int64), kind="stable")[:most]
    rows = rows[(held.counts[rows] > 0) & (held.last[rows] >= 0)]
    ids = np.ascontiguousarray(held.ids[rows]).view(np.int64).reshape(-1)
    return [(str(id_), int(count)) for id_, count in zip(ids.tolist(), held.counts[rows].tolist(), strict=True)]
