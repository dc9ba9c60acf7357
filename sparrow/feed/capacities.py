"""`Capacities`: the capacity that batches have for the ids of their bags."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from sparrow.embedding import MAX_ENTRIES, Sizes

DENSE: Final = 1.25
"""Bags have fixed places where these are at most this many times the ids: the headroom that sizes begin with."""
LEAST_EXAMPLES: Final = 256
"""Examples of a batch whose lengths are taken for those of others."""
MOST_GROWTHS: Final = 3
"""Times that places may grow; lengths with new records again and again are left to sizes."""

Capacity: TypeAlias = int | tuple[int, ...]
"""The number of entries for bags of any length; or the places of each feature in every example."""


class CountedIds(NamedTuple):
    """The number of ids in bags of a stack in one batch, and the length of the longest bag of each feature."""

    ids: int
    longest: tuple[int, ...]


class Capacities:
    """The capacity of each stack. It depends on the batches before, and must be found in their order.

    Where the bags of each feature hold about the same number of ids in every example, they get a place for each. That
    spares the bag of every entry and the offsets, which are then known. Others get the sizes of `Sizes`.

    >>> capacities = Capacities(Sizes())
    >>> capacities.fit(256, {"a": CountedIds(256 * 3, (2, 1)), "b": CountedIds(300, (90,))})
    ({'a': (2, 1), 'b': 384}, {})
    """

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self._places: dict[str, tuple[int, ...] | None] = {}  # None: lengths vary
        self._growths: dict[str, int] = {}

    def fit(
        self, examples: int, counted: Mapping[str, CountedIds], others: Mapping[str, int] = MappingProxyType({})
    ) -> tuple[dict[str, Capacity], dict[str, int]]:
        """Return the capacity for the ids of the next batch, by stack, and the sizes of ``others``."""
        places = {name: self._fixed(name, examples, own) for name, own in counted.items()}
        ragged = {name: own.ids for name, own in counted.items() if places[name] is None}
        sizes = self.sizes.fit({**ragged, **others}) if ragged or others else {}
        found = {name: sizes[name] if own is None else own for name, own in places.items()}
        return found, {name: sizes[name] for name in others}

    def _fixed(self, name: str, examples: int, counted: CountedIds) -> tuple[int, ...] | None:
        held = self._places.get(name, (0,) * len(counted.longest))
        if held is None or (name not in self._places and examples < LEAST_EXAMPLES):
            return None
        wanted = tuple(map(max, held, counted.longest))
        if wanted == held:
            return held
        entries = examples * sum(wanted)
        growths = self._growths[name] = self._growths.get(name, 0) + 1
        may_grow = growths <= MOST_GROWTHS and entries <= DENSE * counted.ids
        self._places[name] = wanted if may_grow and entries <= MAX_ENTRIES else None
        return self._places[name]
