"""`HostRows`: rows of a stack in host memory, in place of an array that is split over the devices of a mesh."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from sparrow.embedding.sharding.shards import Shards


class HostRows:
    """The local rows of each shard of this process, views of its host memory. They change in place.

    Attributes:
      shape: of the array that they stand for, with the rows of all shards.
      dtype, nbytes: likewise.
    """

    def __init__(self, shards: Shards, views: Sequence[npt.NDArray[Any]]) -> None:
        self._shards, self._views = shards, views
        self.shape: tuple[int, ...] = (shards.count * len(views[0]), *views[0].shape[1:])
        self.dtype: np.dtype[Any] = views[0].dtype
        self.nbytes: int = shards.count * views[0].nbytes

    def part(self, first: int, count: int) -> jax.Array:
        """Return ``count`` local rows of each shard on its device."""
        made: jax.Array = self._shards.put_parts(np.concatenate([view[first : first + count] for view in self._views]))
        return made

    def put(self, first: int, part: jax.Array) -> None:
        """Replace the local rows from ``first`` on by an array that `part` has the form of."""
        own = sorted(part.addressable_shards, key=lambda shard: shard.index[0].start or 0)
        for view, shard in zip(self._views, own, strict=True):
            view[first : first + len(shard.data)] = np.asarray(shard.data)
