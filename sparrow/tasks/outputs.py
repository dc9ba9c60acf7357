"""The arrays that a loss reads, from the outputs of a model and the columns of a batch."""

from __future__ import annotations

from typing import Any, Final

from sparrow.feed import CANDIDATES, NEGATIVE_LOG_Q
from sparrow.losses import Loss, Positions, Towers
from sparrow.registry import nearest
from sparrow.tasks.task import Arrays

POSITIONS: Final = "positions"
"""The output of a model that learns from every position of a history: `sparrow.losses.Positions`."""


def read_output(name: str, loss: Loss, outputs: Arrays, columns: Arrays) -> Any:
    """Return the output that a loss of the task ``name`` reads: an array, two towers, or all where it names some."""
    if not loss.is_matching:
        return outputs if loss.outputs else pick("output", outputs, name if name in outputs else "logits")
    if POSITIONS in outputs:
        positions: Positions = outputs[POSITIONS]
        return positions._replace(negative_log_q=columns.get(NEGATIVE_LOG_Q))
    query, item = pick("output", outputs, "query"), pick("output", outputs, "item")
    return Towers(query, item, outputs.get("negatives"), *map(columns.get, CANDIDATES))


def pick(kind: str, arrays: Arrays, name: str) -> Any:
    """Return the array of that name; ``kind`` is the word for it in the error."""
    if name not in arrays:
        raise ValueError(f"the losses need the {kind} '{name}': {nearest(name, arrays)}")
    return arrays[name]
