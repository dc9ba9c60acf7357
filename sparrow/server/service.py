"""`Service`: the paths of the server, from a request to its answer."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, TypeVar

from aiohttp import web

from sparrow.data import DataError
from sparrow.retrieval import CANDIDATES
from sparrow.server.answering import Answer, Answerer
from sparrow.server.connections import Connections, error_response
from sparrow.server.gathering import Gatherer
from sparrow.server.known_users import KnownUsers
from sparrow.server.limits import Limits, Refused
from sparrow.server.metrics import Metrics
from sparrow.server.reading import Readers
from sparrow.server.requests import FUNCTION, SHORT, Form, Ranked, ReadRequest, Request, Served, read
from sparrow.serving import ExportedModel, Ranker
from sparrow.serving.description import APPEND, PREDICT, STATES
from sparrow.versions import __version__

log = logging.getLogger("sparrow.server")
CONTENT_TYPES: Final[dict[Form, str]] = {"json": "application/json", "arrow": "application/vnd.apache.arrow.stream"}
FORMS: Final = {kind: form for form, kind in CONTENT_TYPES.items()}
PAGE: Final = "/page"
"""The path of the files of a page."""
INDEX: Final = "index.html"
T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Service:
    """Answers of one model over HTTP.

    Attributes:
      metrics: the counts.
      is_stopping: whether the server stops: ``/health`` then answers 503, so that no new requests are sent to it.
      connections: the open connections.
    """

    def __init__(
        self,
        model: ExportedModel,
        limits: Limits,
        ranker: ExportedModel | None = None,
        candidates: int = CANDIDATES,
        page: Path | None = None,
    ) -> None:
        if page is not None and not (page / INDEX).is_file():
            raise DataError(f"has no {INDEX}, the page to serve", str(page))
        self._page = page
        self.limits, self.is_stopping = limits, False
        self.metrics = Metrics(lambda: self._gatherer.waiting)
        self.metrics.set_version(model.version)
        self._ranker, self._candidates = ranker, candidates
        self._served = self._joined(model, ranker)
        self._known = KnownUsers(limits.user_seconds, limits.known_users, limits.known_bytes)
        self._readers = Readers(seconds=limits.parse_seconds, most_waiting=limits.waiting_requests)
        self._gatherer: Gatherer[ReadRequest, Answer] = Gatherer(
            Answerer(limits.batch_rows, self.metrics.count_batch, self._known),
            gather_seconds=limits.gather_seconds,
            most_waiting=limits.waiting_requests,
            is_quick=lambda part: part.columns is not None,  # a short request, without a search
        )
        self.connections = Connections(limits.connections)
        self._held_bytes = 0

    def use(self, model: ExportedModel) -> None:
        """Answer with another model from the next request on."""
        self._served = self._joined(model, self._ranker)
        self.metrics.set_version(model.version)

    def apply(self, model: ExportedModel, change: Callable[[], None], is_ranker: bool = False) -> None:
        """Change a model that is in use between two batches: a request sees the version before, or the one after."""
        self._gatherer.between(change)
        if not is_ranker:
            self.metrics.set_version(model.version)
        self.metrics.count_delta(True)

    def use_ranker(self, ranker: ExportedModel) -> None:
        """Order items by another model from the next request on."""
        self._served, self._ranker = self._joined(self._model, ranker), ranker

    @property
    def _model(self) -> ExportedModel:
        return self._served.model

    def _joined(self, model: ExportedModel, ranker: ExportedModel | None) -> Served:
        if ranker is None:
            return Served(model)
        if model.index is None:
            raise DataError("has no items that a ranker could order; write it with --index", str(model.folder))
        try:
            return Served(model, Ranked(Ranker(ranker, model.index), self._candidates))
        except ValueError as error:
            raise DataError(str(error), str(ranker.folder)) from None

    def count_malformed(self, status: int) -> None:
        self.metrics.count_request("other", status, 0.0)

    def stop(self) -> None:
        self._readers.stop()
        self._gatherer.stop()

    def app(self) -> web.Application:
        made = web.Application(middlewares=[self._answered], client_max_size=self.limits.body_bytes)
        made.add_routes(
            [
                web.post("/predict", self._predict),
                web.post("/vectors", self._vectors),
                web.post("/v1/recommend", self._recommend),
                web.post("/v1/events", self._events),
                web.get("/health", self._health),
                web.get("/metadata", self._metadata),
                web.get("/metrics", self._metrics),
            ]
        )
        if self._page is not None:
            made.router.add_get(f"{PAGE}/", self._index)
            made.router.add_static(PAGE, self._page)
        return made

    @web.middleware
    async def _answered(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Count the request, and answer an error by one sentence in JSON."""
        start = time.monotonic()
        path = request.path if request.match_info.http_exception is None else "other"
        path = PAGE if path.startswith(f"{PAGE}/") else path  # one name for all its files
        try:
            with self.connections.busy(request):
                if self.connections.are_too_many and request.method == "POST":
                    raise Refused("too many connections are open; try again later", HTTPStatus.SERVICE_UNAVAILABLE)
                response = await handler(request)
        except Refused as refused:
            response = error_response(refused.status, refused.why)
        except web.HTTPException as error:
            response = error_response(HTTPStatus(error.status), _sentence(error, request))
            response.headers.update({name: error.headers[name] for name in ("Allow",) if name in error.headers})
        except web.RequestPayloadError:
            response = error_response(
                HTTPStatus.BAD_REQUEST, "the body is malformed, or shorter than its head declares"
            )
            response.force_close()
        except (ConnectionError, asyncio.CancelledError):  # the client has left
            self.metrics.count_request(path, 499, time.monotonic() - start)
            raise
        except Exception:
            log.exception("a request failed")
            response = error_response(HTTPStatus.INTERNAL_SERVER_ERROR, "the server failed; its log has the cause")
        self.metrics.count_request(path, response.status, time.monotonic() - start)
        return response

    async def _predict(self, request: web.Request) -> web.StreamResponse:
        return await self._results(request, PREDICT)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        if _forms(request) != ("json", "json"):
            raise Refused("events are sent and answered as JSON", HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
        if self.limits.workers > 1:  # another worker may hold the user, and would go on with the older state
            why = f"each of the {self.limits.workers} workers keeps its own users; append events with --workers 1, or "
            raise Refused(f"{why}send complete histories", HTTPStatus.CONFLICT)
        return await self._results(request, APPEND)

    async def _vectors(self, request: web.Request) -> web.StreamResponse:
        tower = request.query.get("tower", "")
        return await self._results(request, "" if tower in (PREDICT, *STATES) else tower)

    async def _recommend(self, request: web.Request) -> web.StreamResponse:
        given = request.query.get("k")
        if given is not None and not (given.isascii() and given.isdecimal() and len(given) < 10):
            raise Refused(f"k must be an integer, got '{given[:40]}'")
        return await self._results(request, FUNCTION, recommends=True, k=None if given is None else int(given))

    async def _results(self, request: web.Request, function: str, **options: Any) -> web.StreamResponse:
        form, answer = _forms(request)
        self._gatherer.receiving(1)
        try:
            with self._held(request):
                asked = Request(function, await self._body(request), form, answer, **options)
                deadline = asyncio.get_running_loop().time() + self.limits.answer_seconds
                if form == "json" and len(asked.body) <= SHORT:
                    part = read(self._served, asked, self.limits, self._known)
                else:
                    work = functools.partial(read, self._served, asked, self.limits, self._known)
                    part = await _in_time(self._readers.result(work, len(asked.body)), deadline)
        except BaseException:
            self._gatherer.receiving(-1)
            raise
        made = await _in_time(self._gatherer.result(part), deadline)
        self.metrics.count_age(made.version)
        taken = {} if made.version.time is None else {"X-Sparrow-Time": f"{made.version.time:.3f}"}
        headers = {"X-Sparrow-Version": str(made.version), **taken}
        return web.Response(body=made.body, content_type=CONTENT_TYPES[made.form], headers=headers)

    @contextlib.contextmanager
    def _held(self, request: web.Request) -> Iterator[None]:
        """Count the body of a request, from before it is received until it was read."""
        size = self.limits.body_bytes if request.content_length is None else request.content_length
        if self._held_bytes and self._held_bytes + size > self.limits.waiting_bytes:
            raise Refused("too many long bodies wait already; try again later", HTTPStatus.SERVICE_UNAVAILABLE)
        self._held_bytes += size
        try:
            yield
        finally:
            self._held_bytes -= size

    async def _body(self, request: web.Request) -> bytes:
        most = self.limits.body_bytes
        if (request.content_length or 0) > most:
            raise _too_long(most)
        try:
            if request.content.is_eof():  # it came with the head
                return await request.read()
            async with asyncio.timeout(self.limits.read_seconds):
                return await request.read()
        except TimeoutError:
            why = f"the body did not come within {self.limits.read_seconds:g} seconds"
            raise Refused(why, HTTPStatus.REQUEST_TIMEOUT) from None
        except web.HTTPRequestEntityTooLarge:
            raise _too_long(most) from None

    async def _index(self, request: web.Request) -> web.StreamResponse:
        assert self._page is not None
        return web.FileResponse(self._page / INDEX)

    async def _health(self, request: web.Request) -> web.StreamResponse:
        if self.is_stopping:
            raise Refused("the server stops", HTTPStatus.SERVICE_UNAVAILABLE)
        version = self._model.version
        return _json({"status": "ok", "step": version.step, "version": str(version)})

    async def _metadata(self, request: web.Request) -> web.StreamResponse:
        about = self._model.description
        limits = {"body_bytes": self.limits.body_bytes, "rows": self.limits.rows}
        facts = {
            "model": about.model,
            "step": self._model.version.step,
            "version": str(self._model.version),
            "created": about.created,
            "signature": self._model.signature,
            "towers": self._model.towers,
            "limits": limits,
            "versions": {"sparrow": __version__, "export": about.versions},
        }
        return _json(facts)

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        return web.Response(body=self.metrics.text(), content_type="text/plain", charset="utf-8")


async def _in_time(awaited: Awaitable[T], deadline: float) -> T:
    """Return the result, or refuse a request that has none at the deadline, by the clock of the loop."""
    try:
        async with asyncio.timeout_at(deadline):
            return await awaited
    except TimeoutError:
        raise Refused("the model is too busy; try again later", HTTPStatus.SERVICE_UNAVAILABLE) from None


def _forms(request: web.Request) -> tuple[Form, Form]:
    """Return the form of the body and of the answer: the form that the client accepts, or else the body's."""
    if request.headers.get("Content-Encoding", "identity") != "identity":
        raise Refused("compressed bodies are not read; send the body as it is", HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
    form = FORMS.get(request.content_type)
    if form is None:
        why = f"the Content-Type must be {' or '.join(CONTENT_TYPES.values())}"
        raise Refused(why, HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
    accepted = [kind.partition(";")[0].strip() for kind in request.headers.get("Accept", "").split(",")]
    return form, next((FORMS[kind] for kind in accepted if kind in FORMS), form)


def _too_long(most: int) -> Refused:
    why = f"a body may have at most {most} bytes; send fewer rows at a time"
    return Refused(why, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)


def _sentence(error: web.HTTPException, request: web.Request) -> str:
    if error.status == HTTPStatus.NOT_FOUND:
        paths = "POST to /predict, /vectors, /v1/recommend or /v1/events, GET /health, /metadata or /metrics"
        return f"there is no such path; {paths}"
    if isinstance(error, web.HTTPMethodNotAllowed):
        return f"{request.path} takes {' or '.join(sorted(error.allowed_methods - {'HEAD'}))}"
    return error.reason or HTTPStatus(error.status).phrase


def _json(fields: dict[str, Any]) -> web.Response:
    return web.Response(body=json.dumps(fields).encode(), content_type="application/json")
