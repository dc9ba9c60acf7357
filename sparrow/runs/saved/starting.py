"""Starting from the weights of another run: fine-tuning, another head, yesterday's model on today's data.

Where a vocabulary has other words than before, or ids more numbers, known ones take their rows along and new ones
start fresh.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from sparrow import checkpoint
from sparrow.config import WIDE, Config, ConfigError, Problem, StartFrom
from sparrow.data import Feature
from sparrow.embedding import SavedIds
from sparrow.registry import nearest
from sparrow.runs.saved.loading import all_damaged, config_of, opened, run_of
from sparrow.runs.saved.restoring import LogLine, dynamic, log_dtypes
from sparrow.runs.saved.vocabularies import FOLDER, Vocabularies
from sparrow.runs.step.program import Program, TrainState
from sparrow.trees import named_leaves

PARAMS, REST, DENSE = "optimizer/params/", "rest/", "optimizer/"


def started(program: Program, start: StartFrom, log: LogLine) -> TrainState:
    """Return a fresh state with tables and dense parameters of a checkpoint, by ``train.start_from``."""
    for saved in opened(start.folder, start.step, log):
        try:
            return _Start(program, start, saved).state(log)
        except checkpoint.Vanished:
            continue
        except checkpoint.Damaged as error:
            if start.step is not None:
                raise
            log(checkpoint.passed_over(saved.step, error))
    raise all_damaged(start.folder)


class _Start:
    """The sources of tables and parameters. All mismatches are raised as one `ConfigError`."""

    def __init__(self, program: Program, start: StartFrom, saved: checkpoint.Saved) -> None:
        self.program, self.start, self.saved = program, start, saved
        self.problems: list[Problem] = []
        self.fresh = program.allocated()
        self.rows = checkpoint.rows_of(program.embedder, self.fresh.optimizer.embedding)
        self.leaves = named_leaves(self.fresh.parts())
        self.arrays = saved.arrays()
        self.ids: dict[str, SavedIds] = {}
        self.moved: dict[str, npt.NDArray[np.int64]] = {}
        self.params = [name.removeprefix(PARAMS) for name in self.leaves if name.startswith(PARAMS)]

    def state(self, log: LogLine) -> TrainState:
        tables, leaves = dict(self._tables()), dict(self._leaves())
        self._check_patterns()
        if self.problems:
            raise ConfigError(self.problems)
        here = {tables[key]: str(self.rows[key].array.dtype) for key in tables}
        log_dtypes(here, self.saved, log)
        taken = {name: self.arrays[old] for name, old in leaves.items()}
        others = checkpoint.unnamed(
            self.fresh.parts(), {name: checkpoint.plain(leaf) for name, leaf in self.leaves.items()} | taken
        )
        embedder, embedding = self.program.embedder, self.fresh.optimizer.embedding
        others = embedder.on_its_devices(others)
        sources: dict[str, Any] = {**self.moved}
        new = {name: {"": embedder.table(embedding, name), **embedder.slots(embedding, name)} for name in self.moved}
        if self.ids:
            embedding, of_ids = embedder.with_ids(embedding, self.ids)
            sources |= of_ids

        def read(key: checkpoint.Key) -> checkpoint.MovedRows:
            fresh = new[key.table][key.slot or ""] if key.table in new else None
            return checkpoint.MovedRows(
                self.saved.rows(tables[key]), self.rows[key].num_rows, sources.get(key.table), fresh
            )

        embedding = checkpoint.placed(embedder, embedding, list(tables), read)
        for name, source in self.moved.items():
            log(f"table '{name}': {(source >= 0).sum():,} rows are of known ids, {(source < 0).sum():,} start fresh")
        parameters = sum(name.startswith(PARAMS) for name in leaves)
        counts = f"{sum(key.slot is None for key in tables)} tables and {parameters} parameters"
        beside = " with their optimizer" if self.start.optimizer else ""
        log(f"starting from {self.saved.path}: {counts}{beside}; left fresh: {self._left(tables, leaves)}")
        return TrainState.joined(embedding, others)

    def _tables(self) -> Iterator[tuple[checkpoint.Key, checkpoint.Key]]:
        """Yield the keys of rows here and in the checkpoint."""
        names = [key.table for key in self.saved.tables if key.slot is None]
        for key, rows in self.rows.items():
            if self._skips(key.table) or (key.slot is not None and not self.start.optimizer):
                continue
            old = checkpoint.Key(self.start.tables.get(key.table, key.table), key.slot)
            if old not in self.saved.tables:
                near = nearest(old.table, names) if old.slot is None else "the rule is another one"
                self._problem("tables", f"the checkpoint has no {old} for {key}: {near}; map it, or add it to skip")
            elif why := self._other_ids(key.table, old.table):
                if key.slot is None:
                    self._problem("tables", f"{why}; add it to skip")
            elif self._is_moved(key, old, rows.shape):
                yield key, old
            elif not self._fits(key, old, rows.shape):
                shape = self.saved.tables[old].shape
                self._problem("tables", f"{old} has the shape {shape} in the checkpoint, {rows.shape} here; skip it")
            elif key.slot is None and self._other_words(key.table, old.table):
                text = f"{old} was trained with another vocabulary than {key} has here"
                self._problem("tables", f"{text}; name the one in {run_of(self.saved) / FOLDER}, or add it to skip")
            else:
                yield key, old

    def _fits(self, key: checkpoint.Key, old: checkpoint.Key, shape: tuple[int, ...]) -> bool:
        """Whether the rows have the same shape; a dynamic table may have another number of them here."""
        held = self.saved.tables[old].shape
        return held == ((held[0], *shape[1:]) if key.table in dynamic(self.program) else shape)

    def _is_moved(self, key: checkpoint.Key, old: checkpoint.Key, shape: tuple[int, ...]) -> bool:
        """Return whether ids have other rows here, and known ones take theirs along; ``moved`` then has them."""
        held = self.saved.tables[old].shape
        if key.table in dynamic(self.program) or held[1:] != shape[1:]:
            return False
        if key.slot is None and (held != shape or self._other_words(_plain(key.table), _plain(old.table))):
            found = self._old_rows(key.table, old.table, shape[0])
            if found is not None and (found >= 0).any() and found.max() < held[0]:
                self.moved[key.table] = found
        return key.table in self.moved

    def _old_rows(self, table: str, old: str, rows: int) -> npt.NDArray[np.int64] | None:
        """Return the old row of each row, -1 for new ones; None: the features of the tables are not alike."""
        made = np.full(rows, -1, np.int64)
        before = {feature.name: feature for feature in _of_table(self.old_config, _plain(old))}
        for feature in _of_table(self.program.config, _plain(table)):
            alike = before.get(feature.name) or next(iter(before.values()), None)
            found = None if alike is None else feature.rows_from(alike)
            if found is None:
                return None
            part = made[: len(found)]
            if ((part >= 0) & (found >= 0) & (part != found)).any():
                return None
            part[:] = np.where(part >= 0, part, found)
        return made

    @cached_property
    def old_config(self) -> Config:
        return config_of(self.saved)

    def _other_ids(self, table: str, old: str) -> str | None:
        """Return the reason why a dynamic table cannot take the ids of the old one; None: it can."""
        was = f"ids/{old}/ids" in self.arrays
        if table not in dynamic(self.program):
            return f"table '{old}' of the checkpoint has a dynamic vocabulary, '{table}' has none" if was else None
        try:
            self.ids[table] = checkpoint.ids_of(self.arrays, old).unused()
            self.program.embedder.with_ids(self.fresh.optimizer.embedding, {table: self.ids[table]})
        except ValueError as error:
            return str(error)
        return None

    def _other_words(self, table: str, old: str) -> bool:
        """Return whether the ids of a table have other rows here than in the checkpoint."""
        here, there = Vocabularies.of(self.program.config).of_table(table), Vocabularies.saved(self.saved).of_table(old)
        return bool(here and there) and here != there

    def _leaves(self) -> Iterator[tuple[str, str]]:
        """Yield the names of other arrays here and in the checkpoint."""
        for name, leaf in self.leaves.items():
            path = next((path for path in self.params if name.endswith(f"/{path}")), None)
            if name.startswith(REST) and jnp.issubdtype(leaf.dtype, jnp.floating):  # statistics; keys stay fresh
                path = name.removeprefix(REST)
            elif not name.startswith(PARAMS) and not (
                self.start.optimizer and name.startswith((DENSE, "embedding/step"))
            ):
                continue
            if path is not None and self._skips(path):
                continue
            old = name if path is None else name.removesuffix(path) + self._old_path(path)
            if old not in self.arrays:
                prefix = name.removesuffix(path or "")
                names = [other.removeprefix(prefix) for other in self.arrays if other.startswith(prefix)]
                near = nearest(old.removeprefix(prefix), names)
                self._problem("params", f"the checkpoint has no '{old}': {near}; map it, or add it to skip")
            elif self.arrays[old].shape != leaf.shape:
                shape = self.arrays[old].shape
                self._problem("params", f"'{old}' has the shape {shape} in the checkpoint, {leaf.shape} here; skip it")
            else:
                yield name, old

    def _old_path(self, path: str) -> str:
        for pattern, replacement in self.start.params.items():
            if match := re.fullmatch(pattern, path):
                try:
                    return match.expand(replacement)
                except (re.error, IndexError) as error:
                    self._problem("params", f"'{replacement}' cannot stand for '{pattern}': {error}")
        return path

    def _skips(self, name: str) -> bool:
        return any(re.fullmatch(pattern, name) for pattern in self.start.skip)

    def _check_patterns(self) -> None:
        """Refuse names and patterns that match nothing."""
        tables = list(self.program.embedder.tables)
        for name in self.start.tables:
            if name not in tables:
                self._problem("tables", f"the model has no table '{name}': {nearest(name, tables)}")
        self._check_match("params", self.start.params, self.params)
        self._check_match("skip", self.start.skip, [*tables, *self.params])

    def _check_match(self, field: str, patterns: Iterable[str], names: list[str]) -> None:
        for pattern in patterns:
            if not any(re.fullmatch(pattern, name) for name in names):
                self._problem(field, f"'{pattern}' matches nothing; there are {', '.join(names)}")

    def _problem(self, field: str, text: str) -> None:
        self.problems.append(Problem(("train", "start_from", field), text))

    def _left(self, tables: Mapping[checkpoint.Key, checkpoint.Key], leaves: Mapping[str, str]) -> str:
        fresh = [f"table '{key.table}'" for key in self.rows if key.slot is None and key not in tables]
        fresh += [path for path in self.params if PARAMS + path not in leaves]
        return ", ".join([*fresh, *([] if self.start.optimizer else ["the optimizer"])]) or "nothing"


def _plain(table: str) -> str:
    """Return the table that the features name: the wide one of a feature has the same rows."""
    return table.removesuffix(WIDE)


def _of_table(config: Config, table: str) -> list[Feature]:
    uses = ((feature, feature.table_use) for feature in (config.data.features if config.data is not None else ()))
    return [feature for feature, use in uses if use is not None and use.table == table]
