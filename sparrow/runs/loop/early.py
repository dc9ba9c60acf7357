"""`Early`: the batches of a run, of which the first is read while the tables get their values."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterator

from sparrow.feed import Pipeline, Prepared


class Early(Iterator[Prepared]):
    """The batches of a pipeline. A thread waits for the first of them from the beginning."""

    def __init__(self, pipeline: Pipeline[Prepared]) -> None:
        self._pipeline, self._batches = pipeline, iter(pipeline)
        pool = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="sparrow-first-batch")
        self._first: concurrent.futures.Future[Prepared] | None = pool.submit(next, self._batches)
        pool.shutdown(wait=False)  # the thread ends with the batch

    def __next__(self) -> Prepared:
        """Return the next batch, or raise the error of the data at its place."""
        if self._first is None:
            return next(self._batches)
        first, self._first = self._first, None
        try:
            return first.result()
        except BaseException:
            self._batches.close()  # type: ignore[attr-defined]
            raise

    def close(self) -> None:
        """End the reading, also while the first batch is still being waited for."""
        if self._first is not None:
            self._pipeline.waits.interrupted = lambda: True
            first, self._first = self._first, None
            concurrent.futures.wait([first])
        self._batches.close()  # type: ignore[attr-defined]
