"""`KnownUsers`: the vectors of users by key, for a while."""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]


class Known(NamedTuple):
    """Users that were computed before.

    Attributes:
      vectors: (users, dim).
      columns: the columns that a ranker reads, a list of values each.
    """

    vectors: Vectors
    columns: dict[str, list[Any]]


class KnownUsers:
    """Users by key, the least recently added of which goes when there are too many. Any thread may use it.

    >>> users = KnownUsers(seconds=60, most=2)
    >>> users.add("model", ["a", "b"], np.eye(2, dtype=np.float32), {"age": [30, 40]})
    >>> users.find("model", ["b", "b"]).columns
    {'age': [40, 40]}
    >>> users.find("a newer model", ["a"]) is None
    True
    """

    def __init__(self, seconds: float, most: int, now: Callable[[], float] = time.monotonic) -> None:
        """``seconds``: the time that a user is known; 0: none is. ``most``: the number of users."""
        self.seconds, self._most, self._now = seconds, most, now
        self._held: collections.OrderedDict[Any, tuple[float, Any, Vectors, dict[str, Any]]] = collections.OrderedDict()
        self._lock = threading.Lock()

    def add(self, model: Any, keys: Sequence[Any], vectors: Vectors, columns: dict[str, list[Any]]) -> None:
        """Keep the vectors that a version of a model gave to users, and their columns."""
        until = self._now() + self.seconds
        with self._lock:
            for row, key in enumerate(keys):
                own = {name: values[row] for name, values in columns.items()}
                self._held[key] = (until, model, np.array(vectors[row]), own)
                self._held.move_to_end(key)
            while len(self._held) > self._most:
                self._held.popitem(last=False)

    def find(self, model: Any, keys: Sequence[Any]) -> Known | None:
        """Return users, or None where the model has not computed one of them, or its time is over."""
        now = self._now()
        with self._lock:
            found = [self._held.get(key) for key in keys]
        fresh = [one for one in found if one is not None and one[0] > now and one[1] == model]
        if not fresh or len(fresh) < len(keys):
            return None
        return Known(np.stack([one[2] for one in fresh]), {n: [one[3][n] for one in fresh] for n in fresh[0][3]})

    def __len__(self) -> int:
        return len(self._held)
