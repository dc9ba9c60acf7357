"""`Limits`: bounds on the requests that a server accepts; `Refused`: an answer other than 200, in one sentence."""

from __future__ import annotations

import asyncio
import dataclasses
from http import HTTPStatus
from typing import Any

from sparrow import fields


@dataclasses.dataclass(frozen=True)
class Limits:
    """Bounds on requests, and on the time that they wait.

    Attributes:
      body_bytes: the longest body.
      rows: the most rows of one request.
      values: the most values of one request that are in lists, all columns together.
      items: the most items that a row may ask for.
      recommended_rows: the most rows of a request for recommendations.
      ranked: the most pairs of a user and an item that a ranker scores for a request.
      user_seconds: the time that the vectors and states of users with a key are kept; 0: they are not.
      known_users: the most users that are kept.
      known_bytes: the most bytes of their vectors and states.
      workers: the processes that share the port, each of which knows its own users; several take no new events.
      batch_rows: the most rows that are computed at a time; a single request may have more.
      waiting_requests: the most requests that wait for the model; further ones get 503.
      waiting_bytes: the most bytes of bodies that are received or wait to be read; further requests get 503.
      connections: the most connections that are open at a time: beyond them idle ones are closed, and if none is idle,
        POST requests get 503.
      gather_seconds: the time that a batch waits for requests that are still being received. It never waits for
        requests that have not begun.
      read_seconds: the time in which a client must send the body of a request.
      parse_seconds: the processor time that reading a body may take; longer ones are refused.
      idle_seconds: the time in which a client must send the head of a request; else its connection is closed.
      answer_seconds: the time in which a request must be answered, from its last byte on.
      stop_seconds: the time that open requests have to end when the server stops.
    """

    body_bytes: fields.Count = 8 << 20
    rows: fields.Count = 10_000
    values: fields.Count = 1_000_000
    items: fields.Count = 1000
    recommended_rows: fields.Count = 1024
    ranked: fields.Count = 50_000
    user_seconds: fields.NotNegative = 0.0
    known_users: fields.Count = 100_000
    known_bytes: fields.Count = 1 << 30
    workers: fields.Count = 1
    batch_rows: fields.Count = 1024
    waiting_requests: fields.Count = 1024
    waiting_bytes: fields.Count = 256 << 20
    connections: fields.Count = 1024
    gather_seconds: fields.NotNegative = 0.002
    read_seconds: fields.NotNegative = 10.0
    parse_seconds: fields.NotNegative = 2.0
    idle_seconds: fields.NotNegative = 60.0
    answer_seconds: fields.NotNegative = 30.0
    stop_seconds: fields.NotNegative = 30.0

    def __post_init__(self) -> None:
        fields.check(self)


def check_rows(rows: int, most_rows: int) -> None:
    """Refuse more rows than a request may have."""
    if rows > most_rows:
        why = f"a request may have at most {most_rows} rows, got {rows}; send them in several requests"
        raise Refused(why, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)


def too_many_values(most: int) -> Refused:
    """Return the refusal of more values than a request may have."""
    why = f"a request may have at most {most} values in lists; send the rows in several requests"
    return Refused(why, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)


class Refused(Exception):
    """A request that gets no results.

    Attributes:
      status: the status of the answer.
      why: one sentence for the client.
    """

    def __init__(self, why: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> None:
        super().__init__(why)
        self.status, self.why = status, " ".join(why.split())


def deliver(future: asyncio.Future[Any], result: Any) -> None:
    """Give the one who waits for a future its result, or its error."""
    if future.done():  # its client did not wait
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
