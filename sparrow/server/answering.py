"""Answers to requests: bodies become batches, batches are joined, computed and cut apart again."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any, Final, Literal, NamedTuple

from sparrow.data import Batch, DataError
from sparrow.server import arrow_bodies, json_bodies
from sparrow.server.joined import joined, kinds
from sparrow.server.limits import Limits
from sparrow.server.refusals import Refused
from sparrow.serving import ExportedModel, Function
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
    """

    function: str
    body: bytes
    form: Form
    answer: Form


class Answer(NamedTuple):
    """An answer with results: its body, its form, and the number of its rows."""

    body: bytes
    form: Form
    rows: int


@dataclasses.dataclass
class _Part:
    """A request whose rows were read."""

    place: int
    request: Request
    function: Function
    batch: Batch
    rows: int


class Answerer:
    """Answers of a model that may be replaced between two batches."""

    def __init__(self, model: ExportedModel, limits: Limits, count_batch: Callable[[int, int], None]) -> None:
        """``count_batch`` receives the requests and the rows of each batch that is computed."""
        self.model = model
        self._limits, self._count_batch = limits, count_batch

    def __call__(self, requests: Sequence[Request]) -> list[Answer | Exception]:
        """Return an answer, or an error, for each request; one model computes all of them."""
        model = self.model
        answers: list[Answer | Exception] = [Refused(HTTPStatus.INTERNAL_SERVER_ERROR, "not computed")] * len(requests)
        groups: dict[Any, list[_Part]] = {}
        for place, request in enumerate(requests):
            try:
                part = self._read(model, place, request)
            except Exception as error:
                answers[place] = _refusal(error)
                continue
            joinable = model.description.independent_rows and part.rows < self._limits.batch_rows
            groups.setdefault((request.function, kinds(part.batch)) if joinable else place, []).append(part)
        for group in groups.values():
            for parts in _chunks(group, self._limits.batch_rows):
                for part, answer in zip(parts, self._compute(model, parts), strict=True):
                    answers[part.place] = answer
        return answers

    def _read(self, model: ExportedModel, place: int, request: Request) -> _Part:
        """Return the rows of a request."""
        if request.function not in model.description.functions:
            towers = ", ".join(model.towers)
            why = f"the towers are {towers}; add ?tower=NAME" if towers else "the model has no towers"
            raise Refused(HTTPStatus.NOT_FOUND, why)
        function = model.function(request.function)
        read: Any = json_bodies.columns_of if request.form == "json" else arrow_bodies.table_of
        batch = function.read(read(request.body, function.columns, self._limits.rows))
        return _Part(place, request, function, batch, len(batch))

    def _compute(self, model: ExportedModel, parts: Sequence[_Part]) -> list[Answer | Exception]:
        """Return the answers of requests that are computed together."""
        self._count_batch(len(parts), sum(part.rows for part in parts))
        try:
            made = parts[0].function.run(joined([part.batch for part in parts]), model.description.batch_size)
        except Exception as error:
            if len(parts) == 1:
                return [_refusal(error)]
            return [answer for part in parts for answer in self._compute(model, [part])]  # one of them is at fault
        answers: list[Answer | Exception] = []
        start = 0
        for part in parts:
            own = {name: array[start : start + part.rows] for name, array in made.items()}
            answers.append(Answer(_encoded(model, part, own), part.request.answer, part.rows))
            start += part.rows
        return answers


def _encoded(model: ExportedModel, part: _Part, made: dict[str, Any]) -> bytes:
    step, request = model.description.step, part.request
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


def _chunks(parts: Sequence[_Part], most_rows: int) -> list[list[_Part]]:
    """Return the parts in their order, in lists of at most ``most_rows`` rows, or of one part."""
    chunks: list[list[_Part]] = [[]]
    rows = 0
    for part in parts:
        if chunks[-1] and rows + part.rows > most_rows:
            chunks.append([])
            rows = 0
        chunks[-1].append(part)
        rows += part.rows
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
