"""Answers to requests: bodies become batches, batches are joined, computed and cut apart again."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from sparrow.data import Batch, DataError
from sparrow.retrieval import ROW, Found
from sparrow.server import arrow_bodies, json_bodies
from sparrow.server.joined import joined, kinds
from sparrow.server.known_users import Known, KnownUsers
from sparrow.server.limits import Limits, check_rows
from sparrow.server.refusals import Refused
from sparrow.server.wishes import OPTIONS, Wish, read_wish, recommended
from sparrow.serving import ExportedModel, Ranker, Version
from sparrow.serving.description import PREDICT

Form = Literal["json", "arrow"]
CONTENT_TYPES: Final[dict[Form, str]] = {"json": "application/json", "arrow": "application/vnd.apache.arrow.stream"}
STEP: Final = "sparrow.step"
"""The fact of an Arrow answer: the step of the model that computed it."""

log = logging.getLogger("sparrow.server")


class Request(NamedTuple):
    """A request for results.

    Attributes:
      function: the function of the export: "predict", or a tower.
      body: the body.
      form: the form of the body.
      answer: the form of the answer.
      recommends: whether to answer with items for the vectors of users.
      k: items for each row, where the address has it; the body may have it instead.
    """

    function: str
    body: bytes
    form: Form
    answer: Form
    recommends: bool = False
    k: int | None = None


class Answer(NamedTuple):
    """An answer with results: its body, its form, the number of its rows, and the version that computed it."""

    body: bytes
    form: Form
    rows: int
    version: Version


class Ranked(NamedTuple):
    """A ranker, and how many items of each user it orders."""

    rank: Ranker
    candidates: int


class Served(NamedTuple):
    """The model that a server uses now, and the model that orders its items again, if any."""

    model: ExportedModel
    ranked: Ranked | None = None


class ReadRequest(NamedTuple):
    """A request whose rows were read, for the model that computes it.

    Attributes:
      request: the request, without its body.
      model: the model.
      batch: the rows; empty where the users are known.
      rows: their number.
      wish: the options of a request for recommendations.
      ranked: the model that orders the items again.
      users: the columns of the users, for the ranker.
      known: the users whose vectors were computed before.
    """

    request: Request
    model: ExportedModel
    batch: Batch
    rows: int
    wish: Wish | None = None
    ranked: Ranked | None = None
    users: Any = None
    known: Known | None = None


def read(served: Served, request: Request, limits: Limits, known: KnownUsers) -> ReadRequest:
    """Return the rows of a request."""
    model, ranked = served.model, served.ranked
    try:
        if request.function not in model.description.functions:
            towers = ", ".join(model.towers)
            why = f"the towers are {towers}; add ?tower=NAME" if towers else "the model has no towers"
            raise Refused(HTTPStatus.NOT_FOUND, why)
        function = model.function(request.function)
        wanted = function.columns
        if request.recommends and ranked is not None:
            wanted = list(dict.fromkeys([*wanted, *ranked.rank.columns]))
        given: dict[str, Any] = {} if request.k is None else {"k": request.k}
        columns: Any
        if request.form == "json":
            options = OPTIONS if request.recommends else ()
            columns, beside = json_bodies.columns_of(request.body, wanted, limits, options)
            given |= beside
        else:
            columns = arrow_bodies.table_of(request.body, wanted, limits)
        wish = read_wish(model, given, limits) if request.recommends else None
        request = request._replace(body=b"")
        if wish is None:
            batch = function.read(columns)
            return ReadRequest(request, model, batch, len(batch))
        if wish.keys is not None and (found := known.find((id(model), model.version), wish.keys)) is not None:
            part = ReadRequest(request, model, Batch(), len(wish.keys), wish, ranked, found.columns, found)
        elif wish.keys is not None and not columns:
            raise Refused(HTTPStatus.NOT_FOUND, "some of these users are not known any more; send their rows too")
        else:
            batch = function.read(columns)
            if wish.keys is not None and len(wish.keys) != len(batch):
                raise ValueError(f"keys has {len(wish.keys)} keys for {len(batch)} rows; give one key per row")
            part = ReadRequest(request, model, batch, len(batch), wish, ranked, columns)
        check_rows(part.rows, limits.recommended_rows)
        if ranked is not None:
            check_rows(part.rows, limits.ranked // max(ranked.candidates, wish.k))
        return part
    except Exception as error:
        raise _refusal(error) from None


class Answerer:
    """Computes requests in batches: rows of several ones together, where the model allows it."""

    def __init__(self, batch_rows: int, count_batch: Callable[[str, int, int, float], None], known: KnownUsers) -> None:
        """``count_batch`` receives model, requests, rows and seconds of each batch of up to ``batch_rows`` rows."""
        self._batch_rows, self._count_batch, self._known = batch_rows, count_batch, known

    def __call__(self, parts: Sequence[ReadRequest]) -> list[Answer | Exception]:
        """Return an answer, or an error, for each request; one model computes all rows of a request."""
        answers: list[Answer | Exception] = [Refused(HTTPStatus.INTERNAL_SERVER_ERROR, "not computed")] * len(parts)
        groups: dict[Any, list[int]] = {}
        for place, part in enumerate(parts):
            if part.known is not None:
                answers[place] = self._answer(part, {"": part.known.vectors})
                continue
            joinable = part.model.description.independent_rows and part.rows < self._batch_rows
            key = (id(part.model), part.request.function, kinds(part.batch)) if joinable else place
            groups.setdefault(key, []).append(place)
        for group in groups.values():
            for places in _chunks(group, parts, self._batch_rows):
                for place, answer in zip(places, self._compute([parts[place] for place in places]), strict=True):
                    answers[place] = answer
        return answers

    def _compute(self, parts: Sequence[ReadRequest]) -> list[Answer | Exception]:
        """Return the answers of requests that are computed together."""
        model, function = parts[0].model, parts[0].request.function
        began = time.monotonic()
        try:
            about = model.description  # sizes that were compiled before the server was ready
            size = min(about.batch_size, self._batch_rows) if about.independent_rows else about.batch_size
            made = model.function(function).run(joined([part.batch for part in parts]), size)
        except Exception as error:
            if len(parts) == 1:
                return [_refusal(error)]
            return [answer for part in parts for answer in self._compute([part])]  # one of them is at fault
        answers: list[Answer | Exception] = []
        start = 0
        for part in parts:
            own = {name: array[start : start + part.rows] for name, array in made.items()}
            if part.wish is not None and part.wish.keys is not None:
                columns = {name: _listed(part.users[name]) for name in _ranked_columns(part)}
                self._known.add((id(model), model.version), part.wish.keys, next(iter(own.values())), columns)
            answers.append(self._answer(part, own))
            start += part.rows
        self._count_batch(model.description.model, len(parts), start, time.monotonic() - began)
        return answers

    def _answer(self, part: ReadRequest, made: dict[str, Any]) -> Answer | Exception:
        try:
            return Answer(_encoded(part, made), part.request.answer, part.rows, part.model.version)
        except Exception as error:  # a wish that the items cannot meet
            return _refusal(error)


def _encoded(part: ReadRequest, made: dict[str, Any]) -> bytes:
    model, request = part.model, part.request
    step = model.version.step
    if request.function == PREDICT:
        results = model.predictions(made)
        if request.answer == "json":
            return json_bodies.to_json({"step": step, "predictions": results})
    else:
        (vectors,) = made.values()
        if part.wish is not None:
            rank, candidates = part.ranked or (None, 1)
            return _items(part, recommended(model, part.wish, vectors, part.users, rank, candidates))
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


def _refusal(error: Exception) -> Exception:
    """Return the error as an answer."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, DataError):
        where = ", ".join(filter(None, (error.place, error.column and f"column '{error.column}'")))
        return Refused(HTTPStatus.BAD_REQUEST, f"{where}: {error.why}" if where else error.why)
    if isinstance(error, ValueError | TypeError | OverflowError):
        return Refused(HTTPStatus.BAD_REQUEST, str(error))
    log.error("a request failed", exc_info=error)
    return Refused(HTTPStatus.INTERNAL_SERVER_ERROR, "the model failed; the server's log has the cause")
