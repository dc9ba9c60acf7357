"""`Refused`: an answer other than 200, in one sentence."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any


class Refused(Exception):
    """A request that gets no results.

    Attributes:
      status: the status of the answer.
      why: one sentence for the client.
    """

    def __init__(self, status: HTTPStatus, why: str) -> None:
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
