"""Batches that are split over the devices of a mesh."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from sparrow.embedding import Embedder, Ragged, Shards, from_host


@dataclasses.dataclass(frozen=True)
class MeshLayout:
    """The layout of a batch whose arrays are on a mesh already.

    Attributes:
      rows: examples of each lookup that was filled up with empty ones, so that the devices share them evenly.
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
    first, last = shards.local[0], shards.local[-1] + 1
    return {name: _cut(given, first, last, shards.count) for name, given in ids.items()}


def _cut(given: Any, first: int, last: int, parts: int) -> Any:
    """Return parts ``first`` to ``last`` of the examples.

    >>> _cut(Ragged(np.array([3, 1, 4]), np.array([0, 2, 2, 3])), 1, 3, 3).to_lists()
    [[], [4]]
    """
    each = _examples(given) // parts
    begin, end = first * each, last * each
    if not isinstance(given, Ragged):
        return given[begin:end]
    offsets = np.asarray(given.offsets)[begin : end + 1]
    values = slice(int(offsets[0]), int(offsets[-1]))
    weights = None if given.weights is None else given.weights[values]
    return dataclasses.replace(given, values=given.values[values], offsets=offsets - offsets[0], weights=weights)


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
