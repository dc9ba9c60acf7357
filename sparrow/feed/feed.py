"""`Feed`: a batch as the jitted functions take it; of a mesh, split over its devices."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from sparrow.data import cut
from sparrow.embedding import Embedder, Jagged, PackedBatch, Ragged, Shards, from_host, of_one_size
from sparrow.kernels.feed import BatchLayout, joined


@dataclasses.dataclass(frozen=True)
class MeshLayout:
    """The layout of a batch whose arrays are on a mesh already.

    ``rows``: examples of each lookup that was filled up with empty ones, so that the devices share them evenly.
    """

    rows: tuple[tuple[str, int], ...] = ()

    def split(self, parts: Any) -> Any:
        return parts


def filled(ids: Mapping[str, Any], devices: int) -> tuple[dict[str, Any], dict[str, int]]:
    """Fill features with empty examples to a multiple of ``devices``; also return the examples of those that needed it.

    >>> filled({"item": np.array([4, 7, 9]), "even": np.arange(4)}, 2)[1]
    {'item': 3}
    """
    counts = {name: _examples(given) for name, given in ids.items()}
    uneven = {name: count for name, count in counts.items() if count % devices or not count}
    return {
        name: _with_empty(given, -counts[name] % devices or devices) if name in uneven else given
        for name, given in ids.items()
    }, uneven


def _examples(given: Any) -> int:
    return len(given.offsets) - 1 if isinstance(given, Ragged) else len(given)


def _with_empty(given: Any, more: int) -> Any:
    if isinstance(given, Ragged):
        offsets = np.asarray(given.offsets)
        last = offsets[-1] if len(offsets) else 0
        return dataclasses.replace(given, offsets=np.concatenate([offsets, np.full(more, last, offsets.dtype)]))
    ids = np.concatenate([np.ma.getdata(given), np.zeros((more, *given.shape[1:]), given.dtype)])
    missing = np.concatenate([np.ma.getmaskarray(given), np.ones((more, *given.shape[1:]), np.bool_)])
    return np.ma.MaskedArray(ids, missing)


def own_share(shards: Shards, ids: Mapping[str, Any]) -> dict[str, Any]:
    """Return the examples that this process feeds, of features that were `filled`; with one process, all of them."""
    if shards.processes == 1:
        return dict(ids)
    each = {name: _examples(given) // shards.count for name, given in ids.items()}
    first, last = shards.local[0], shards.local[-1] + 1
    return {name: cut(given, each[name] * first, each[name] * last) for name, given in ids.items()}


def placed(embedder: Embedder, arrays: Any, has_own_rows: bool = False) -> Any:
    """Return host arrays on the mesh: split where the devices can share the examples evenly, else on every device.

    Every process holds the arrays of the complete batch, and copies the parts of its own devices; or it
    ``has_own_rows``, which its devices share.
    """
    shards = embedder.shards
    assert shards is not None
    if has_own_rows:
        return shards.put_parts(arrays)
    count = shards.count
    places = jax.tree.map(lambda array: shards.everywhere if len(array) % count else shards.split_sharding, arrays)
    if shards.processes == 1:
        return jax.device_put(arrays, places)
    return jax.tree.map(from_host, arrays, places)


@jax.tree_util.register_pytree_node_class
class Feed:
    """A batch on the device: one array, and the places of its parts. Jitted functions take all of it.

    Attributes:
      buffer: all arrays, one after the other; on a mesh, the arrays. Batches that were sent together share it.
      layout: the place of each of them.
      size: the number of examples.
      slot: its number among the batches that were sent together, a scalar on the device; None: it was sent alone.
    """

    def __init__(self, buffer: Any, layout: BatchLayout | MeshLayout, size: int, slot: Any = None) -> None:
        self.buffer, self.layout, self.size, self.slot = buffer, layout, size, slot

    @functools.cached_property
    def parts(self) -> Parts:
        return self._split(self.buffer, self.slot)

    def _split(self, buffer: Any, slot: Any) -> Parts:
        parts: Parts = self.layout.split(Feed(buffer, self.layout, self.size, slot).alone().buffer)
        return parts

    def alone(self) -> Feed:
        """Return the batch without the ones that were sent together with it; inside of compiled programs."""
        if self.slot is None:
            return self
        own = jax.lax.dynamic_index_in_dim(self.buffer, self.slot, keepdims=False)
        return Feed(own, self.layout, self.size)

    @property
    def nbytes(self) -> int:
        held = sum(leaf.nbytes for leaf in jax.tree.leaves(self.buffer))
        return int(held) if self.slot is None else int(held // self.buffer.shape[0])

    @property
    def packed(self) -> PackedBatch:
        """Ids, as the tables are looked up with them."""
        return self.parts.packed

    @property
    def numbers(self) -> dict[str, jax.Array]:
        """Dense features, (size, dim) float32."""
        return self.parts.numbers

    @property
    def sequences(self) -> dict[str, Jagged]:
        """Numbers in order, one row per element."""
        return self.parts.sequences

    @property
    def columns(self) -> dict[str, jax.Array]:
        """Labels, sample weights and sessions, (size,), by column."""
        return self.parts.columns

    def examples(self, acts: dict[str, Any]) -> dict[str, Any]:
        """Return activations, or sequences, of the batch's examples, without the empty ones that fill a mesh.

        Rows of ordered features, which are no examples, stay.
        """
        if isinstance(self.layout, BatchLayout) or not self.layout.rows:
            return acts
        rows = {name: rows for name, rows in self.layout.rows if name in acts}
        cut = {name: count for name, count in rows.items() if not self.has_rows(acts, name)}
        return acts | {name: jax.tree.map(operator.itemgetter(slice(count)), acts[name]) for name, count in cut.items()}

    def has_rows(self, acts: dict[str, Any], name: str) -> bool:
        """Return whether the activations of a feature are rows of its elements."""
        return name in self.packed.offsets and isinstance(acts[name], jax.Array)

    @property
    def shapes(self) -> Parts:
        shapes: Parts = jax.eval_shape(self._split, self.buffer, self.slot)
        return shapes

    def with_parts(self, **parts: Any) -> Feed:
        words, layout = joined(self.parts._replace(**parts))
        return Feed(jax.device_put(words), layout, self.size)

    def tree_flatten(self) -> tuple[tuple[Any, Any], tuple[BatchLayout | MeshLayout, int]]:
        return (self.buffer, self.slot), (self.layout, self.size)

    @classmethod
    def tree_unflatten(cls, fixed: tuple[BatchLayout | MeshLayout, int], arrays: tuple[Any, Any]) -> Feed:
        return cls(arrays[0], *fixed, arrays[1])


class Parts(NamedTuple):
    """The arrays of a batch, as `Feed` describes them."""

    packed: PackedBatch
    numbers: dict[str, Any]
    columns: dict[str, Any]
    sequences: dict[str, Jagged] = {}


def alike(embedder: Embedder, feeds: Sequence[Feed]) -> tuple[Feed, ...]:
    """Return the batches of one step, padded to one size where a growth came between them; not on a mesh."""
    if embedder.shards is not None or len(feeds) == 1 or len({feed.layout for feed in feeds}) == 1:
        return tuple(feeds)
    packed = of_one_size(embedder.stacks, [feed.packed for feed in feeds])
    return tuple(
        feed if one is feed.packed else feed.with_parts(packed=one) for feed, one in zip(feeds, packed, strict=True)
    )
