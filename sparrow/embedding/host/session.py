"""`Session`: a loop over batches with tables in host memory."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import jax
import numpy as np

from sparrow import fields
from sparrow.background import prefetch
from sparrow.embedding.host.lookahead import staged
from sparrow.embedding.host.plans import IdsOf
from sparrow.embedding.host.swaps import Swap
from sparrow.embedding.host.tables import HostTables
from sparrow.embedding.host.writer import Closed
from sparrow.embedding.packed_batch import PackedBatch
from sparrow.embedding.state import EmbeddingState

if TYPE_CHECKING:
    from sparrow.embedding.dynamic.new_rows import NewRows
    from sparrow.embedding.dynamic.vocabularies import Vocabularies
    from sparrow.embedding.embedder import Embedder
    from sparrow.embedding.sizes import Sizes

T = TypeVar("T")
S = TypeVar("S")


@dataclasses.dataclass(frozen=True)
class Staged:
    """One optimizer step, ready for the device.

    Attributes:
      batches: its batches, packed, with rows of the device's caches.
      others: the values that came with their inputs, such as labels.
      swap: rows that come and leave before it; `Session.advance` takes it.
      new: rows of dynamic tables that start fresh, by batch.
    """

    batches: tuple[PackedBatch, ...]
    others: tuple[Any, ...]
    swap: Swap
    new: tuple[dict[str, Any], ...] = ()

    @property
    def batch(self) -> PackedBatch:
        """The batch of a step that has one."""
        (batch,) = self.batches
        return batch

    @property
    def other(self) -> Any:
        """The value that came with its inputs."""
        (other,) = self.others
        return other


class Session:
    """Tables in host memory for a loop of one's own: `Embedder.session` makes it.

    >>> import sparrow as sp
    >>> users = sp.TableSpec(name="users", vocabulary_size=1000, embedding_dim=4, optimizer=sp.rules.SGD(0.5),
    ...                      memory=sp.HostMemory(cache=0.1))
    >>> emb = sp.Embedder([sp.FeatureSpec(name="user", table_spec=users)])
    >>> session = emb.session()
    >>> state = session.init(jax.random.key(0))
    >>> batches = (({"user": np.array([n, n + 1])}, None) for n in range(3))
    >>> for step in session.stream(batches):
    ...     state = session.advance(state, step)
    ...     acts = emb.lookup(state, step.batch)
    ...     state = emb.update(state, step.batch, acts)
    >>> session.table(state, "users").shape, session.host.total.coming
    ((1000, 4), 4)

    A state is an `EmbeddingState`, or a dataclass that holds one as ``embedding``, such as of `sparrow.Optimizer`.

    Attributes:
      host: the tables, and counts of the work on their caches (``host.total``).
    """

    def __init__(
        self, embedder: Embedder, *, accumulate: int = 1, ahead: int = 2, lookahead: int | None = None
    ) -> None:
        fields.integer("accumulate", accumulate)
        fields.integer("ahead", ahead, at_least=0)
        if lookahead is not None:
            fields.integer("lookahead", lookahead, at_least=0)
        self.embedder, self._accumulate, self._ahead = embedder, accumulate, ahead
        self.host: HostTables = embedder.host_tables(lookahead=ahead + 4 if lookahead is None else lookahead)

    def init(self, key: jax.Array) -> EmbeddingState:
        """Return fresh tables and slots: in host memory, and of the other tables, and empty caches, on the device."""
        self.host.init(key)
        return self.embedder.init(key)

    def stream(
        self,
        batches: Iterable[tuple[Mapping[str, Any], Any]],
        *,
        sizes: Sizes | None = None,
        vocabularies: Vocabularies | None = None,
    ) -> Iterator[Staged]:
        """Yield the steps of ``batches``: pairs of the inputs of `Embedder.pack` and any other value.

        Give each step to `advance` before anything else. A loop that ends early calls `restart` before the next stream.
        """
        if not self.host.is_idle:
            raise ValueError("the last stream was not used up: call session.restart(state) before the next one")
        names = list(self.host.stacks)

        def steps() -> Iterator[tuple[list[PackedBatch], tuple[Any, ...]]]:
            given = iter(batches)
            while group := list(itertools.islice(given, self._accumulate)):
                packed = [self.embedder.pack(inputs, sizes=sizes, vocabularies=vocabularies) for inputs, _ in group]
                yield packed, tuple(other for _, other in group)

        def ids_of(step: tuple[list[PackedBatch], Any]) -> list[IdsOf]:
            return [{name: batch.lookups[name].ids for name in names} for batch in step[0]]  # type: ignore[misc]

        def new_of(step: tuple[list[PackedBatch], Any]) -> list[dict[str, NewRows]]:
            return [batch.new for batch in step[0]]

        def made() -> Generator[Staged, None, None]:
            for (packed, others), swap in staged(self.host, steps(), ids_of, new_of):
                new = tuple(self.host.new_in_slots(batch.new) for batch in packed)
                ready = [dataclasses.replace(batch, new={}, planned=True) for batch in packed]
                yield Staged(tuple(jax.device_put(ready)), others, swap, new)

        return _prefetched(made, self._ahead, lambda: self.host.writer.close()) if self._ahead else made()

    def advance(self, state: S, step: Staged) -> S:
        """Return the state with the rows of a step on the device. The state is donated."""
        embedding = self.host.advance(_embedding(state), step.swap)
        for new in step.new:
            if new:
                embedding, _ = self.embedder.admit(embedding, PackedBatch({}, (), new))
        return _with(state, embedding)

    def restart(self, state: S) -> S:
        """Store all rows and forget the steps that were prepared and not made. Return the state with empty caches."""
        self.host.restart(_embedding(state))
        return state

    def flush(self, state: Any) -> None:
        """Bring host memory up to date with ``state``, the state after the last step that was made."""
        self.host.flush(_embedding(state))

    def table(self, state: Any, name: str) -> Any:
        """Return the logical table, as `Embedder.table` does; of one in host memory, a copy."""
        if name not in self.host.tables:
            return self.embedder.table(_embedding(state), name)
        self.flush(state)
        return self.host.array(name).copy()

    def slots(self, state: Any, name: str) -> dict[str, Any]:
        """Return the logical slots of a table, by slot name; of one in host memory, copies."""
        if name not in self.host.tables:
            return self.embedder.slots(_embedding(state), name)
        self.flush(state)
        return {slot: self.host.array(name, slot).copy() for slot in self.host.slot_names(name)}

    def replace(self, state: S, name: str, table: Any = None, slots: Mapping[str, Any] | None = None) -> S:
        """Return the state with the values of a table, or of some of its slots, replaced, such as by saved ones."""
        slots = slots or {}
        given: list[tuple[str | None, Any]] = [(None, table), *slots.items()]
        if name not in self.host.tables:
            embedding = _embedding(state)
            if table is not None:
                embedding = self.embedder.with_table(embedding, name, table)
            return _with(state, self.embedder.with_slots(embedding, name, slots))
        state = self.restart(state)
        for slot, values in given:
            if values is not None:
                self.host.overwrite(name, slot, values)
        return state

    def reading(
        self, state: S, inputs: Mapping[str, Any], *, vocabularies: Vocabularies | None = None
    ) -> tuple[S, PackedBatch]:
        """Return a state and a batch for `Embedder.lookup` alone, such as to evaluate: caches and plans stay."""
        self.flush(state)
        embedding = _embedding(state)
        packed = self.embedder.pack(inputs, vocabularies=vocabularies, train=False)
        rows = {name: self.host.read(name, np.asarray(packed.lookups[name].ids)) for name in self.host.stacks}
        embedding = dataclasses.replace(embedding, tables={**embedding.tables, **rows})
        return _with(state, embedding), dataclasses.replace(packed, planned=True)

    def close(self) -> None:
        """End the session's threads."""
        self.host.close()


def _embedding(state: Any) -> EmbeddingState:
    held = state if isinstance(state, EmbeddingState) else getattr(state, "embedding", None)
    if not isinstance(held, EmbeddingState):
        raise TypeError(f"a session takes the state of its Embedder, or of an Optimizer, got {type(state).__name__}")
    return held


def _with(state: S, embedding: EmbeddingState) -> S:
    if isinstance(state, EmbeddingState):
        return embedding  # type: ignore[return-value]
    return dataclasses.replace(state, embedding=embedding)  # type: ignore[type-var]


def _prefetched(
    items: Callable[[], Generator[T, None, None]], ahead: int, stop: Callable[[], None]
) -> Generator[T, None, None]:
    """Yield the items, made early by a thread. Closing it calls ``stop``, which ends waits of that thread."""

    def end(thread: threading.Thread, is_done: bool) -> None:
        if not is_done:
            stop()
        with contextlib.suppress(Closed):
            thread.join(3.0)

    return prefetch(items, ahead, name="sparrow-host-stage", end=end)
