"""The arrays that a loss reads, from the outputs of a model and the columns of a batch."""

from __future__ import annotations

from typing import Any, Final

from sparrow.losses import Loss, Towers
from sparrow.registry import nearest
from sparrow.tasks.task import Arrays

POSITIVE_IDS: Final = "<ids of the items chosen>"
NEGATIVE_IDS: Final = "<ids of the items drawn>"
TAKES_PART: Final = "<items drawn that are negatives>"
"""Columns of a batch with negatives, besides its own; no column has such names."""


def read_output(name: str, loss: Loss, outputs: Arrays, columns: Arrays) -> Any:
    """Return the output that a loss of the task ``name`` reads: an array, or the two towers."""
    if not loss.is_matching:
        return pick("output", outputs, name if name in outputs else "logits")
    query, item = pick("output", outputs, "query"), pick("output", outputs, "item")
    known = (columns.get(name) for name in (POSITIVE_IDS, NEGATIVE_IDS, TAKES_PART))
    return Towers(query, item, outputs.get("negatives"), *known)


def pick(kind: str, arrays: Arrays, name: str) -> Any:
    """Return the array of that name; ``kind`` is the word for it in the error."""
    if name not in arrays:
        raise ValueError(f"the losses need the {kind} '{name}': {nearest(name, arrays)}")
    return arrays[name]
