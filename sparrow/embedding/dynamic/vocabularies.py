"""`Vocabularies`: the ids of all dynamic tables, from raw inputs to rows."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sparrow import fields
from sparrow.embedding.dynamic.id_map import IdMap, Ids, Rows, Settings, TooFewRows, id_map
from sparrow.embedding.dynamic.new_rows import NewRows
from sparrow.embedding.dynamic.saved import fitted, saved_arrays, unused
from sparrow.embedding.dynamic.strings import hash_strings
from sparrow.embedding.inputs import read_input
from sparrow.embedding.ragged import Ragged
from sparrow.embedding.specs import FeatureSpec, TableSpec
from sparrow.embedding.stacking import stable_hash


class Held(NamedTuple):
    """Counts of a table's vocabulary.

    Attributes:
      rows: rows that ids may have.
      used: rows that ids have.
      waiting: ids that are counted, and have no row yet.
      admitted, evicted, expired, refused, forgotten: since the beginning: ids that got a row, lost it to another one,
        came back too late, found no row, and were forgotten while they waited.
    """

    rows: int
    used: int
    waiting: int
    admitted: int
    evicted: int
    expired: int
    refused: int
    forgotten: int


class _Read(NamedTuple):
    """One feature's input: its ids without the missing ones, and where they stand."""

    ids: Ids
    missing: npt.NDArray[np.bool_] | None
    offsets: Any
    weights: Any
    shape: tuple[int, ...] | None  # of an array; None: ragged

    def with_rows(self, rows: Rows) -> Any:
        """Return the input with rows instead of ids, -1 where there is none."""
        if self.missing is not None:
            full = np.full(len(self.missing), -1, np.int32)
            full[~self.missing] = rows
            rows = full
        return rows.reshape(self.shape) if self.shape is not None else Ragged(rows, self.offsets, self.weights)


class Vocabularies:
    """Which id has which row, for every dynamic table: host state that belongs to the caller, as `Sizes` does.

    Give the same object to every `Embedder.pack` of one loop. Packing may run ahead of the steps: `at` goes back to the
    ids as of any step that was not forgotten, for a checkpoint, an evaluation or an export.

    >>> import sparrow as sp
    >>> users = sp.TableSpec(name="users", vocabulary_size=100, embedding_dim=4, optimizer=sp.rules.SGD(0.5),
    ...                      dynamic=sp.Dynamic())
    >>> emb = sp.Embedder([sp.FeatureSpec(name="user", table_spec=users)])
    >>> words = emb.vocabularies()
    >>> batch = emb.pack({"user": [2**40, -7, 2**40]}, vocabularies=words)
    >>> words.held("users").used
    2

    Attributes:
      step: the optimizer step that the next batch belongs to.
    """

    def __init__(self, features: Sequence[FeatureSpec], *, accumulate: int = 1) -> None:
        """Begin without ids. ``accumulate``: batches of one optimizer step; rows that one of them uses stay."""
        fields.integer("accumulate", accumulate)
        self._features = {f.name: f for f in features if f.table_spec.dynamic is not None}
        self.tables: dict[str, TableSpec] = {f.table_spec.name: f.table_spec for f in self._features.values()}
        self._accumulate = accumulate
        self._lock = threading.Lock()
        self._is_back = False
        self.reset()

    def reset(self) -> None:
        """Forget every id."""
        self.step, self._batches = 0, 0  # batches of this step so far
        self._maps: dict[str, IdMap] = {name: _empty(table) for name, table in self.tables.items()}

    def assign(self, inputs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, NewRows]]:
        """Return rows instead of the ids of a training batch, and the fresh rows, by table. Batches come in order.

        Raise `ValueError` where one step needs more rows than a table has; then nothing has changed.
        """
        read = self._read(inputs)
        made, new, done = dict(inputs), {}, list[IdMap]()
        with self._lock:
            for name, table in self.tables.items():
                members = [feature for feature, spec in self._features.items() if spec.table_spec.name == name]
                ids = _join([read[feature].ids for feature in members])
                try:
                    assigned = self._maps[name].train(ids, self.step)
                except TooFewRows:
                    for other in done:
                        other.undo_last()
                    rows = self._maps[name].settings.capacity
                    raise ValueError(
                        f"table '{name}': one step needs more rows for its ids than the {rows} that there are; "
                        "make vocabulary_size (dynamic.rows in a config) larger, or the batch smaller"
                    ) from None
                done.append(self._maps[name])
                made |= _parted(members, read, _numbered(table, assigned.rows))
                if len(assigned.new_rows):
                    reserved = _reserved(table)
                    new[name] = NewRows.of(table, assigned.new_rows + np.int32(reserved), assigned.new_ids)
            self._batches += 1
            if self._batches == self._accumulate:
                self.step, self._batches = self.step + 1, 0
        return made, new

    def undo_last(self) -> None:
        """Take back the last `assign`: its batch is not used."""
        with self._lock:
            for held in self._maps.values():
                held.undo_last()
            self._batches -= 1
            if self._batches < 0:
                self.step, self._batches = self.step - 1, self._accumulate - 1

    def find(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return rows instead of ids, as of now or of the step of `at`. Change nothing."""
        read, made = self._read(inputs), dict(inputs)
        with self._still():
            for name, table in self.tables.items():
                members = [feature for feature, spec in self._features.items() if spec.table_spec.name == name]
                rows = self._maps[name].find(_join([read[feature].ids for feature in members]), self._now)
                made |= _parted(members, read, _numbered(table, rows))
        return made

    @contextlib.contextmanager
    def at(self, step: int) -> Iterator[None]:
        """Go back to the ids as of ``step`` optimizer steps, and forward again; `assign` waits meanwhile."""
        with self._lock:
            for held in self._maps.values():
                held.back(step)
            self._is_back, self._now_at = True, step
            try:
                yield
            finally:
                self._is_back = False
                for held in self._maps.values():
                    held.forward()

    def return_to(self, step: int) -> None:
        """Go back to the ids as of ``step`` optimizer steps, and stay there: later batches are not used."""
        with self._lock:
            for held in self._maps.values():
                held.back(step)
                held.drop()
            self.step, self._batches = step, 0

    def forget(self, step: int) -> None:
        """Free the memory for going back before ``step``."""
        with self._still():
            for held in self._maps.values():
                held.forget(step)

    def held(self, table: str) -> Held:
        """Return the counts of a table's ids."""
        made = self._maps[table]
        with self._still():
            numbers = made.numbers
        return Held(made.settings.capacity, numbers["next"], *(numbers[name] for name in Held._fields[2:]))

    def live(self, table: str) -> tuple[Ids, Rows]:
        """Return the ids that a lookup finds, as of now or the step of `at`, and their rows in the table."""
        with self._still():
            state = self._maps[table].state()
        rows = np.arange(len(state["ids"]), dtype=np.int32)
        expire = self._maps[table].settings.expire
        if expire:
            rows = rows[self._now - state["last"].astype(np.int64) <= expire]
        return state["ids"][rows], rows + np.int32(_reserved(self.tables[table]))

    def ids(self, table: str) -> Ids:
        """Return the ids of a table by row, after the rows that are reserved (``TableSpec.dynamic.reserved``)."""
        with self._still():
            return self._maps[table].state()["ids"]

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays by name, for a checkpoint: within `at`, as of that step."""
        arrays: dict[str, npt.NDArray[Any]] = {"step": np.array([self._now], np.int64)}
        for name, held in self._maps.items():
            arrays |= {f"{name}/{key}": array for key, array in held.state().items()}
            table = self.tables[name]
            arrays[f"{name}/rows"] = np.array([table.vocabulary_size, _reserved(table)], np.int64)
        return arrays

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> list[str]:
        """Continue from the arrays of `state`. Return a sentence for each table that has grown; refuse smaller ones."""
        notes, restored = [], dict[str, IdMap]()
        for name, table in self.tables.items():
            held, before = saved_arrays(arrays, name, table)
            if before < table.vocabulary_size:
                notes.append(f"table '{name}' grows from {before} to {table.vocabulary_size} rows")
            restored[name] = _empty(table)
            restored[name].restore(fitted(held, restored[name].settings, name))
        self._maps |= restored
        self.step, self._batches = int(arrays["step"][0]), 0
        return notes

    def start_from(self, name: str, arrays: Mapping[str, npt.NDArray[Any]], old: str) -> None:
        """Take the ids of the table ``old`` in the `state` of another run: as if none was used in this one."""
        held, _ = saved_arrays(arrays, old, self.tables[name])
        made = _empty(self.tables[name])
        made.restore(fitted(unused(held), made.settings, old))
        self._maps[name] = made

    def _still(self) -> contextlib.AbstractContextManager[object]:
        """Keep `assign` waiting; within `at` it waits already."""
        return contextlib.nullcontext() if self._is_back else self._lock

    @property
    def _now(self) -> int:
        return self._now_at if self._is_back else self.step

    def _read(self, inputs: Mapping[str, Any]) -> dict[str, _Read]:
        for name in self._features:
            if name not in inputs:
                raise ValueError(f"the batch lacks the feature {name}")
        return {name: _ids_of(name, inputs[name]) for name in self._features}


def replaced(name: str, given: Any, find: Callable[[Ids], Rows]) -> Any:
    """Return the input of a feature with rows instead of its raw ids; -1 where an id is missing."""
    read = _ids_of(name, given)
    return read.with_rows(find(read.ids))


def _empty(table: TableSpec) -> IdMap:
    assert table.dynamic is not None
    return id_map(Settings.of(table.dynamic, table.vocabulary_size, stable_hash(table.name)))


def _reserved(table: TableSpec) -> int:
    return 0 if table.dynamic is None else table.dynamic.reserved


def _numbered(table: TableSpec, rows: Rows) -> Rows:
    """Return the rows of the table: after the reserved ones; unknown ids have row 0, or none."""
    return rows + np.int32(1) if _reserved(table) else rows  # -1, unknown, becomes row 0, or stays


def _ids_of(name: str, given: Any) -> _Read:
    values, offsets, weights, missing, _ = read_input(name, hash_strings(given))
    ids = values.astype(np.uint64 if values.dtype.kind == "u" else np.int64, copy=False).view(np.uint64)
    if missing is not None and not missing.any():
        missing = None
    shape = np.shape(given) if isinstance(given, np.ndarray) and given.dtype != object else None
    if shape is None and offsets is None:
        shape = (len(ids),)
    return _Read(ids if missing is None else ids[~missing], missing, offsets, weights, shape)


def _parted(members: Sequence[str], read: Mapping[str, _Read], rows: Rows) -> dict[str, Any]:
    made, start = {}, 0
    for name in members:
        count = len(read[name].ids)
        made[name] = read[name].with_rows(rows[start : start + count])
        start += count
    return made


def _join(parts: Sequence[Ids]) -> Ids:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
