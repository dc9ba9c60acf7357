"""From a checkpoint to the state of a program, for any stacking, devices, backend and table dtype."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any, Final

import jax
import numpy as np

from sparrow.checkpoint import CheckpointError, Key, Saved, check_shape, named, placed, rows_of, unnamed
from sparrow.data import ItemCounts
from sparrow.embedding import Embedder, SavedIds
from sparrow.runs.step.program import Program, TrainState

LogLine = Callable[[str], None]

ITEMS: Final = "item_counts"
"""The name of the counts of items in a checkpoint."""


def restored(program: Program, saved: Saved, log: LogLine) -> TrainState:
    """Return the saved state, or raise `CheckpointError` for a part that the program lacks or has in another shape."""
    embedder, arrays = program.embedder, saved.arrays()
    keys = rows_of(embedder, jax.eval_shape(embedder.init, jax.random.key(0)))
    try:
        ids = {name: ids_of(arrays, name) for name in dynamic(program)}
    except ValueError as error:
        raise CheckpointError(str(error)) from None
    check_tables({key: rows.shape for key, rows in keys.items()}, saved, ids)  # before anything is allocated
    for key, rows in keys.items():
        if key.slot is None and saved.tables[key].shape[0] != rows.num_rows:
            log(f"table '{key.table}' had {saved.tables[key].shape[0]} rows, and has {rows.num_rows} here")
    log_dtypes({key: str(rows.array.dtype) for key, rows in keys.items()}, saved, log)
    fresh = program.allocated()
    others = fresh.parts()
    metrics = _metrics(others.pop("metrics"), arrays, log)
    others = embedder.on_its_devices(unnamed(others, arrays) | {"metrics": metrics})
    try:
        embedding, sources = embedder.with_ids(fresh.optimizer.embedding, ids)
    except ValueError as error:
        raise CheckpointError(str(error)) from None

    def read(key: Key) -> Iterable[tuple[int, Any]]:
        return MovedRows(saved.rows(key), keys[key].num_rows, sources.get(key.table))

    return TrainState.joined(placed(embedder, embedding, list(keys), read), others)


def dynamic(program: Program) -> list[str]:
    """Return the tables whose ids a checkpoint holds; they may have another number of rows here."""
    return [name for name, table in program.embedder.tables.items() if table.dynamic is not None]


def ids_of(arrays: Mapping[str, Any], table: str) -> SavedIds:
    """Return the ids of a table in a checkpoint."""
    prefix = f"ids/{table}/"
    held = {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}
    if "spare" not in held and any(key.endswith(f"/{table}/numbers") for key in arrays):
        raise ValueError(
            f"the ids of table '{table}' were saved in the format of version 0.1, which is not read; go on with that "
            "version, or begin anew"
        )
    return SavedIds.of(held, table)


class MovedRows:
    """The rows of a table or slot in a checkpoint, as a run with other rows has them.

    All of them in blocks, by iteration; or a process's part of them, as `sparrow.checkpoint.SavedRows` gives it.
    """

    def __init__(self, saved: Any, rows: int, source: Any = None, fresh: Any = None) -> None:
        """Take the saved rows up to ``rows``.

        ``source``: the old row of each row, for rows in another order; ``fresh``: the rows here, for those without an
        old one; None: zeros.
        """
        self._saved, self._rows, self._source, self._fresh = saved, rows, source, fresh

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        if self._source is not None:
            yield 0, self._in_order
            return
        for first, block in self._saved:
            if first < self._rows:
                yield first, block[: self._rows - first]

    def between(self, first: int, last: int) -> Any:
        return self._saved.between(first, last) if self._source is None else self._in_order[first:last]

    def check(self) -> None:
        """Compare checksums; rows in another order were read completely, and compared then."""
        if self._source is None:
            self._saved.check()

    @functools.cached_property
    def _in_order(self) -> Any:
        held = np.concatenate([block for _, block in self._saved])
        made = np.zeros((self._rows, *held.shape[1:]), held.dtype) if self._fresh is None else np.array(self._fresh)
        made[self._source >= 0] = held[self._source[self._source >= 0]]
        return made


def with_item_counts(program: Program, saved: Saved) -> Program:
    """Return the program with the counts of items that a checkpoint holds; without any, evaluation corrects nothing."""
    data = program.config.data
    if data is None or program.assembly.item_id is None or not (found := extras_of(saved.arrays(), ITEMS)):
        return program
    counts = ItemCounts(data.train_events, program.assembly.item_id, data.bad_rows)
    counts.restore(found)
    return dataclasses.replace(program, item_counts=counts)


def check_tables(shapes: Mapping[Key, tuple[int, ...]], saved: Saved, growing: Container[str] = ()) -> None:
    """Refuse tables and slots that the checkpoint lacks or has in another shape.

    Tables of ``growing`` may have another number of rows.
    """
    for key, shape in shapes.items():
        if key not in saved.tables:
            slots = [str(other.slot) for other in saved.tables if other.table == key.table and other.slot]
            has = "" if Key(key.table) not in saved.tables else f", it has {', '.join(slots) or 'none'}"
            raise CheckpointError(f"the checkpoint has no {key}{has}")
        held = saved.tables[key].shape
        if key.table in growing:
            shape = (held[0], *shape[1:])
        check_shape(key, held, shape)


def log_dtypes(dtypes: Mapping[Key, str], saved: Saved, log: LogLine) -> None:
    """Log the tables that are converted to another dtype, in one line."""
    changed: dict[tuple[str, str], list[str]] = {}
    for key, dtype in dtypes.items():
        if key.slot is None and saved.tables[key].dtype != dtype:
            changed.setdefault((saved.tables[key].dtype, dtype), []).append(key.table)
    for (before, now), tables in changed.items():
        log(f"tables saved as {before} are {now} here, and were converted: {', '.join(tables)}")


def _metrics(fresh: Any, arrays: Mapping[str, Any], log: LogLine) -> Any:
    """Return the saved metrics of training; new ones start from zero."""
    made = {}
    for name, state in fresh.items():
        try:
            made[name] = unnamed({"metrics": {name: state}}, arrays)["metrics"][name]
        except CheckpointError:
            log(f"the checkpoint has no metric '{name}' of training as it is here; it starts from zero")
            made[name] = state
    return made


def extras_of(arrays: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the arrays that the extra ``name`` saved."""
    prefix = f"extras/{name}/"
    return {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}


def arrays_of(embedder: Embedder, state: TrainState, extras: Mapping[str, Any]) -> dict[str, Any]:
    """Return all arrays of a checkpoint but the tables, on the host."""
    arrays = dict(named(state.parts()))
    for table, ids in embedder.saved_ids(state.optimizer.embedding).items():
        arrays |= {f"ids/{table}/{key}": array for key, array in ids.arrays().items()}
    for name, extra in extras.items():
        # Copies, because the extra keeps counting while they are written.
        arrays |= {f"extras/{name}/{key}": np.array(array) for key, array in extra.state().items()}
    return arrays
