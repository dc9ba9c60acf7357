"""`Connections`: the open connections, of which idle ones give way when there are too many."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any, Final

from aiohttp import web

log = logging.getLogger("sparrow.server")


SPARE: Final = 128
"""Connections beyond the most, for requests of the same moment, which are refused instead of cut off."""
GRACE_SECONDS: Final = 1.0
"""The time that a connection may be idle even if there are too many."""


class Connections:
    """Counts connections, and closes the ones that have been idle longest where they exceed ``most``.

    A connection is idle between two requests, and until the head of its first one has arrived.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._idle: dict[Connection, float] = {}  # since when; the longest idle first
        self._busy: set[Connection] = set()

    @property
    def are_too_many(self) -> bool:
        return len(self._busy) > self._most

    def opened(self, connection: Connection) -> None:
        """Take a new connection, and close an idle one instead if there are too many."""
        now = time.monotonic()
        self._idle[connection] = now
        beyond = len(self._idle) + len(self._busy) - self._most
        for oldest in list(itertools.islice(self._idle, max(beyond, 0))):
            if now - self._idle[oldest] < GRACE_SECONDS and beyond <= SPARE:
                break
            del self._idle[oldest]
            oldest.force_close()
            beyond -= 1

    def closed(self, connection: Connection) -> None:
        self._idle.pop(connection, None)
        self._busy.discard(connection)

    @contextlib.contextmanager
    def busy(self, request: web.Request) -> Iterator[None]:
        """Keep the connection of a request open."""
        connection: Any = request.protocol
        self._idle.pop(connection, None)
        self._busy.add(connection)
        try:
            yield
        finally:
            if connection in self._busy:  # it is open
                self._busy.discard(connection)
                self._idle[connection] = time.monotonic()


class Connection(web.RequestHandler):
    """A connection that is counted, and whose malformed requests get one sentence."""

    def __init__(self, manager: web.Server, held: Connections, refused: Callable[[int], None], **options: Any) -> None:
        """``refused`` receives the status of each request that is malformed."""
        super().__init__(manager, loop=asyncio.get_running_loop(), **options)
        self._held, self._refused = held, refused

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._held.opened(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._held.closed(self)
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return the answer to a request that cannot be parsed, or whose client has left."""
        if isinstance(exc, ConnectionError):
            return error_response(HTTPStatus.BAD_REQUEST, "the client has left")
        self._refused(status)
        if status != HTTPStatus.INTERNAL_SERVER_ERROR:
            why = next(iter((message or "").splitlines()), "").rstrip(": ") or "it cannot be parsed"
            return error_response(HTTPStatus(status), f"the request is malformed: {why}")
        log.error("a request failed", exc_info=exc)
        return error_response(HTTPStatus(status), "the server failed; its log has the cause")


CLOSING = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.SERVICE_UNAVAILABLE)


def error_response(status: HTTPStatus, why: str) -> web.Response:
    """Return the answer of a request that gets no results: one sentence, in JSON."""
    response = web.Response(body=json.dumps({"error": why}).encode(), status=status, content_type="application/json")
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        response.headers["Retry-After"] = "1"
    if status in CLOSING:
        response.force_close()  # the rest of the body is not read
    return response
