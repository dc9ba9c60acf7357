"""`CacheWork`: hits, bytes and waits of the caches of tables in host memory, for the log."""

from __future__ import annotations

from sparrow.embedding import Counts, HostTables


class CacheWork:
    """The work on the caches between two lines of the log.

    >>> CacheWork(None).lap()
    {}
    """

    def __init__(self, host: HostTables | None) -> None:
        self._host = host
        self._before, self._steps = Counts(), 0

    def lap(self) -> dict[str, float]:
        """Return the numbers since the last call: the share of hits, bytes a step, and seconds waited in all."""
        if self._host is None:
            return {}
        before, steps = self._before, self._host.made - self._steps
        self._before, self._steps = self._host.total, self._host.made
        now = self._before - before
        return {
            "cache_hits": now.hits,
            "cache_bytes_in": now.bytes_in / max(steps, 1),
            "cache_bytes_out": now.bytes_out / max(steps, 1),
            "cache_waits": now.waited,
        }
