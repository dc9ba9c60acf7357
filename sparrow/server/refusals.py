"""`Refused`: an answer other than 200, in one sentence."""

from __future__ import annotations

from http import HTTPStatus


class Refused(Exception):
    """A request that gets no results.

    Attributes:
      status: the status of the answer.
      why: one sentence for the client.
    """

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status, self.why = status, " ".join(why.split())
