"""The ids of a table as a checkpoint holds them: checked, and made to fit a table that has changed since."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sparrow.embedding.dynamic.id_map import ARRAYS, NUMBERS, POLICIES, Arrays, Settings
from sparrow.embedding.specs import TableSpec


def saved_arrays(arrays: Mapping[str, npt.NDArray[Any]], name: str, table: TableSpec) -> tuple[Arrays, int]:
    """Return the arrays of the table ``name``, and its number of rows; refuse more than ``table`` has."""
    held = {key: arrays[f"{name}/{key}"] for key in (*ARRAYS, "numbers", "rows") if f"{name}/{key}" in arrays}
    if len(held) != len(ARRAYS) + 2 or held["numbers"].shape != (len(NUMBERS),) or held["rows"].shape != (2,):
        raise ValueError(f"the ids of table '{name}' were not saved; it had no dynamic vocabulary")
    before, reserved = map(int, held.pop("rows"))
    if before > table.vocabulary_size:
        raise ValueError(
            f"table '{name}' was saved with {before} rows, and has {table.vocabulary_size} here; a dynamic table may "
            "grow, not shrink"
        )
    if table.dynamic is not None and reserved != table.dynamic.reserved:
        was, now = ("row", "zeros") if reserved else ("zeros", "row")
        raise ValueError(f"table '{name}' was saved with unknown {was!r}, and has {now!r} here; set it back")
    return held, before


def fitted(held: Arrays, settings: Settings, name: str) -> Arrays:
    """Return the arrays for a map with these settings: with less room, the oldest waiting ids are forgotten."""
    numbers = dict(zip(NUMBERS, map(int, held["numbers"]), strict=True))
    if not _is_sound(held, numbers, settings):
        raise ValueError(f"the ids of table '{name}' are damaged: they do not fit each other")
    if settings.policy != POLICIES["lfu"]:
        held = {**held, "counts": np.zeros_like(held["counts"])}
    head = max(numbers["head"], numbers["tail"] - settings.room)
    if head == numbers["head"]:
        return held
    stay = held["places"] >= head
    numbers |= {"head": head, "waiting": int(stay.sum())}
    kept = {key: held[key][stay] for key in ("waiting", "seen", "places")}
    return {**held, **kept, "numbers": np.array(list(numbers.values()), np.int64)}


def unused(held: Arrays) -> Arrays:
    """Return the arrays of a run that has not begun: with all ids, none of which was used yet."""
    numbers = dict(zip(NUMBERS, map(int, held["numbers"]), strict=True))
    numbers |= dict.fromkeys(("since", "began", "evicted", "refused", "admitted", "forgotten", "expired", "quiet"), 0)
    numbers |= {"step": -1}
    return {**held, "last": np.full_like(held["last"], -1), "numbers": np.array(list(numbers.values()), np.int64)}


def _is_sound(held: Arrays, numbers: Mapping[str, int], settings: Settings) -> bool:
    """Whether compiled code can read them: numbers are within the arrays."""
    used, waiting = len(held["ids"]), len(held["waiting"])
    shapes = all(held[key].shape == (used,) for key in ("ids", "last", "counts"))
    shapes = shapes and all(held[key].shape == (waiting,) for key in ("waiting", "seen", "places"))
    kinds = all(held[key].dtype == np.dtype(kind) for key, kind in ARRAYS.items())
    if not shapes or not kinds:
        return False
    places = held["places"]
    return bool(
        used == numbers["next"] <= settings.capacity
        and waiting == numbers["waiting"]
        and 0 <= numbers["hand"] < settings.capacity
        and 0 <= numbers["head"] <= numbers["tail"]
        and (held["seen"] >= 1).all()
        and ((places >= numbers["head"]) & (places < numbers["tail"])).all()
        and len(np.unique(places)) == waiting
        and len(np.unique(held["ids"])) == used
    )
