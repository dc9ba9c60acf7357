"""`Histories`: users' histories as states, so that a candidate's score does not compute its history again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sparrow.data import Batch
from sparrow.embedding import Ragged
from sparrow.serving.columns import cut_to_candidates
from sparrow.serving.description import LEFT, STATE
from sparrow.serving.function import Arrays, Function

Array = npt.NDArray[Any]


class States(NamedTuple):
    """The states of users.

    Attributes:
      values: (users, width) float32.
      left: (users,) how many further events each has space for.
      vectors: (users, dim) the vectors of a user tower; None: the model has none.
    """

    values: Array
    left: Array
    vectors: Array | None

    def rows(self, at: Any) -> States:
        return States(self.values[at], self.left[at], None if self.vectors is None else self.vectors[at])


class Histories:
    """The functions of an export with states.

    ::

        states = model.histories.states(users)                       # rows with the columns of the history
        states = model.histories.append(states, events)              # rows with the new events of each user
        model.histories.score(states, pairs, [0, 0, 1])              # rows of candidates, and the user of each

    Results are those of `ExportedModel.predict` and `vectors` for the complete history, up to rounding.
    """

    def __init__(
        self, history: Function, append: Function | None, score: Function | None, batch_size: Callable[[], int]
    ) -> None:
        self.history, self._append, self._score, self._batch_size = history, append, score, batch_size

    @property
    def scoring(self) -> Function:
        if self._score is None:
            raise ValueError("the model has two towers: its states hold the users' vectors, and score no candidates")
        return self._score

    @property
    def appending(self) -> Function:
        if self._append is None:
            raise ValueError(
                "new events change all of this model's state, as its context attends to the history; "
                "compute the state again"
            )
        return self._append

    def states(self, rows: Any) -> States:
        """Return the state of each row, which needs the columns of the history and of its context."""
        return states_of(self.history(rows, self._batch_size()))

    def counts(self, batch: Batch) -> Any:
        """(rows,): the new events of each row of a batch that the function to append reads."""
        found = np.zeros(len(batch), np.int64)
        for feature in self.appending.features:
            held = getattr(batch, feature.part)[feature.name]
            found = np.maximum(found, np.diff(held.offsets) if isinstance(held, Ragged) else 1)
        return found

    def append(self, states: States, rows: Any) -> States:
        """Return the states with the events of ``rows``, a row for each, the oldest event first."""
        function = self.appending
        batch = function.read(rows)
        if len(batch) != len(states.values):
            raise ValueError(f"there are {len(states.values)} states and {len(batch)} rows; give one row per state")
        counts = self.counts(batch)
        if (full := counts > states.left).any():
            at = int(np.argmax(full))
            raise ValueError(
                f"row {at} has {counts[at]} new events and its state has space for {states.left[at]}; compute the "
                "state again from the newest events of the history"
            )
        step, done = min(function.entry.lengths.values()), np.zeros_like(counts)
        made = States(*(None if part is None else np.array(part) for part in states))  # type: ignore[arg-type]
        while (more := np.nonzero(done < counts)[0]).size:
            for part in np.split(more, range(self._batch_size(), more.size, self._batch_size())):
                piece = _piece(batch, function, part, done[part], step)
                found = states_of(function.compute(function.prepare(piece, made.values[part])))
                made.values[part], made.left[part] = found.values, found.left
                if made.vectors is not None and found.vectors is not None:
                    made.vectors[part] = found.vectors
            done[more] = np.minimum(done[more] + step, counts[more])
        return made

    def score(self, states: States, rows: Any, users: Any = None) -> Arrays:
        """Return the outputs of "predict" for each row of ``rows``, the candidates of ``states``.

        ``users``: for each row the number of its state; None: a row for each state.
        """
        function = self.scoring
        batch = function.read(rows)
        users = np.arange(len(batch)) if users is None else np.asarray(users, np.int64)
        if len(users) != len(batch) or (len(users) and not 0 <= users.min() <= users.max() < len(states.values)):
            raise ValueError(f"users must hold a number below {len(states.values)} for each of {len(batch)} rows")
        if not function.entry.lengths:  # several candidates in each row
            return _joined(
                [
                    cut_to_candidates(function.compute(function.prepare(piece, states.values[users[at]])))
                    for at, piece in _batches(batch, self._batch_size())
                ],
                function,
            )
        most = min(function.entry.lengths.values())
        order = np.argsort(users, kind="stable")
        own, counts = np.unique(users, return_counts=True)
        pieces = -(-counts // most)  # calls of each user
        of_piece = np.repeat(own, pieces)
        sizes = np.concatenate([np.diff([*range(0, count, most), count]) for count in counts] or [counts])
        offsets, parts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), []
        for start in range(0, len(of_piece), self._batch_size()):
            end = min(start + self._batch_size(), len(of_piece))
            piece = batch.take(order[offsets[start] : offsets[end]])
            given = states.values[of_piece[start:end]], offsets[start : end + 1] - offsets[start]
            made = cut_to_candidates(function.compute(function.prepare(piece, *given)))
            parts.append({name: np.concatenate(list(values)) for name, values in made.items()})
        made = _joined(parts, function)
        for name, values in made.items():
            made[name] = np.empty_like(values)
            made[name][order] = values
        return made


def states_of(made: Arrays) -> States:
    """Return the outputs of a function as states."""
    vectors = [array for name, array in made.items() if name not in (STATE, LEFT)]
    return States(made[STATE], made[LEFT], vectors[0] if vectors else None)


def _joined(parts: list[Arrays], function: Function) -> Arrays:
    if parts:
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return {name: np.zeros(0, output.dtype) for name, output in function.entry.outputs.items() if output.task}


def _batches(batch: Batch, size: int) -> list[tuple[slice, Batch]]:
    starts = range(0, len(batch), size)
    return [(slice(start, start + size), batch.cut(start, min(start + size, len(batch)))) for start in starts]


def _piece(batch: Batch, function: Function, rows: Any, done: Any, step: int) -> Batch:
    """Return up to ``step`` events of some rows, behind the first ``done``."""
    made: Any = {"ids": {}, "sequences": {}}
    for feature in function.features:
        held = getattr(batch, feature.part)[feature.name]
        if not isinstance(held, Ragged):
            held = Ragged(held, np.arange(len(held) + 1))
        starts = held.offsets[rows] + done
        counts = np.clip(held.offsets[rows + 1] - starts, 0, step)
        at = np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        weights = None if held.weights is None else held.weights[at]
        made[feature.part][feature.name] = Ragged(held.values[at], np.concatenate([[0], np.cumsum(counts)]), weights)
    return Batch(**made)
