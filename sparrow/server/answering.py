"""Answers to requests: batches are joined, computed and cut apart again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from sparrow.data import Batch, join
from sparrow.embedding import Ragged
from sparrow.retrieval import ROW, Found
from sparrow.server import arrow_bodies, json_bodies
from sparrow.server.known_users import KnownUsers
from sparrow.server.limits import Refused
from sparrow.server.requests import Form, ReadRequest, Scored, refusal, version_of
from sparrow.serving import ExportedModel, Version, states_of
from sparrow.serving.description import HISTORY, PREDICT

STEP: Final = "sparrow.step"
"""The fact of an Arrow answer: the step of the model that computed it."""
PARTS = ("ids", "numbers", "sequences")
"""The parts of a batch that requests have."""


class Answer(NamedTuple):
    """An answer with results: its body, its form, the number of its rows, and the version that computed it."""

    body: bytes
    form: Form
    rows: int
    version: Version


class Answerer:
    """Computes requests in batches: rows of several ones together, where the model allows it."""

    def __init__(self, batch_rows: int, count_batch: Callable[[str, int, int, float], None], known: KnownUsers) -> None:
        """``count_batch`` receives model, requests, rows and seconds of each batch of up to ``batch_rows`` rows."""
        self._batch_rows, self._count_batch, self._known = batch_rows, count_batch, known

    def __call__(self, parts: Sequence[ReadRequest]) -> list[Answer | Exception]:
        """Return an answer, or an error, for each request; one model computes all rows of a request."""
        answers: list[Answer | Exception] = [Refused("not computed", HTTPStatus.INTERNAL_SERVER_ERROR)] * len(parts)
        groups: dict[Any, list[int]] = {}
        for place, part in enumerate(parts):
            if part.queries is not None or part.scored is not None or part.keys is not None:
                began = time.monotonic()
                answers[place] = self._alone(part)
                self._count_batch(part.model.description.model, 1, part.rows, time.monotonic() - began)
                continue
            joinable = part.model.description.independent_rows and part.rows < self._batch_rows
            alike = kinds(part.batch) if part.columns is None else None
            key = (id(part.model), part.request.function, alike) if joinable else place
            groups.setdefault(key, []).append(place)
        for group in groups.values():
            for places in _chunks(group, parts, self._batch_rows):
                own = [parts[place] for place in places]
                made = self._compute(own) if own[0].columns is None else self._read(own)
                for place, answer in zip(places, made, strict=True):
                    answers[place] = answer
        return answers

    def _read(self, parts: Sequence[ReadRequest]) -> list[Answer | Exception]:
        """Return the answers of requests whose columns are still to be converted: at once, or else one by one."""
        function, batch = parts[0].model.function(parts[0].request.function), None
        if len(parts) > 1:
            with contextlib.suppress(Exception):  # of one request, which gets its error below
                batch = function.read_together([part.columns or {} for part in parts])
        if batch is not None:
            return self._compute(parts, batch)
        read: list[ReadRequest | Exception] = []
        for part in parts:
            try:
                read.append(part._replace(batch=function.read(part.columns), columns=None))
            except Exception as error:
                read.append(refusal(error))
        answers = iter(self([part for part in read if isinstance(part, ReadRequest)]))
        return [part if isinstance(part, Exception) else next(answers) for part in read]

    def _compute(self, parts: Sequence[ReadRequest], batch: Batch | None = None) -> list[Answer | Exception]:
        """Return the answers of requests that are computed together; ``batch``: the rows of all of them."""
        model, function = parts[0].model, parts[0].request.function
        began = time.monotonic()
        try:
            batch = joined([part.batch for part in parts]) if batch is None else batch
            made = model.function(function).run(batch, model.batch_size)
        except Exception as error:
            if len(parts) == 1:
                return [refusal(error)]
            return [answer for part in parts for answer in self([part])]  # one of them is at fault
        answers: list[Answer | Exception] = []
        states, start = None, 0
        if function == HISTORY:
            states = states_of(made)
            assert states.vectors is not None  # of a user tower
            made = {"user": states.vectors}
        for part in parts:
            own = {name: array[start : start + part.rows] for name, array in made.items()}
            if part.wish is not None and part.wish.keys is not None:
                columns = {name: _listed(part.users[name]) for name in _ranked_columns(part)}
                kept = None if states is None else states.rows(slice(start, start + part.rows))
                self._known.add(version_of(model), part.wish.keys, next(iter(own.values())), columns, kept)
            answers.append(self._answer(part, own))
            start += part.rows
        self._count_batch(model.description.model, len(parts), start, time.monotonic() - began)
        return answers

    def _alone(self, part: ReadRequest) -> Answer | Exception:
        """Return the answer to a request whose users are known, or have keys."""
        try:
            if part.scored is not None:
                return self._answer(part, self._scored(part.model, part.scored, part.batch))
            if part.keys is not None:
                body = {"step": part.model.version.step, "known": self._appended(part.model, part.keys, part.batch)}
                return Answer(json_bodies.to_json(body), "json", part.rows, part.model.version)
        except Exception as error:
            return refusal(error)
        return self._answer(part, {"": part.queries})

    def _scored(self, model: ExportedModel, scored: Scored, batch: Batch) -> dict[str, Any]:
        states = scored.states
        if states is None:
            states = model.histories.states(scored.histories)
            self._known.add(version_of(model), scored.keys, states.vectors, states=states)
        return model.histories.score(states, batch, scored.users)

    def _appended(self, model: ExportedModel, keys: list[Any], batch: Batch) -> list[bool]:
        """Append events to the states of users, and return which are known now; those without space are forgotten."""
        found = [self._known.find(version_of(model), [key]) for key in keys]
        counts = model.histories.counts(batch)
        fit = [
            known is not None and known.states is not None and counts[row] <= known.states.left[0]
            for row, known in enumerate(found)
        ]
        self._known.forget([key for key, is_known in zip(keys, fit, strict=True) if not is_known])
        for row in np.flatnonzero(fit):
            known = found[row]
            assert known is not None
            assert known.states is not None
            states = model.histories.append(known.states, batch.take(np.array([row])))
            columns = {name: list(values) for name, values in known.columns.items()}
            self._known.add(version_of(model), [keys[row]], states.vectors, columns, states)
        return fit

    def _answer(self, part: ReadRequest, made: dict[str, Any]) -> Answer | Exception:
        try:
            return Answer(_encoded(part, made), part.request.answer, part.rows, part.model.version)
        except Exception as error:  # a wish that the items cannot meet
            return refusal(error)


def _encoded(part: ReadRequest, made: dict[str, Any]) -> bytes:
    model, request = part.model, part.request
    step = model.version.step
    if part.wish is not None:
        (queries,), (rank, candidates), wish = made.values(), part.ranked or (None, 1), part.wish
        assert model.index is not None
        given: dict[str, Any] = {"exclude": wish.exclude, "allow": wish.allow, "where": wish.where}
        return _items(part, model.index.found(part.users, queries, wish.k, rank, candidates, **given))
    if request.function == PREDICT:
        results = model.predictions(made)
        if request.answer == "json":
            return json_bodies.to_json({"step": step, "predictions": results})
    else:
        (vectors,) = made.values()
        results = {request.function: vectors}
        if request.answer == "json":
            return json_bodies.to_json({"step": step, "vectors": results[request.function]})
    return arrow_bodies.to_arrow(results, {STEP: str(step)})


def _items(part: ReadRequest, found: Found) -> bytes:
    """Return the answer with the items of each row."""
    step = part.model.version.step
    if part.request.answer == "arrow":
        table = found.table(pa.table({ROW: np.arange(part.rows)}))
        return arrow_bodies.stream(table, {STEP: str(step)})
    rows = [row[row >= 0] for row in found.rows]
    items = [found.ids.take(pa.array(row)).to_pylist() for row in rows]
    scores = [own[: len(row)] for own, row in zip(found.scores, rows, strict=True)]
    return json_bodies.to_json({"step": step, "items": items, "scores": scores})


def _ranked_columns(part: ReadRequest) -> list[str]:
    """Return the columns of users that the ranker reads and the request has."""
    names = part.users.column_names if isinstance(part.users, pa.Table) else part.users
    return [] if part.ranked is None else [name for name in part.ranked.rank.columns if name in names]


def _listed(column: Any) -> list[Any]:
    made: list[Any] = column if isinstance(column, list) else column.to_pylist()
    return made


def _chunks(places: Sequence[int], parts: Sequence[ReadRequest], most_rows: int) -> list[list[int]]:
    """Return the places of parts in their order, in lists of at most ``most_rows`` rows, or of one part."""
    chunks: list[list[int]] = [[]]
    rows = 0
    for place in places:
        if chunks[-1] and rows + parts[place].rows > most_rows:
            chunks.append([])
            rows = 0
        chunks[-1].append(place)
        rows += parts[place].rows
    return chunks


def kinds(batch: Batch) -> tuple[Any, ...]:
    """Return a key that is the same for batches that can be joined.

    A feature's ids are ragged or not, weighted or not, as the column of the request was.
    """
    return tuple(
        (name, type(values), values.weights is None) if isinstance(values, Ragged) else (name, values.dtype.num)
        for part in PARTS
        for name, values in getattr(batch, part).items()
    )


def joined(batches: Sequence[Batch]) -> Batch:
    """Return the rows of all batches, which have the same `kinds`.

    >>> import numpy as np
    >>> one, two = (Batch(ids={"item": np.array(ids)}) for ids in ([1, 2], [3]))
    >>> joined([one, two]).ids["item"].tolist()
    [1, 2, 3]
    """
    if len(batches) == 1:
        return batches[0]
    parts: Any = {
        part: {name: join([getattr(batch, part)[name] for batch in batches]) for name in getattr(batches[0], part)}
        for part in PARTS
    }
    return Batch(**parts)
