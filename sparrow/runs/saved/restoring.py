"""From a checkpoint to the state of a program, for any stacking, devices, backend and table dtype."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final

import jax
import numpy as np

from sparrow import checkpoint
from sparrow.data import ItemCounts
from sparrow.embedding import Embedder
from sparrow.runs.step.program import Program, TrainState

LogLine = Callable[[str], None]

ITEMS: Final = "item_counts"
"""The name of the counts of items in a checkpoint."""


def restored(program: Program, saved: checkpoint.Saved, log: LogLine) -> TrainState:
    """Return the saved state, or raise `CheckpointError` for a part that the program lacks or has in another shape."""
    embedder, arrays = program.embedder, saved.arrays()
    keys = checkpoint.rows_of(embedder, jax.eval_shape(embedder.init, jax.random.key(0)))
    ids = checkpoint.all_ids(embedder, arrays)
    checkpoint.check_tables({key: rows.shape for key, rows in keys.items()}, saved, ids)  # before anything is allocated
    for key, rows in keys.items():
        if key.slot is None and saved.tables[key].shape[0] != rows.num_rows:
            log(f"table '{key.table}' had {saved.tables[key].shape[0]} rows, and has {rows.num_rows} here")
    log_dtypes({key: str(rows.array.dtype) for key, rows in keys.items()}, saved, log)
    fresh = program.allocated()
    others = fresh.parts()
    metrics = _metrics(others.pop("metrics"), arrays, log)
    others = embedder.on_its_devices(checkpoint.unnamed(others, arrays) | {"metrics": metrics})
    return TrainState.joined(checkpoint.with_rows(embedder, fresh.optimizer.embedding, saved, ids), others)


def dynamic(program: Program) -> list[str]:
    """Return the tables whose ids a checkpoint holds; they may have another number of rows here."""
    return [name for name, table in program.embedder.tables.items() if table.dynamic is not None]


def with_item_counts(program: Program, saved: checkpoint.Saved) -> Program:
    """Return the program with the counts of items that a checkpoint holds; without any, evaluation corrects nothing."""
    data = program.config.data
    if data is None or program.assembly.item_id is None or not (found := extras_of(saved.arrays(), ITEMS)):
        return program
    counts = ItemCounts(data.train_events, program.assembly.item_id, data.bad_rows)
    counts.restore(found)
    return dataclasses.replace(program, item_counts=counts)


def log_dtypes(dtypes: Mapping[checkpoint.Key, str], saved: checkpoint.Saved, log: LogLine) -> None:
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
            made[name] = checkpoint.unnamed({"metrics": {name: state}}, arrays)["metrics"][name]
        except checkpoint.CheckpointError:
            log(f"the checkpoint has no metric '{name}' of training as it is here; it starts from zero")
            made[name] = state
    return made


def extras_of(arrays: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the arrays that the extra ``name`` saved."""
    prefix = f"extras/{name}/"
    return {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}


def arrays_of(embedder: Embedder, state: TrainState, extras: Mapping[str, Any]) -> dict[str, Any]:
    """Return all arrays of a checkpoint but the tables, on the host."""
    arrays = dict(checkpoint.named(state.parts()))
    arrays |= checkpoint.ids_arrays(embedder, state.optimizer.embedding)
    for name, extra in extras.items():
        # Copies, because the extra keeps counting while they are written.
        arrays |= {f"extras/{name}/{key}": np.array(array) for key, array in extra.state().items()}
    return arrays
