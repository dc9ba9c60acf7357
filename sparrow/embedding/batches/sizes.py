"""Sizes that ragged batches are padded to: a capacity, a size class, or `Sizes`, which learn and only grow."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from sparrow.registry import nearest

FORMAT: Final = 1
"""The version of `Sizes.to_json`."""

HEADROOM: Final = (1.25, 2.0, 4.0)
"""The size at each growth, as a multiple of the most ids seen; the last one from there on."""

KINDS: Final = ("sums", "entries", "rows", "ids", "weighted")
"""The sizes that a stack on a mesh needs, by the names ``stack/kind``; see `sparrow.embedding.sharding.measured`."""


def size_class(count: int, an_octave: int = 4) -> int:
    """Return the next of 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, ...: four sizes an octave, at most a quarter unused.

    ``an_octave``, a power of two from 4 on: the number of sizes per octave instead.

    >>> [size_class(n) for n in (0, 8, 9, 33, 1000)]
    [8, 8, 10, 40, 1024]
    >>> [size_class(n, an_octave=16) for n in (8, 33, 1030, 2100)]
    [8, 34, 1088, 2176]
    """
    if count <= 8:
        return 8
    step = 1 << max(0, (count - 1).bit_length() - an_octave.bit_length())
    return -(-count // step) * step


Agree: TypeAlias = Callable[[npt.NDArray[np.int32]], npt.NDArray[np.int32]]


class Learned(NamedTuple):
    """All that a `Sizes` has learned: how often it has grown, the most ids seen and the size held, by stack."""

    growths: int
    seen: Mapping[str, int]
    held: Mapping[str, int]


class Sizes:
    """Sizes of packed batches, by stack: give the same object to every `Embedder.pack` of one loop.

    A compiled program serves one combination of sizes. Where each batch had the size class of its own ids, their
    combinations would multiply over the stacks. These sizes never shrink, and all of them grow together: to 1.25 times
    the most ids seen at first, then 2 times, then 4 times. From the fourth growth on, when lengths have proved to be
    heavy-tailed, every stack gets the size of the largest of its kind, so that only a new record makes them grow.
    Padding changes no result: see `sparrow.kernels.Lookups`.

    >>> sizes = Sizes()
    >>> sizes.fit({"a": 100, "b": 10})
    {'a': 128, 'b': 14}
    >>> sizes.fit({"a": 90, "b": 14})
    {'a': 128, 'b': 14}
    >>> sizes.fit({"a": 90, "b": 15})
    {'a': 224, 'b': 32}
    >>> Sizes.from_json(sizes.to_json()).fit({"a": 90, "b": 15})
    {'a': 224, 'b': 32}
    """

    def __init__(self, learned: Learned | None = None, agree: Agree | None = None) -> None:
        """Begin with ``learned``.

        ``agree``, for tables over several processes: gives the largest of each number over all processes, which call it
        together; None: a collective of its own for every batch.
        """
        self.learned = learned or Learned(0, {}, {})
        self.agree = agree

    def fit(self, counts: Mapping[str, int]) -> dict[str, int]:
        """Return sizes that hold ``counts`` ids, by stack; they grow where one of them is too small."""
        growths, seen, held = self.learned
        if any(count > seen.get(name, -1) for name, count in counts.items()):
            seen = {**seen, **{name: max(count, seen.get(name, 0)) for name, count in counts.items()}}
            if any(count > held.get(name, -1) for name, count in counts.items()):
                growths, held = growths + 1, _grown(growths, seen, held)
            self.learned = Learned(growths, seen, held)
        return {name: held[name] for name in counts}

    def to_json(self) -> str:
        """Return all that was learned, with the most ids seen of each stack, for `from_json`."""
        growths, seen, held = self.learned
        stacks = {name: {"seen": seen[name], "held": held[name]} for name in held}
        return json.dumps({"format": FORMAT, "growths": growths, "stacks": stacks})

    @classmethod
    def from_json(cls, text: str, agree: Agree | None = None) -> Sizes:
        """Return the sizes that `to_json` wrote. On a mesh they also fix the exchange of each stack.

        Give them to batches of the same number of examples on the same number of devices: others are padded as these
        were, or grow anew.
        """
        try:
            saved = json.loads(text)
            version, growths, stacks = saved["format"], saved["growths"], saved["stacks"]
            seen = {name: own["seen"] for name, own in stacks.items()}
            held = {name: own["held"] for name, own in stacks.items()}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"the text is not what Sizes.to_json writes: {error!r}") from None
        if version != FORMAT:
            raise ValueError(f"the sizes have the format version {version!r}, this version of sparrow reads {FORMAT}")
        if not all(type(number) is int and number >= 0 for number in (growths, *seen.values(), *held.values())):
            raise ValueError("the text is not what Sizes.to_json writes: sizes must be integers from 0 on")
        if small := [name for name in held if held[name] < seen[name]]:
            raise ValueError(f"stack '{small[0]}' holds {held[small[0]]} ids, fewer than the {seen[small[0]]} seen")
        return cls(Learned(growths, seen, held), agree)


def _grown(growths: int, seen: Mapping[str, int], held: Mapping[str, int]) -> dict[str, int]:
    factor = HEADROOM[min(growths, len(HEADROOM) - 1)]
    sizes = {}
    for name, most in seen.items():
        # On a mesh, padding travels between devices too: finer classes, for fewer bytes.
        size = size_class(math.ceil(factor * most), 16 if _kind(name) else 4)
        sizes[name] = max(size, held.get(name, 0))
    if growths < len(HEADROOM):
        return sizes
    return {name: max(size for other, size in sizes.items() if _kind(other) == _kind(name)) for name in sizes}


def _kind(name: str) -> str:
    """Return the number that a size bounds: ids, or one of `KINDS` of a stack whose rows are on a mesh."""
    kind = name.rpartition("/")[2]
    return kind if kind in KINDS else ""


def check_capacity(names: Collection[str], capacity: int | Mapping[str, int] | None) -> dict[str, int]:
    """Return the capacity of each feature that has one; refuses unknown features and numbers that are none."""
    given = capacity if isinstance(capacity, Mapping) else {} if capacity is None else dict.fromkeys(names, capacity)
    for name, number in given.items():
        if name not in names:
            raise ValueError(f"capacity has an unknown feature '{name}': {nearest(str(name), names)}")
        if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < 0:
            raise ValueError(f"the capacity of feature '{name}' must be an integer from 0 on, got {number!r}")
    return {name: int(number) for name, number in given.items()}


def within(name: str, count: int, capacity: int) -> int:
    """Return the capacity of a feature, which must hold its ``count`` ids."""
    if count > capacity:
        raise ValueError(f"feature '{name}': the batch holds {count} ids, and its capacity is {capacity}; raise it")
    return capacity
