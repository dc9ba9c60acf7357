"""`Together`: the batches of a run of several processes, which agree on sizes, on stopping, and on failures.

Every process reads its share of the data, or all of them, and routes the examples of its own devices. A vector of
integers for each batch goes through one small collective, `AHEAD` batches before the batch is used: the capacity
that ids need, requests to stop, the end of the data, failures, and the positions in the shares. So all processes pad
alike, stop after the same step, and know the position of the run.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import jax
import numpy as np
import numpy.typing as npt

from sparrow import processes
from sparrow.data import GrowingReader
from sparrow.embedding import Shards
from sparrow.feed import MeshBatch, OneByOne, Pipeline, Prepared, Preparer
from sparrow.runs.errors import Elsewhere
from sparrow.runs.loop.sharing import known_of_shares, told_of_shares

AHEAD: Final = 3
"""Batches whose sizes are agreed on before the current one is used: one of them is laid out meanwhile."""


class Requests:
    """Wishes of this process, and decisions of all of them, as of the last batch that was taken.

    Attributes:
      wants_stop: returns the number of the signal that this process received, or 0.
      stop: the signal that stops all processes, or 0.
      seconds: a clock that all processes share.
    """

    def __init__(self) -> None:
        self.wants_stop: Callable[[], int] = lambda: 0
        self.stop = 0
        self.seconds = 0
        self._began = time.monotonic()

    def status(self) -> tuple[int, int]:
        """Return the part of the vector that `agreed` reads."""
        return self.wants_stop(), int(time.monotonic() - self._began)

    def clock(self) -> float:
        return float(self.seconds)

    def agreed(self, stop: int, seconds: int) -> None:
        """Take the largest numbers of all processes. A request to stop stays."""
        self.stop, self.seconds = stop or self.stop, seconds


class _Status(NamedTuple):
    """The first numbers of the vector; of a process, its number + 1, so that errors name it."""

    stop: int
    seconds: int
    going: int
    ended: int
    failed: int
    most: int
    least: int  # negative: the largest of all is the fewest examples


class _Slot(NamedTuple):
    """A batch, if there is one, with the position after it as far as this process knows it; the vector on its way."""

    routed: MeshBatch | None
    position: dict[str, Any]
    epochs_begun: int
    skipped: int
    late: int
    vector: jax.Array


class _Decided(NamedTuple):
    """A batch with its capacity, the decisions on it, and what all processes know of it."""

    batch: MeshBatch
    status: _Status
    slot: _Slot
    examples: int | None = None  # of all processes; None: every process has all of them


class _Route(OneByOne[MeshBatch]):
    """The work of the pipeline's threads: everything but the layout, which needs the agreed sizes."""

    def __init__(self, preparer: Preparer) -> None:
        super().__init__(preparer.route)
        self.pads = preparer.pads


class Together:
    """Batches of a pipeline, with the pipeline's interface as far as the loop uses it.

    Attributes:
      requests: requests and decisions, which several objects may share.
      waits: as of the pipeline. A process that waits for data is stopped with the others.
    """

    def __init__(self, pipeline: Pipeline[Any], preparer: Preparer) -> None:
        assert preparer.embedder.shards is not None
        pipeline.prepare = _Route(preparer)
        self.requests, self.waits = Requests(), pipeline.waits
        self._pipeline, self._preparer, self._shards = pipeline, preparer, preparer.embedder.shards
        self._error: Exception | None = None
        self._at: _Slot | None = None

    @property
    def batches_ahead(self) -> int:
        return self._pipeline.batches_ahead + AHEAD

    @property
    def skipped(self) -> int:
        """Malformed rows that were left out up to the last batch that was taken."""
        return self._pipeline.skipped if self._at is None else self._at.skipped

    @property
    def stream(self) -> GrowingReader | None:
        """As of the pipeline."""
        return self._pipeline.stream

    @property
    def late(self) -> int:
        """Late rows up to the last batch that was taken."""
        return self._pipeline.late if self._at is None else self._at.late

    @property
    def epochs_begun(self) -> int:
        """As of the pipeline, at the last batch that was taken."""
        return self._pipeline.epochs_begun if self._at is None else self._at.epochs_begun

    def position(self) -> dict[str, Any]:
        """Return the position after the last batch that was taken."""
        return self._pipeline.position() if self._at is None else self._at.position

    def __iter__(self) -> Iterator[Prepared]:
        self._error, self._at = None, None
        slots: deque[_Slot] = deque()
        with contextlib.ExitStack() as stack:
            worker = stack.enter_context(concurrent.futures.ThreadPoolExecutor(1, "sparrow-layout"))
            batches: Any = stack.enter_context(contextlib.closing(iter(self._pipeline)))  # type: ignore[type-var]
            layout: concurrent.futures.Future[Prepared] | None = None
            # Every process starts the same number of collectives, also after its data has ended or failed.
            slots.extend(self._next(batches) for _ in range(AHEAD))
            fitted = self._fitted(slots.popleft())
            while fitted is not None:
                layout = layout or worker.submit(self._preparer.finish, fitted.batch)
                slots.append(self._next(batches))
                following = slots.popleft()
                next_fitted = self._decided(following)
                next_layout = None
                if next_fitted is not None and not isinstance(next_fitted, Exception):
                    next_layout = worker.submit(self._preparer.finish, next_fitted.batch)
                self._at = fitted.slot
                self.requests.agreed(*fitted.status[:2])
                made = layout.result()
                yield made if fitted.examples is None else made._replace(examples=fitted.examples)
                if isinstance(next_fitted, Exception):
                    raise next_fitted
                fitted, layout = next_fitted, next_layout

    def _next(self, batches: Iterator[MeshBatch]) -> _Slot:
        """Take a batch from the pipeline, and start the collective for it."""
        routed = None
        if self._error is None:
            try:
                routed = next(batches, None)
            except Exception as error:  # every process must hear of it
                self._error = error
        number = processes.index() + 1
        needs: npt.NDArray[np.int32] = np.zeros(0, np.int32)
        size = 0
        if routed is not None:
            needs, size = routed.ids.needs, len(routed.batch)
        stop, seconds = self.requests.status()
        status = _Status(
            stop,
            seconds,
            going=number if routed is not None else 0,
            ended=number if routed is None and self._error is None else 0,
            failed=number if self._error is not None else 0,
            most=size,
            least=-size,
        )
        pipeline = self._pipeline
        position = pipeline.position()
        own = list[int]()
        if self._preparer.has_own_rows:
            own = told_of_shares(position, 0 if routed is None else routed.batch.examples, pipeline.skipped)
        capacity = np.zeros(self._preparer.embedder.sharded.num_needs, np.int32)
        capacity[: len(needs)] = needs
        started = largest(self._shards, np.concatenate([np.array([*status, *own], np.int32), capacity]))
        return _Slot(routed, position, pipeline.epochs_begun, pipeline.skipped, pipeline.late, started)

    def _decided(self, slot: _Slot) -> _Decided | Exception | None:
        try:
            return self._fitted(slot)
        except Exception as error:  # raised after the batch before it
            return error

    def _fitted(self, slot: _Slot) -> _Decided | None:
        """Return the batch with its capacity, and the decisions; None at the end of the data in all processes."""
        vector = np.asarray(slot.vector)
        status = _Status(*map(int, vector[: len(_Status._fields)]))
        if status.failed:  # also by a signal while all wait for data
            self.requests.agreed(status.stop, status.seconds)
        if status.failed:
            raise self._failure(status.failed - 1)
        if status.ended and status.going:
            text = f"the data of process {status.ended - 1} ended before that of process {status.going - 1}"
            raise Elsewhere(f"{text}; give all processes the same files")
        if status.most != -status.least:
            text = f"a batch has {-status.least} examples in one process and {status.most} in another"
            raise Elsewhere(f"{text}; give all processes the same files")
        if slot.routed is None:
            return None
        sharded = self._preparer.embedder.sharded
        own, capacity = np.split(vector[len(status) :], [-sharded.num_needs])
        batch, examples = self._preparer.fit(slot.routed, sharded.settle(capacity)), None
        if self._preparer.has_own_rows:
            position, examples, skipped = known_of_shares(slot.position, own.tolist())
            slot = slot._replace(position=position, skipped=skipped)
        return _Decided(batch, status, slot, examples)

    def _failure(self, number: int) -> Exception:
        key = "sparrow/data/{}"
        if self._error is not None:
            with contextlib.suppress(jax.errors.JaxRuntimeError):  # it was published before
                processes.publish(key.format(processes.index()), str(self._error) or type(self._error).__name__)
            return self._error
        return Elsewhere(f"process {number}: {processes.awaited(key.format(number))}")


Batches: TypeAlias = Pipeline[Prepared] | Together
"""The batches of a run, of one process or of several."""


def batches_of(pipeline: Pipeline[Any], preparer: Preparer) -> Batches:
    """Return the batches that a preparer makes of a pipeline, together with the other processes, if there are any."""
    if preparer.embedder.shards is not None and preparer.embedder.shards.processes > 1:
        return Together(pipeline, preparer)
    pipeline.prepare = preparer
    return pipeline


def agreed(preparer: Preparer, routed: MeshBatch) -> MeshBatch:
    """Return a batch with the capacity that all processes agree on, which call this together; waits for them."""
    shards = preparer.embedder.shards
    assert shards is not None
    needs = np.asarray(largest(shards, routed.ids.needs))
    return preparer.fit(routed, preparer.embedder.sharded.settle(needs))


def largest(shards: Shards, vector: npt.NDArray[np.int32]) -> jax.Array:
    """Start to find the largest of each number over all processes, which call this together."""
    parts = shards.put_parts(np.repeat(vector[None], len(shards.local), axis=0))
    made: jax.Array = _largest(shards, parts)
    return made


def _max(shards: Shards, parts: jax.Array) -> jax.Array:
    def local(part: jax.Array) -> jax.Array:
        return jax.lax.pmax(part[0], shards.axes)  # type: ignore[no-untyped-call, no-any-return]

    made: jax.Array = shards.each(local, shards.split, _REPLICATED)(parts)
    return made


_REPLICATED = jax.sharding.PartitionSpec()  # type: ignore[no-untyped-call]
_largest = jax.jit(_max, static_argnums=0)
