"""`Ranker`: a second model that orders the items which the first one found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from sparrow.registry import nearest
from sparrow.retrieval import Found, Index, paired
from sparrow.serving.description import PREDICT
from sparrow.serving.model import ExportedModel


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
