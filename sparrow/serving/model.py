"""`load`: an export as a model that predicts, without the code it was made with; `Ranker`: one that orders items."""

from __future__ import annotations

import dataclasses
import datetime
import warnings
from collections.abc import Callable, Collection
from typing import Any

import jax
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparrow.data import DataError, Feature, Tables
from sparrow.files import AnyPath, at
from sparrow.registry import nearest
from sparrow.retrieval import ABOUT, CANDIDATES, Found, Index, Rank, RowIndex, RowModel, Where, paired, read_index
from sparrow.serving.columns import cut_to_candidates
from sparrow.serving.deltas import Delta, Version, checksum
from sparrow.serving.description import INDEX, NAME, PREDICT, STATES, TABLES
from sparrow.serving.function import Array, Arrays, Function
from sparrow.serving.histories import Histories
from sparrow.serving.lookup import known_ids
from sparrow.serving.opened import Opened, opened
from sparrow.serving.parts import lookups, parameters_of, program_of, read_feature, tables_of
from sparrow.serving.tensors import read


class ExportedModel:
    """A trained model that was exported. `load` makes it.

    Large tables stay in their file, which is held open: a prediction reads the rows that it needs. Everything else is
    in memory. Replacing or removing the export does not change a model that is loaded.

    Attributes:
      folder: the export.
      description: the content of ``export.json``.
      features: the inputs, as `sparrow.data` reads them.
      index: the items to recommend; None: the export has none.
      version: the export, or the last of its deltas that was applied.
    """

    def __init__(self, held: Opened, custom_calls: Collection[str] = (), approximate: bool = False) -> None:
        """Read or map the files of ``held``, which may be closed afterwards."""
        self.folder, self.description = held.folder, held.description
        about = self.description
        self.features: tuple[Feature, ...] = tuple(read_feature(held, fields) for fields in about.features)
        self.version = Version(about.step, time=about.newest_event or _seconds(about.created))
        self._base = checksum(held.folder)
        self._raw = tables = read(held[TABLES], str(held.folder / TABLES), private=True)
        parameters = parameters_of(held)
        specs = lookups(about, tables, held.folder)
        held_tables = tables_of(about, tables)
        self._known = known = known_ids(held, tables)
        self._parameters, self._compiled = parameters, 0
        self._functions = {
            name: Function(
                about,
                name,
                self.features,
                specs,
                held_tables,
                known,
                parameters,
                program_of(held, name, self.features, parameters, custom_calls),
            )
            for name in about.functions
        }
        history, append, score = (self._functions.get(name) for name in STATES)
        self._histories = None if history is None else Histories(history, append, score, lambda: self.batch_size)
        self.index = self._opened_index(held, approximate) if f"{INDEX}/{ABOUT}" in about.files else None

    def _opened_index(self, held: Opened, approximate: bool) -> Index:
        where = str(held.folder / INDEX)
        index = read_index(
            lambda name: held.read(f"{INDEX}/{name}"),
            lambda name: held[f"{INDEX}/{name}"],
            approximate=approximate,
            failed=lambda why: DataError(why, where),
        )
        if not isinstance(index, RowIndex):
            return index
        model = RowModel(self.predict, self.function(PREDICT).columns, list(self.description.tasks))
        return dataclasses.replace(index, model=model)

    def next_delta(self, folder: AnyPath) -> Delta | None:
        """Return the delta after this version in the folder of its export, checked; None: there is none yet."""
        delta = Delta.read(folder, self.version, self._base)
        return None if delta is None else delta.fitting(self._raw, self._parameters)

    def prepared(self, delta: Delta) -> Callable[[], None]:
        """Return the function that makes the model the version of a delta, when no prediction is being computed."""
        parameters = {name: delta.parameters[name] for name in self._parameters}
        parameters = jax.block_until_ready(jax.device_put(parameters))  # type: ignore[no-untyped-call]
        known = {
            name: own.changed(delta.came.get(name), delta.went.get(name))
            if name in delta.came or name in delta.went
            else own
            for name, own in self._known.items()
        }

        def apply() -> None:
            for name, own in delta.changed.items():
                self._raw[name][own.rows] = own.arrays[""]
            for function in self._functions.values():
                function.change(known, parameters)
            self._known, self._parameters, self.version = known, parameters, delta.version

        return apply

    @property
    def signature(self) -> dict[str, Any]:
        """Return, for each function, the columns that it needs and the arrays that it returns, with their meaning."""
        return {
            name: {
                "inputs": {column: entry.holds for column, entry in function.inputs.items()},
                "outputs": {
                    output: {"shape": tuple(entry.shape), "dtype": entry.dtype, "meaning": entry.meaning}
                    for output, entry in function.outputs.items()
                },
            }
            for name, function in self.description.functions.items()
        }

    @property
    def towers(self) -> tuple[str, ...]:
        """The towers that `vectors` takes: "user" and "item" for a model of two towers, else none."""
        return tuple(name for name in self.description.functions if name not in (PREDICT, *STATES))

    @property
    def has_states(self) -> bool:
        return self._histories is not None

    @property
    def histories(self) -> Histories:
        if self._histories is None:
            raise ValueError("the export keeps no states; write it with sparrow export --states")
        return self._histories

    def predict(self, rows: Any, batch_size: int | None = None, *, user: str | None = None) -> Arrays:
        """Return the predictions of each task: (rows,), or (rows, classes); of several candidates, an array per row.

        Args:
          rows: a frame of pandas or Polars, an Arrow table, columns by name, or a `sparrow.data.Batch`; any number of
            rows, or none.
          batch_size: rows to compute at a time; by default, as in evaluation.
          user: a column whose equal values have equal histories: each history is computed once, and those of
            ``batch_size`` users are held at a time. The export must have been written with states.
        """
        if user is not None:
            return self._predicted_by_user(Tables(rows).table, user, self._batch_size(batch_size))
        function = self.function(PREDICT)
        return self.predictions(function(rows, self._batch_size(batch_size)))

    def _predicted_by_user(self, table: Any, user: str, most: int) -> Arrays:
        histories = self.histories
        if user not in table.column_names:
            raise ValueError(f"user '{user}' is no column of the rows: {nearest(user, table.column_names)}")
        keys = pc.dictionary_encode(table[user], null_encoding="encode").combine_chunks().indices.to_numpy()
        _, first, users = np.unique(keys, return_index=True, return_inverse=True)
        order = np.argsort(users, kind="stable")  # rows by user
        ends = np.cumsum(np.bincount(users, minlength=len(first)))
        parts, begin = [], 0
        for start in range(0, max(len(first), 1), most):
            own = first[start : start + most]
            end = int(ends[start + len(own) - 1]) if len(own) else 0
            rows, begin = order[begin:end], end
            states = histories.states(table.take(pa.array(own)))
            parts.append(histories.score(states, table.take(pa.array(rows)), users[rows] - start))
        back = np.argsort(order)
        return {name: np.concatenate([part[name] for part in parts])[back] for name in parts[0]}

    def predictions(self, made: Arrays) -> Arrays:
        """Return the predictions of each task from the outputs of the function "predict"."""
        outputs = self.description.functions[PREDICT].outputs
        cut = cut_to_candidates(made)
        return {entry.task: cut[name] for name, entry in outputs.items() if entry.task is not None}

    def vectors(self, tower: str, rows: Any, batch_size: int | None = None) -> Array:
        """Return the vectors of one tower, (rows, dim). ``rows`` needs the columns of that tower alone."""
        if tower not in self.towers:
            raise ValueError(f"the export has no tower '{tower}': {nearest(tower, self.towers)}")
        (vectors,) = self.function(tower)(rows, self._batch_size(batch_size)).values()
        return vectors

    def recommend(
        self,
        users: Any,
        k: int = 10,
        *,
        exclude: Any = None,
        allow: Any = None,
        where: Where | None = None,
        exact: bool = False,
        rank: Rank | None = None,
        candidates: int = CANDIDATES,
        batch_size: int | None = None,
    ) -> Any:
        """Return the ``k`` best items of each row of ``users``, as an Arrow table: user, item, score, rank.

        Args:
          users: rows with the columns of the user tower, as `predict` takes them; for a model of codes or a tree, with
            all columns that it reads but those of codes and nodes.
          k: how many.
          exclude: for each row, ids of items to leave out, such as those that the user has seen.
          allow: ids of the items to choose from; None: all.
          where: conditions on attributes of items, as `sparrow.retrieval.passing` takes them.
          exact: whether to search all items where the index would leave some out to be quicker.
          rank: orders the ``candidates`` best items again, such as `sparrow.serving.Ranker` by another export.
          candidates: how many of them.
          batch_size: rows to compute at a time; by default, as in evaluation.
        """
        if self.index is None:
            raise ValueError("the export has no items to recommend; write it with sparrow export --index")
        table = Tables(users).table
        queries = table if self.index.reads_rows else self.vectors("user", table, batch_size)
        given = {"exclude": exclude, "allow": allow, "where": where, "exact": exact}
        return self.index.recommended(table, queries, k, rank, candidates=candidates, **given)

    def function(self, name: str) -> Function:
        """Return a function of the export, compiled once for each size of a batch."""
        if name not in self._functions:
            raise ValueError(f"the export has no function '{name}': {nearest(name, self._functions)}")
        return self._functions[name]

    def compile(self, rows: int, is_stopped: Callable[[], bool] = lambda: False) -> None:
        """Compile all functions for all numbers of rows up to ``rows``, before the first request comes."""
        for function in self._functions.values():
            function.compile(rows, is_stopped)
        self._compiled = rows

    def _batch_size(self, given: int | None) -> int:
        if given is not None and (not isinstance(given, int) or given < 1):
            raise ValueError(f"batch_size must be an integer of at least 1, got {given!r}")
        return given or self.batch_size

    @property
    def batch_size(self) -> int:
        """The rows to compute at a time, by default: as in evaluation, and no more than `compile` was called for."""
        about = self.description
        return min(about.batch_size, self._compiled) if self._compiled and about.independent_rows else about.batch_size

    def __repr__(self) -> str:
        about = self.description
        return f"ExportedModel({about.model} of step {about.step}; {', '.join(about.tasks)}; {self.folder})"


class Ranker:
    """Scores pairs of a user and an item by an export that predicts rows.

    Of the columns that the export reads, the item's id and the attributes of the index come from the catalog; all
    others come from the row of the user, also where its own model does not read them.

    Attributes:
      columns: the columns that a row of a user must have.
    """

    def __init__(self, model: ExportedModel, index: Index, task: str | None = None) -> None:
        """Check that the columns fit together.

        Args:
          model: an export that predicts rows of a user and an item.
          index: the items.
          task: the prediction to order by; None: the only one, or the first.
        """
        tasks, outputs = model.description.tasks, model.description.functions[PREDICT].outputs
        if task is not None and task not in tasks:
            raise ValueError(f"the ranker has no task '{task}': {nearest(task, tasks)}")
        self._task = next(iter(tasks)) if task is None else task
        (shape,) = [output.shape for output in outputs.values() if output.task == self._task]
        if len(shape) != 1:
            raise ValueError(f"the ranker predicts several numbers per row for '{self._task}'; choose a task with one")
        self._model, self._function = model, model.function(PREDICT)
        held = index.catalog
        self._catalog = {name: held[name] for name in self._function.columns if name in held}
        if not self._catalog:
            raise ValueError(
                f"the ranker reads no column of the items, which have {', '.join(sorted(held))}; "
                "name the columns that it reads as attributes of the index"
            )
        self.columns = [name for name in self._function.columns if name not in held]

    def __call__(self, users: Any, found: Found, k: int) -> Found:
        """Return the ``k`` best of the items that were found for each user, by the ranker's scores.

        ``users``: an Arrow table, or columns by name, with a row for each row of ``found``.
        """
        queries, places = np.nonzero(found.rows >= 0)
        rows = pa.array(found.rows[queries, places])
        items = {name: column.take(rows) for name, column in self._catalog.items()}
        scores = np.full(found.rows.shape, -np.inf, np.float32)
        if self._model.has_states:  # one pass over each history, whatever the number of items
            histories = self._model.histories
            pairs = paired(users, queries, [name for name in self.columns if name in histories.scoring.columns], items)
            made = histories.score(histories.states(users), pairs, queries)
        else:
            made = self._model.predict(paired(users, queries, self.columns, items))
        scores[queries, places] = made[self._task]
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        rows_of, scores = np.take_along_axis(found.rows, order, 1), np.take_along_axis(scores, order, 1)
        return found._replace(rows=rows_of, scores=scores)


def is_export(folder: str | AnyPath) -> bool:
    """Return whether the folder holds an export, complete or not."""
    try:
        return (at(folder) / NAME).is_file()
    except (OSError, DataError):
        return False


def load(
    folder: str | AnyPath, *, verify: bool = True, custom_calls: Collection[str] = (), approximate: bool = False
) -> ExportedModel:
    """Open an export.

    Args:
      folder: a folder that `sparrow export` wrote.
      verify: whether to read the tables through once and compare their checksum. The sizes of all files and the
        checksums of all others are always compared.
      custom_calls: targets of custom calls that the programs may hold besides `sparrow.serving.CUSTOM_CALLS`, such as
        "lapack_spotrf_ffi" for a model that solves equations. Only for an export that you made yourself: a custom call
        runs machine code with the arguments that the file gives.
      approximate: whether to search items by the FAISS index of the export. FAISS trusts its file: only for an export
        that you made yourself. Otherwise search is exact.
    """
    with opened(at(folder)) as held:
        if verify:
            held.verify(TABLES)
        model = ExportedModel(held, custom_calls, approximate)
    try:
        while (delta := model.next_delta(at(folder))) is not None:
            model.prepared(delta)()
    except DataError as error:
        warnings.warn(f"{error}; the version before it is used", stacklevel=2)
    return model


def _seconds(created: str) -> float | None:
    try:
        return datetime.datetime.fromisoformat(created).timestamp()
    except ValueError:
        return None
