"""`Memory`: the bytes that batches made ahead may take."""

from __future__ import annotations

import threading


class Memory:
    """Counts the bytes in use; many threads may.

    >>> memory = Memory(10)
    >>> memory.add(8)
    >>> memory.has_room(3), memory.most
    (False, 8)
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = self.most = 0
        self._lock = threading.Lock()

    def add(self, nbytes: int) -> None:
        """Use so much more, or less."""
        with self._lock:
            self.used += nbytes
            self.most = max(self.most, self.used)

    def has_room(self, nbytes: int) -> bool:
        """Whether so much more stays within the limit."""
        return self.used + nbytes <= self.limit
