"""Answers to requests: bodies become batches, batches are joined, computed and cut apart again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from sparrow.data import Batch, DataError
from sparrow.retrieval import ROW, Found
from sparrow.server import arrow_bodies, json_bodies
from sparrow.server.joined import joined, kinds
from sparrow.server.limits import Limits, check_rows
from sparrow.server.refusals import Refused
from sparrow.server.wishes import OPTIONS, Wish, read_wish, recommended
from sparrow.serving import ExportedModel, Version
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


class ReadRequest(NamedTuple):
    """A request whose rows were read, for the model that computes it."""

    request: Request
    model: ExportedModel
    batch: Batch
    rows: int
    wish: Wish | None = None


def read(model: ExportedModel, request: Request, limits: Limits) -> ReadRequest:
    """Return the rows of a request."""
    try:
        if request.function not in model.description.functions:
            towers = ", ".join(model.towers)
            why = f"the towers are {towers}; add ?tower=NAME" if towers else "the model has no towers"
            raise Refused(HTTPStatus.NOT_FOUND, why)
        function = model.function(request.function)
        given = {} if request.k is None else {"k": request.k}
        columns: Any
        if request.form == "json":
            options = OPTIONS if request.recommends else ()
            columns, beside = json_bodies.columns_of(request.body, function.columns, limits, options)
            given |= beside
        else:
            columns = arrow_bodies.table_of(request.body, function.columns, limits)
        wish = read_wish(model, given, limits) if request.recommends else None
        batch = function.read(columns)
        if request.recommends:
            check_rows(len(batch), limits.recommended_rows)
        return ReadRequest(request._replace(body=b""), model, batch, len(batch), wish)
    except Exception as error:
        raise _refusal(error) from None


class Answerer:
    """Computes requests in batches: rows of several ones together, where the model allows it."""

    def __init__(self, batch_rows: int, count_batch: Callable[[int, int], None]) -> None:
        """``count_batch`` receives the requests and the rows of each batch of up to ``batch_rows`` rows."""
        self._batch_rows, self._count_batch = batch_rows, count_batch

    def __call__(self, parts: Sequence[ReadRequest]) -> list[Answer | Exception]:
        """Return an answer, or an error, for each request; one model computes all rows of a request."""
        answers: list[Answer | Exception] = [Refused(HTTPStatus.INTERNAL_SERVER_ERROR, "not computed")] * len(parts)
        groups: dict[Any, list[int]] = {}
        for place, part in enumerate(parts):
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
        self._count_batch(len(parts), sum(part.rows for part in parts))
        try:
            made = model.function(function).run(joined([part.batch for part in parts]), model.description.batch_size)
        except Exception as error:
            if len(parts) == 1:
                return [_refusal(error)]
            return [answer for part in parts for answer in self._compute([part])]  # one of them is at fault
        answers: list[Answer | Exception] = []
        start = 0
        for part in parts:
            own = {name: array[start : start + part.rows] for name, array in made.items()}
            try:
                answers.append(Answer(_encoded(part, own), part.request.answer, part.rows, model.version))
            except Exception as error:  # a wish that the items cannot meet
                answers.append(_refusal(error))
            start += part.rows
        return answers


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
            return _items(part, recommended(model, part.wish, vectors))
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
