"""`Metrics`: the numbers that Prometheus collects."""

from __future__ import annotations

import os
import time
from typing import Any, Final

from sparrow.server.workers import METRICS
from sparrow.serving import Version

SECONDS: Final = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192)
AGES: Final = (0.5, 1, 2, 3, 4, 5, 7, 10, 20, 60, 600, 3600, 86400)
COUNTS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)


class Metrics:
    """Counts of one server, in a registry of its own."""

    def __init__(self, waiting: Any) -> None:
        """Count from 0. ``waiting()`` returns the number of requests that wait for the model."""
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self.registry = CollectorRegistry()
        common: dict[str, Any] = {"namespace": "sparrow", "registry": self.registry}
        self._requests = Counter("requests", "Requests by path and status.", ["path", "status"], **common)
        self._seconds = Histogram(
            "request_seconds",
            "Time from the head of a request to its answer, by path.",
            ["path"],
            buckets=SECONDS,
            **common,
        )
        of: Any = {"labelnames": ["model"], **common}
        self._rows = Counter("rows", "Rows that were computed, by model.", **of)
        self._batch_rows = Histogram("batch_rows", "Rows computed at a time, by model.", buckets=COUNTS, **of)
        about = "Requests computed at a time, by model."
        self._batch_requests = Histogram("batch_requests", about, buckets=COUNTS[:9], **of)
        about = "Time to compute and encode a batch, by model."
        self._batch_seconds = Histogram("batch_seconds", about, buckets=SECONDS, **of)
        self._reloads = Counter("reloads", "Newer exports, by whether they could be loaded.", ["result"], **common)
        lowest: Any = {"multiprocess_mode": "livemin", **common}
        self._step = Gauge("model_step", "Step of the model in use.", **lowest)
        self._delta = Gauge("model_delta", "Number of the last delta of the model in use.", **lowest)
        self._time = Gauge("model_time", "Time when the trainer took the model in use, in seconds.", **lowest)
        self._deltas = Counter("deltas", "Deltas, by whether they could be applied.", ["result"], **common)
        self._age = Histogram("model_age_seconds", "Age of the model that computed an answer.", buckets=AGES, **common)
        about, self._count_waiting = "Requests that wait for the model.", waiting
        self._waiting = Gauge("waiting_requests", about, multiprocess_mode="livesum", **common)

    def count_request(self, path: str, status: int, seconds: float) -> None:
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)
        self._waiting.set(self._count_waiting())

    def count_batch(self, model: str, requests: int, rows: int, seconds: float) -> None:
        self._rows.labels(model).inc(rows)
        self._batch_rows.labels(model).observe(rows)
        self._batch_requests.labels(model).observe(requests)
        self._batch_seconds.labels(model).observe(seconds)

    def count_reload(self, succeeded: bool) -> None:
        self._reloads.labels("loaded" if succeeded else "failed").inc()

    def set_version(self, version: Version) -> None:
        self._step.set(version.step)
        self._delta.set(version.delta)
        self._time.set(version.time or 0.0)

    def count_delta(self, succeeded: bool) -> None:
        self._deltas.labels("applied" if succeeded else "failed").inc()

    def count_age(self, version: Version) -> None:
        if version.time is not None:
            self._age.observe(max(0.0, time.time() - version.time))

    def text(self) -> bytes:
        """Return all numbers in Prometheus' text format, those of all workers where there are several."""
        from prometheus_client import CollectorRegistry, generate_latest, multiprocess

        self._waiting.set(self._count_waiting())
        if METRICS not in os.environ:
            return generate_latest(self.registry)
        together = CollectorRegistry()
        multiprocess.MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        return generate_latest(together)
