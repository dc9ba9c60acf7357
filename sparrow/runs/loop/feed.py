"""`Feed`: a batch as the jitted functions take it, made ahead of time in the pipeline's thread."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt

from sparrow.config import Assembly, Task
from sparrow.data import ID, Batch, DataError, join
from sparrow.embedding import Embedder, Learned, PackedBatch, Sizes, of_one_size
from sparrow.runs.loop.unvarying import Unvarying
from sparrow.runs.recorded.traffic import Counted, Traffic
from sparrow.tasks import NEGATIVE_IDS, POSITIVE_IDS


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Feed:
    """A batch on the device.

    Attributes:
      packed: what the tables are looked up with.
      numbers: dense features, (size, dim) float32.
      columns: labels, sample weights and sessions, (size,), by column.
      size: how many examples it holds.
    """

    packed: PackedBatch
    numbers: dict[str, jax.Array]
    columns: dict[str, jax.Array]
    size: int = dataclasses.field(metadata={"static": True})


class Prepared(NamedTuple):
    """A batch on the device, and what only the host can use.

    Attributes:
      feed: for the jitted functions.
      keys: what metrics group by, 64 bits wide.
      learned: the sizes that batches have grown to, this one included.
      counted: how often each row is looked up, where that was counted.
    """

    feed: Feed
    keys: dict[str, npt.NDArray[np.int64]]
    learned: Learned
    counted: Counted | None = None


class Preparer:
    """Packs batches and copies them to the device. Called by the pipeline's thread while the device computes.

    Attributes:
      sizes: what batches are padded to; grows with them.
      unvarying: looks for columns that hold one value throughout.
    """

    def __init__(
        self, embedder: Embedder, assembly: Assembly, tasks: Mapping[str, Task], traffic: Traffic | None = None
    ) -> None:
        self._embedder, self._assembly, self._traffic = embedder, assembly, traffic
        self.sizes = Sizes()
        self.unvarying = Unvarying()
        losses = [(task, loss) for task in tasks.values() for loss in task.losses]
        self._keys = {column for _, loss in losses for column in loss.key_columns}
        self._classes = {task.label for task, loss in losses if loss.label_kind == "class"}

    def __call__(self, batch: Batch) -> Prepared:
        """The batch, ready for a step. Copies are started, not waited for."""
        self.unvarying.add(batch)
        columns: dict[str, Any] = {name: _numbered(batch.keys[name]) for name in self._keys & batch.keys.keys()}
        columns |= batch.weights
        columns |= {name: _classes(name, x) if name in self._classes else x for name, x in batch.labels.items()}
        ids: dict[str, Any] = dict(batch.ids)
        numbers: dict[str, Any] = dict(batch.numbers)
        if batch.negatives is not None:  # the features of items hold the items chosen, then those drawn
            ids |= {name: join([ids[name], drawn]) for name, drawn in batch.negatives.ids.items()}
            numbers |= {name: join([numbers[name], drawn]) for name, drawn in batch.negatives.numbers.items()}
            columns |= self._item_ids(batch, batch.negatives)
        packed = self._embedder.pack(self._assembly.lookups(ids), sizes=self.sizes)
        counted = None if self._traffic is None else self._traffic.sample(packed)
        feed = _on_device(Feed(packed, numbers, columns, len(batch)))
        return Prepared(feed, batch.keys, self.sizes.learned, counted)

    def _item_ids(self, batch: Batch, drawn: Batch) -> dict[str, npt.NDArray[np.int32]]:
        chosen = batch.keys[self._assembly.item_id or ""]
        numbers = _numbered(np.concatenate([chosen, drawn.keys[ID]]))
        return {POSITIVE_IDS: numbers[: len(chosen)], NEGATIVE_IDS: numbers[len(chosen) :]}


def alike(embedder: Embedder, feeds: Sequence[Feed]) -> tuple[Feed, ...]:
    """The batches of one step, all of the same sizes: those before a growth are padded further."""
    if len(feeds) == 1:
        return tuple(feeds)
    packed = of_one_size(embedder.stacks, [feed.packed for feed in feeds])
    return tuple(
        feed if one is feed.packed else _on_device(dataclasses.replace(feed, packed=one))
        for feed, one in zip(feeds, packed, strict=True)
    )


def _on_device(feed: Feed) -> Feed:
    """Every array once: stacks that are read with the same ids share theirs."""
    leaves, structure = jax.tree.flatten(feed)
    unique = {id(leaf): leaf for leaf in leaves}
    copies = dict(zip(unique, jax.device_put(list(unique.values())), strict=True))
    on_device: Feed = jax.tree.unflatten(structure, [copies[id(leaf)] for leaf in leaves])
    return on_device


def _numbered(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """The keys of one batch as 0, 1, ...: devices compute with 32 bits, and only equality within the batch counts."""
    return np.unique(keys, return_inverse=True)[1].astype(np.int32)


def _classes(name: str, labels: npt.NDArray[np.float32]) -> npt.NDArray[np.int32]:
    whole = labels.astype(np.int32)
    if (whole != labels).any():
        wrong = labels[whole != labels][0]
        raise DataError(f"the loss needs integers as labels, got {wrong:g}", column=name)
    return whole
