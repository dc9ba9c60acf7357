"""`Run`: a trained model as an object."""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from sparrow import config as configs
from sparrow.config import Config, ConfigError
from sparrow.data import MissingColumn
from sparrow.embedding import Embedder
from sparrow.files import AnyPath
from sparrow.registry import nearest
from sparrow.reports import inline, run_charts, size, write_report
from sparrow.retrieval import CANDIDATES, Index, ItemIndex, Kind, Where, build_tree
from sparrow.runs.errors import FolderError
from sparrow.runs.evaluating.evaluation import Evaluator, evaluate_export
from sparrow.runs.evaluating.importance import ROWS, importance, write_importance
from sparrow.runs.evaluating.predict_files import predict, predict_table
from sparrow.runs.saved.restoring import LogLine
from sparrow.runs.step.program import Program, TrainState
from sparrow.runs.vectors.recommending import (
    item_index,
    recommendations,
    tower_names,
    tower_vectors,
    tree_again,
    with_approximate,
)
from sparrow.runs.vectors.table_view import Measure, Nearest, TableView, nearest_rows, neighbors_of
from sparrow.serving import load as load_export

Array = npt.NDArray[Any]


class Run:
    """A trained model: it predicts, evaluates, shows its tables and exports itself.

    `load` and `train` of `sparrow.runs`, and `sparrow.fit`, return one. It unpacks to ``program, state``.

    Attributes:
      program: the functions that were trained.
      folder: the folder of the run; None: it has none.
      step: the step of the state.
      steps: the steps that were trained.
      results: the results of the evaluation at that step; empty where there was none.
      examples_per_second: the speed of training; NaN where this run was loaded.
      note: a sentence where the state is not that of the last step, such as the best one; else empty.
    """

    def __init__(
        self,
        program: Program,
        state: TrainState | Callable[[], TrainState],
        *,
        folder: AnyPath | None = None,
        step: int,
        steps: int | None = None,
        results: Mapping[str, float] = MappingProxyType({}),
        examples_per_second: float = math.nan,
        note: str = "",
    ) -> None:
        self.program, self.folder, self.step, self.note = program, folder, step, note
        self.steps, self.results = step if steps is None else steps, dict(results)
        self.examples_per_second = examples_per_second
        self._state = state

    @property
    def state(self) -> TrainState:
        """Tables, parameters and the rest of the model; read from the checkpoint on first use where needed."""
        if callable(self._state):
            self._state = self._state()
        return self._state

    @property
    def config(self) -> Config:
        """The config that was trained."""
        return self.program.config

    @property
    def embedder(self) -> Embedder:
        """The tables' lookup and update."""
        return self.program.embedder

    def __iter__(self) -> Iterator[Any]:
        return iter((self.program, self.state))

    def predict(self, data: Any, *, batch_size: int | None = None) -> dict[str, Array]:
        """Return the predictions of each task by its name, (rows,) or (rows, classes), and the vectors of two towers.

        Of several candidates of a row, its predictions are an array of their own.

        Args:
          data: a frame of pandas or Polars, an Arrow table, columns by name, a source, or the path of Parquet or text
            files; labels are not needed.
          batch_size: rows at a time; by default, as in evaluation.
        """
        table = predict_table(self.program, self.state, data, batch_size=batch_size)
        return {name: _array(table[name]) for name in table.column_names}

    def predict_file(
        self, data: Any, output: str | AnyPath, *, columns: Sequence[str] = (), batch_size: int | None = None
    ) -> int:
        """Write the predictions into a Parquet file, besides ``columns`` of the data. Return the number of rows."""
        return predict(self.program, self.state, data, output, columns=columns, batch_size=batch_size)

    def evaluate(
        self, data: Any = None, *, export: str | AnyPath | None = None, log: LogLine | None = None
    ) -> dict[str, float]:
        """Return the mean loss and the metrics, on ``data`` as `predict` takes it, or on the config's own data.

        A metric that is not defined is NaN; ``log`` receives a line with the reason, by default a warning. ``export``:
        the folder of an export of this run, whose metrics are returned instead; it has no loss and no catalog.
        """
        evaluator = self.evaluator(data)
        if export is not None:
            return evaluate_export(evaluator.program, load_export(export))
        results = evaluator(self.state, log)
        for line in evaluator.undefined():
            log(line) if log is not None else warnings.warn(line, stacklevel=2)
        return results

    def importance(
        self, data: Any = None, *, rows: int = ROWS, seed: int = 0, log: LogLine = lambda line: None, save: bool = False
    ) -> dict[str, dict[str, float]]:
        """Return, by feature, how much the loss and each metric grow when its values are dealt to other rows.

        On ``data`` as `evaluate` takes it, or on the config's own; the first ``rows`` rows of either. The largest
        growth of the loss comes first. ``save``: keep it in the run's folder, for the report.
        """
        found = importance(self.program, self.state, self.evaluator, data, rows=rows, seed=seed, log=log)
        if save:
            write_importance(self._own_folder(), found, self.step or 0)
        return found

    def evaluator(self, data: Any = None) -> Evaluator:
        """Return the evaluation of states of this model, on ``data`` or on the config's own; see `evaluate`."""
        if data is not None:
            program = dataclasses.replace(self.program, config=configs.evaluated_on(self.config, data))
            try:
                return Evaluator(program)
            except MissingColumn as error:
                raise error.wanted_by_model(self._use_of(str(error.column))) from None
        if configs.need(self.config.data, "data").evaluate_rows is None:
            raise ConfigError("the config has no data.evaluate; give the data, such as evaluate('test.parquet')")
        return Evaluator(self.program)

    @functools.cached_property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables."""
        return tuple(self.embedder.tables)

    @property
    def towers(self) -> tuple[str, ...]:
        """The towers that `vectors` takes; empty unless the model has two."""
        return tower_names(self.program)

    @functools.cached_property
    def _tables_by_name(self) -> dict[str, str]:
        """The tables, by their names and by the names of the features that look ids up in them."""
        uses = {feature.name: feature.table_use for feature in self.program.assembly.features}
        of_features = {key: use.table for key, use in uses.items() if use is not None and use.table in self.tables}
        return of_features | {name: name for name in self.tables}

    def table(self, name: str) -> TableView:
        """Return a table by its name, or by the name of a feature that looks ids up in it."""
        if name not in self._tables_by_name:
            raise ConfigError(f"there is no table '{name}': {nearest(name, self._tables_by_name)}")
        return TableView(self.program, self.state, self._tables_by_name[name])

    def vectors(self, name: str, data: Any, *, batch_size: int | None = None) -> Array:
        """Return vectors, (rows, dim) float32: of a tower for rows, or of a table for ids.

        Args:
          name: a tower ("user" or "item"), a table, or a feature with a table. Where a tower and a table have the same
            name, ids are of the table, and rows of the tower.
          data: for a tower, rows as `predict` takes them, with the columns of that tower; else ids, as the data of the
            feature has them. Unknown ids get what training gave them: by default a vocabulary has one row for all of
            them. A missing id has zeros.
          batch_size: rows at a time, for a tower.
        """
        if name in self.towers and not (name in self._tables_by_name and _are_ids(data)):
            return tower_vectors(self.program, self.state, name, data, batch_size)
        table = self.table(name)
        return table.vectors(table.rows(data, table.feature_named(name)))

    def neighbors(
        self, name: str, of: Any, k: int = 10, *, among: Any = None, measure: Measure | None = None
    ) -> Nearest:
        """Return the nearest rows: of a table to the rows of ids, or of one tower's vectors to the other's.

        Args:
          name: a table or a feature: ``of`` holds ids, which are not among their own neighbors; the row that unknown
            words share is no neighbor. A tower: ``of`` holds rows for the other tower, and ``among`` the rows to
            choose from; without ``among``, a name that a tower and a table share is the table.
          of: ids, or rows.
          k: the number of items.
          among: rows of the tower ``name``; the result has their positions.
          measure: "cosine" or "dot"; by default "cosine" for tables, and "dot", by which they were trained, for towers.
        """
        holds_ids = isinstance(of, str | int | np.integer | list | tuple | np.ndarray)
        if name in self.towers and not (name in self._tables_by_name and among is None and holds_ids):
            if among is None:
                raise ConfigError(f"neighbors of the tower '{name}': give among=, the rows to choose from")
            (other,) = [tower for tower in self.towers if tower != name]
            queries, rows = self.vectors(other, of), self.vectors(name, among)
            return nearest_rows(queries, [rows], k, measure or "dot")
        table, ids = self.table(name), [of] if isinstance(of, str | int | np.integer) else list(of)
        return neighbors_of(table, ids, table.feature_named(name), k, measure or "cosine")

    def item_index(
        self,
        items: Any = None,
        *,
        id_column: str | None = None,
        attributes: Sequence[str] = (),
        batch_size: int | None = None,
    ) -> Index:
        """Return the items for `recommend`: vectors by the item tower, codes of a model of codes, the tree of tdm.

        Args:
          items: a row per item, as `predict` takes rows; None: the catalog of the config, or the items of the data
            to train on.
          id_column: the column of the ids in ``items``; by default the one of the examples.
          attributes: columns of the items that `recommend` may filter by.
          batch_size: rows at a time; by default, as in evaluation.
        """
        return item_index(
            self.program, self.state, items, id_column=id_column, attributes=attributes, batch_size=batch_size
        )

    def with_approximate(self, index: Index, kind: Kind, *, recall: float = 0.95) -> ItemIndex:
        """Return the index with approximate search by FAISS, set to find ``recall`` of what exact search finds.

        ``kind``: "ivf", "ivf_sq8" (8-bit codes) or "hnsw". Users of the data to train on are the judges.
        """
        return with_approximate(self.program, self.state, index, kind, recall)

    def recommend(
        self,
        users: Any,
        k: int = 10,
        *,
        index: Index | None = None,
        exclude_seen: bool = False,
        exclude: Sequence[Any] | None = None,
        allow: Any = None,
        where: Where | None = None,
        ranker: Any = None,
        candidates: int = CANDIDATES,
        batch_size: int | None = None,
    ) -> Any:
        """Return the ``k`` best items of each row of ``users``: its user, the item, ``score``, and ``rank`` from 1 on.

        For a model of two towers, or of codes (`sparrow.models.Tiger`); or for tdm, whose tree is searched by beam, 4
        ``k`` nodes wide. Ids are as the data has them. The result is a frame of the kind that was given, else an Arrow
        table. A user that training never saw has the vector that training gave to unknown ids: the items are those that
        suit the other features of the row, and otherwise the same for all such users.

        Args:
          users: rows with the columns of the user tower, as `predict` takes them; or a list of the users' ids, where
            the tower reads nothing else.
          k: the number of items.
          index: the items, from `item_index`; None: made on first use, and kept.
          exclude_seen: whether to leave out the items that a user has in ``data.train``, with its held-out rows.
          exclude: for each row, ids of items to leave out.
          allow: ids of the items to choose from; None: all.
          where: conditions on attributes of items: ``{"genre": ["drama", "crime"], "year": {"min": 1990}}``.
          ranker: another model, which orders the ``candidates`` best items again: an export, or its folder. The item's
            id and the attributes of ``index`` are columns of the items; it reads all others from ``users``.
          candidates: how many items it orders.
          batch_size: rows at a time; by default, as in evaluation.
        """
        given: dict[str, Any] = {"exclude_seen": exclude_seen, "exclude": exclude, "allow": allow, "where": where}
        given |= {"ranker": ranker, "candidates": candidates, "batch_size": batch_size}
        return recommendations(self.program, self.state, self._items if index is None else index, users, k, **given)

    def item_tree(
        self,
        items: Any = None,
        *,
        id_column: str | None = None,
        attributes: Sequence[str] = (),
        branches: int = 2,
        seed: int = 0,
    ) -> Any:
        """Return a tree of items for ``data.tree.nodes``, as `sparrow.retrieval.build_tree` makes it from vectors.

        Of two towers these are the vectors of items, and the arguments are those of `item_index`. Of tdm these are the
        rows of its table: the tree that it was trained on is built again, with all columns of its nodes.
        """
        how = {"branches": branches, "seed": seed}
        if configs.need(self.config.data, "data").tree is not None:
            return tree_again(self.program, self.state, **how)
        index = self.item_index(items, id_column=id_column, attributes=attributes)
        if not isinstance(index, ItemIndex):
            raise ConfigError("a tree is built from the vectors of two towers, or of tdm")
        return build_tree(index.ids, index.vectors, item=index.item, attributes=index.attributes, **how)

    @functools.cached_property
    def _items(self) -> Index:
        return self.item_index()

    def export(
        self,
        folder: str | AnyPath,
        *,
        ema: bool | None = None,
        overwrite: bool = False,
        index: Index | bool = False,
        tables: str | None = None,
        states: bool = False,
    ) -> Any:
        """Write the model as files that predict without its code; `sparrow.serving.load` opens them.

        ``index``: items to recommend, from `item_index`; True: those of the config, or of the data to train on.
        ``tables``: the dtype of the tables in the export, "float16", "int8" or "int4"; None: as trained.
        ``states``: whether to write functions that keep a user's history as a state.
        """
        from sparrow import exports

        items = None if index is False else self._items if index is True else index
        options: Any = {"ema": ema, "overwrite": overwrite, "index": items, "tables": tables, "states": states}
        return exports.export(self.program, self.state, folder, **options)

    def report(self, output: str | AnyPath | None = None) -> AnyPath:
        """Write the report of the run as one HTML file, and return its path."""
        return write_report([self._own_folder()], output)

    def save(self, folder: str | Path) -> Run:
        """Copy the folder of the run to another place, which must not exist, and return the run there."""
        target, own = Path(folder), self._own_folder()
        if not isinstance(own, Path):
            raise FolderError(f"{own}: is in another store; copy it with the tools of that store")
        try:
            shutil.copytree(own, target)
        except FileExistsError:
            raise FolderError(f"{target} exists; choose another folder") from None
        except OSError as error:
            raise FolderError(f"{target}: cannot be written: {error.strerror or error}") from None
        made = copy.copy(self)
        made.folder, made.examples_per_second = target, math.nan
        return made

    def _use_of(self, column: str) -> str:
        """Return the use of a column, for an error."""
        made = {label.name: label.source_column for label in configs.need(self.config.data, "data").labels}
        if column in (made.get(task.label, task.label) for task in self.config.tasks.values()):
            return "the label"
        is_read = any(column in feature.columns for feature in self.program.assembly.features)
        return "which the model reads" if is_read else "which the evaluation reads"

    def _own_folder(self) -> AnyPath:
        if self.folder is None:
            raise FolderError("the run has no folder; train with folder=...")
        return self.folder

    def __repr__(self) -> str:
        model = configs.need(self.config.model, "model").architecture
        name = type(model).__name__.removesuffix("Record")
        results = ", ".join(f"{key} {value:.4g}" for key, value in list(self.results.items())[:4])
        where = "" if self.folder is None else f"; {self.folder}"
        return f"Run({name} of step {self.step}{f'; {results}' * bool(results)}{where})"

    def _repr_html_(self) -> str:
        tables = self.embedder.tables.values()
        held = sum(table.vocabulary_size * table.embedding_dim for table in tables)
        facts = {name: f"{value:.6g}" for name, value in self.results.items()}
        facts["tables"] = f"{len(tables)} of {sum(table.vocabulary_size for table in tables):,} rows, {size(4 * held)}"
        if not math.isnan(self.examples_per_second):
            facts["speed"] = f"{self.examples_per_second:,.0f} examples per second"
        if self.folder is not None:
            facts["folder"] = str(self.folder)
        if self.note:
            facts["note"] = self.note
        return inline(repr(self), facts, [] if self.folder is None else run_charts(self.folder))


def _are_ids(data: Any) -> bool:
    """Return whether data holds ids, one by one, instead of rows with columns."""
    import pyarrow as pa

    is_series = hasattr(data, "dtype") and not hasattr(data, "columns")  # also an array
    return is_series or isinstance(data, list | tuple | range | int | pa.Array | pa.ChunkedArray)


def _array(column: Any) -> Array:
    """Return a column of predictions as an array; lists of one length are rows of it."""
    joined = column.combine_chunks()
    size = getattr(joined.type, "list_size", None)
    array: Array = (joined if size is None else joined.flatten()).to_numpy(zero_copy_only=False)
    return array if size is None else array.reshape(-1, size)
