"""`KnownUsers`: the vectors and states of users by key, for a while."""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sparrow.serving import States

Vectors = npt.NDArray[np.float32]


class Known(NamedTuple):
    """Users that were computed before.

    Attributes:
      vectors: (users, dim); None: there are none.
      columns: the columns that a ranker reads, a list of values each.
      states: the states of their histories; None: there are none.
    """

    vectors: Vectors | None
    columns: dict[str, list[Any]]
    states: States | None


class _User(NamedTuple):
    until: float
    model: Any
    vector: Any
    columns: dict[str, Any]
    state: Any  # without the zeros at its end: a short history takes less
    width: int
    left: int

    @property
    def bytes(self) -> int:
        return sum(0 if array is None else int(array.nbytes) for array in (self.vector, self.state))


class KnownUsers:
    """Users by key, the least recently added of which goes when there are too many. Any thread may use it.

    >>> users = KnownUsers(seconds=60, most=2, most_bytes=1000)
    >>> users.add("model", ["a", "b"], np.eye(2, dtype=np.float32), {"age": [30, 40]})
    >>> users.find("model", ["b", "b"]).columns
    {'age': [40, 40]}
    >>> users.find("a newer model", ["a"]) is None
    True
    """

    def __init__(self, seconds: float, most: int, most_bytes: int, now: Callable[[], float] = time.monotonic) -> None:
        """``seconds``: the time that a user is known; 0: none is. ``most``: the number of users."""
        self.seconds, self._most, self._most_bytes, self._now = seconds, most, most_bytes, now
        self._held: collections.OrderedDict[Any, _User] = collections.OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def add(
        self,
        model: Any,
        keys: Sequence[Any],
        vectors: Vectors | None,
        columns: Mapping[str, list[Any]] = MappingProxyType({}),
        states: States | None = None,
    ) -> None:
        """Keep the vectors and states that a version of a model gave to users, and their columns."""
        until = self._now() + self.seconds
        with self._lock:
            for row, key in enumerate(keys):
                own = {name: values[row] for name, values in columns.items()}
                vector = None if vectors is None else np.array(vectors[row])
                state: tuple[Any, int, int] = None, 0, 0
                if states is not None:
                    state = _short(states.values[row]), states.values.shape[1], int(states.left[row])
                self._drop(key)
                self._held[key] = user = _User(until, model, vector, own, *state)
                self._bytes += user.bytes
            while len(self._held) > self._most or self._bytes > self._most_bytes:
                self._drop(next(iter(self._held)))

    def forget(self, keys: Sequence[Any]) -> None:
        """Forget users, which are computed from their rows again."""
        with self._lock:
            for key in keys:
                self._drop(key)

    def _drop(self, key: Any) -> None:
        user = self._held.pop(key, None)
        self._bytes -= 0 if user is None else user.bytes

    def find(self, model: Any, keys: Sequence[Any]) -> Known | None:
        """Return users, or None where the model has not computed one of them, or its time is over."""
        now = self._now()
        with self._lock:
            found = [self._held.get(key) for key in keys]
        fresh = [one for one in found if one is not None and one.until > now and one.model == model]
        if not fresh or len(fresh) < len(keys):
            return None
        vectors = None if fresh[0].vector is None else np.stack([one.vector for one in fresh])
        columns = {name: [one.columns[name] for one in fresh] for name in fresh[0].columns}
        states = None
        if fresh[0].state is not None:
            values = np.zeros((len(fresh), fresh[0].width), np.float32)
            for row, one in enumerate(fresh):
                values[row, : len(one.state)] = one.state
            states = States(values, np.array([one.left for one in fresh]), vectors)
        return Known(vectors, columns, states)

    def __len__(self) -> int:
        return len(self._held)


def _short(row: Vectors) -> Vectors:
    last = np.flatnonzero(row)
    return np.array(row[: last[-1] + 1 if last.size else 0])
