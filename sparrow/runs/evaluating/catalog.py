"""`Catalog`: the metrics of two towers over all items, without what a user has seen in training."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sparrow import processes
from sparrow.config import catalog_items, catalog_of, catalog_user, item_column, item_features, need
from sparrow.data import DataError, Items, distinct_rows, key_pairs
from sparrow.feed import Feed
from sparrow.metrics import catalog_metrics, catalog_ranks, seen_by
from sparrow.optimizer import OptimizerState
from sparrow.runs.loop.together import agreed
from sparrow.runs.step.compiling import Compiled
from sparrow.runs.step.on_mesh import for_this_host
from sparrow.runs.step.program import Program
from sparrow.tasks import TOWERS

PREFIX: Final = "catalog_"
"""The results' names begin with it."""
MOST: Final = 10**11
"""Pairs of a row and an item that are ranked unless the config asks for more: minutes on two cores."""
UNRANKED: Final = 2**40
"""The rank of an item that is not in the catalog."""

Keys = npt.NDArray[np.int64]


class Gathered(NamedTuple):
    """The rows of an evaluation: vectors of the users, keys of the items that they chose, and of the users if known."""

    query: list[npt.NDArray[np.float32]]
    chosen: list[Keys]
    users: list[Keys]


class Catalog:
    """The items of a config, read once, and the ranks of chosen items among them, any number of times."""

    def __init__(self, program: Program) -> None:
        config, section = program.config, catalog_of(program.config)
        assert section is not None
        self._program, self._config, self._section = program, config, section
        watched = (config.evaluate.early_stopping, config.train.checkpoint.best_by)
        is_watched = any(each is not None and each.metric.startswith(PREFIX) for each in watched)
        self.is_asked = config.evaluate.catalog is not True or is_watched
        self._item, self._user = need(item_column(config), "data", "item_column"), catalog_user(config)
        self._items: Items | None = None
        self._seen: tuple[Keys, Keys] | None = None
        self._prepare = program.preparer()
        self._is_skipped = False

    @property
    def names(self) -> list[str]:
        return [f"{PREFIX}{metric}_at_{k}" for k in self._section.top_k for metric in ("recall", "hr", "ndcg")] + [
            f"{PREFIX}mrr"
        ]

    def add(self, rows: Gathered, query: Any, keys: Mapping[str, Keys]) -> None:
        if self._item not in keys:  # it holds lists, and the config does not name it
            return
        chosen = keys[self._item]
        rows.query.append(np.asarray(query)[: len(chosen)])
        rows.chosen.append(chosen)
        if self._user is not None:
            rows.users.append(keys[self._user])

    def results(
        self, rows: Gathered, optimizer: OptimizerState, rest: Any, log: Callable[[str], None] | None
    ) -> dict[str, float]:
        """Return the metrics of the rows of an evaluation; none where they are left out, which is logged."""
        if self._is_skipped or not rows.chosen:
            return {}
        try:
            return self._results(rows, optimizer, rest)
        except (ValueError, TypeError) as error:
            if self.is_asked:
                raise
            # The config does not ask for them: the rest of the evaluation stays.
            self._is_skipped = True
            if log is not None:
                log(f"the metrics among all items are left out: {error}")
            return {}

    def _results(self, rows: Gathered, optimizer: OptimizerState, rest: Any) -> dict[str, float]:
        query, chosen = np.concatenate(rows.query), np.concatenate(rows.chosen)
        users = np.concatenate(rows.users) if rows.users else np.arange(len(chosen))
        # A choice that was made twice is one.
        first = np.sort(np.unique(np.stack([users, chosen]), axis=1, return_index=True)[1])
        query, chosen, users = query[first], chosen[first], users[first]
        if self._items is None:
            self._items = self._read_items()
        items = self._items
        count = len(items.rows)
        if not self.is_asked and count * len(chosen) > MOST:
            raise DataError(
                f"{len(chosen):,} rows among {count:,} items take long; set evaluate.catalog to have them, and "
                "evaluate.steps for fewer rows"
            )
        place = items.find(chosen).astype(np.int64)
        known = place >= 0
        seen = None
        if self._section.exclude_seen and self._user is not None:
            if self._seen is None:
                self._seen = self._read_seen(np.unique(users))
            seen = seen_by(*self._seen, users[known])
        vectors = np.concatenate(list(self._vectors(items, optimizer, rest)))
        ranks = np.full(len(chosen), UNRANKED, np.int64)
        ranks[known] = catalog_ranks(query[known], vectors, place[known], seen)
        found = catalog_metrics(ranks, users, self._section.top_k)
        return {PREFIX + name.replace("@", "_at_"): value for name, value in found.items()}

    def _read_items(self) -> Items:
        data = need(self._config.data, "data")
        names = item_features(self._config)
        features = [feature for feature in data.features if feature.name in names]
        columns = list(dict.fromkeys([self._item, *(column for feature in features for column in feature.columns)]))
        source, id_column = catalog_items(self._config)
        if source == data.train_events:
            source = distinct_rows(source, columns, id_column, data.bad_rows)
        _, kinds = need(data.evaluate_rows, "data", "evaluate").open(columns).schemas[0]
        like = {**kinds, id_column: kinds[self._item]}
        return Items(source, features, id_column=id_column, like=like, bad_rows=data.bad_rows)

    def _read_seen(self, users: Keys) -> tuple[Keys, Keys]:
        """Return the users and the numbers of the items that they have in the data to train on."""
        data = need(self._config.data, "data")
        assert self._user is not None
        assert self._items is not None
        owners, seen = key_pairs(data.train_events, self._user, self._item, users, data.bad_rows)
        place = self._items.find(seen).astype(np.int64)
        return owners[place >= 0], place[place >= 0]

    def _vectors(self, items: Items, optimizer: OptimizerState, rest: Any) -> Iterator[npt.NDArray[np.float32]]:
        config = self._config
        size = config.evaluate.batch_size or config.train.batch_size
        for start in range(0, len(items.rows), size):
            batch = self._program.completed(items.rows.cut(start, min(start + size, len(items.rows))))
            if processes.count() == 1:
                prepared = self._prepare(batch)
            else:
                prepared = self._prepare.finish(agreed(self._prepare, self._prepare.route(batch)))
            yield np.asarray(self._item_vectors(optimizer, rest, prepared.feed))[: len(batch)]

    @functools.cached_property
    def _item_vectors(self) -> Compiled:
        def vectors(optimizer: OptimizerState, rest: Any, feed: Feed) -> Any:
            outputs = self._program.outputs(optimizer, rest, feed)
            return for_this_host(self._program.embedder, outputs[TOWERS["item"]])

        return Compiled("catalog", vectors, batch=2)
