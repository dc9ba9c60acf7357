"""`Memory`: the bytes that batches made ahead may take."""

from __future__ import annotations

import threading


class Memory:
    """A count of the bytes in use, shared by threads.

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
        """Add ``nbytes``, which may be negative."""
        with self._lock:
            self.used += nbytes
            self.most = max(self.most, self.used)

    def has_room(self, nbytes: int) -> bool:
        """Return whether ``nbytes`` more stay within the limit."""
        return self.used + nbytes <= self.limit
