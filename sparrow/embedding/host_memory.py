"""`HostMemory`: a table that lives in host memory, with a cache of its rows on the device."""

from __future__ import annotations

import dataclasses
import math
from numbers import Integral

import jax

from sparrow import fields
from sparrow.registry import Registry


def is_apart() -> bool:
    """Return whether host memory is not the memory of the device."""
    return jax.default_backend() != "cpu"


@dataclasses.dataclass(frozen=True, kw_only=True)
class HostMemory:
    """A table whose rows and slots are in host memory; the device holds the rows that the next steps need.

    Results equal the results of a table on the device, bit for bit. Where JAX runs on a CPU, host memory is the
    device's memory: the table is as any other there, and the cache has no effect. Elsewhere, steps change host memory
    in place: only the newest state of a training is valid.

    >>> HostMemory(cache=0.1).rows(1_000), HostMemory(cache=64).rows(1_000), HostMemory(cache=1.0).rows(1_000)
    (100, 64, 1000)

    Attributes:
      cache: the rows on the device: a share of the table, above 0 and up to 1.0, or an integer number of rows. It must
        hold all distinct rows of one step.
      path: must be None: rows on disk are not supported.
    """

    cache: int | float = 0.1
    path: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.cache, Integral) and not isinstance(self.cache, bool):
            fields.integer("memory: cache", self.cache)
        else:
            if not (fields.is_number(self.cache) and 0 < self.cache <= 1):
                raise ValueError(
                    f"memory: cache must be a share above 0 and up to 1.0, or a number of rows, got {self.cache!r}"
                )
        if self.path is not None:
            raise ValueError(
                f"memory: path {self.path!r}: tables on disk are not supported; leave path out, and spread tables that "
                "are larger than the memory over several machines with a mesh"
            )

    def rows(self, vocabulary_size: int) -> int:
        """Return the rows on the device for a table of ``vocabulary_size`` rows."""
        if isinstance(self.cache, Integral):
            return min(int(self.cache), vocabulary_size)
        return min(max(math.ceil(self.cache * vocabulary_size), 1), vocabulary_size)


registry: Registry[HostMemory] = Registry("memory", HostMemory, key="kind")
"""The memory of tables, by its kind."""
registry.register("host")(HostMemory)
