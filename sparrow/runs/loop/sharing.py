"""Shares of the data: in a run of several processes each reads its own, where no example needs another one.

The order of examples depends on the number of shares: by default, that of the processes when the run begins. A
checkpoint remembers it, so that any number of processes continues with the same examples in the same order.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sparrow import processes
from sparrow.config import ConfigError, need
from sparrow.data import DataError
from sparrow.feed import Division, Pipeline, Preparer
from sparrow.runs.step.program import Program

_NUMBERS: Final = itertools.count()  # all processes divide the same data in the same order
_FAILED: Final = -1
_EACH: Final = 4  # epoch, chunk, row and malformed rows of a share


class Messages:
    """Messages between the processes about the rows of their shares."""

    def __init__(self) -> None:
        self._name = f"sparrow/shares/{next(_NUMBERS)}"
        self._sent: dict[int, int] = {}
        self._read: dict[int, int] = {}
        self._last: dict[int, tuple[int, int, bool]] = {}

    def tell(self, share: int, epoch: int, rows: int, is_last: bool) -> None:
        """Publish that a share has ``rows`` rows in an epoch so far; ``is_last``: and no more."""
        number = self._sent[share] = self._sent.get(share, 0) + 1
        processes.publish(f"{self._name}/{share}/{number}", json.dumps([epoch, rows, is_last]))

    def failed(self, share: int) -> None:
        """Publish that a share cannot be read."""
        self.tell(share, _FAILED, 0, is_last=True)

    def have(self, share: int, epoch: int, rows: int, is_over: Callable[[], bool]) -> bool:
        """Wait until it is known whether a share has ``rows`` rows in an epoch, and return it."""
        while True:
            known, found, is_last = self._last.get(share, (epoch, 0, False))
            if known == _FAILED or (known == epoch and found >= rows):
                return True
            if known > epoch or (known == epoch and is_last):
                return False
            number = self._read[share] = self._read.get(share, 0) + 1
            known, found, is_last = json.loads(processes.awaited(f"{self._name}/{share}/{number}", is_over))
            self._last[share] = known, found, is_last


def divide(pipeline: Pipeline[Any], program: Program, preparer: Preparer, *, is_training: bool) -> None:
    """Let each process read its share of the data to train or to evaluate on, where that gives the same examples."""
    data, together = need(program.config.data, "data"), processes.count()
    reason = _reason(pipeline, program, preparer)
    if not is_training:
        reason = reason or _of_evaluation(program)
    elif pipeline.converter.keys:
        reason = reason or f"examples of a batch are grouped by '{pipeline.converter.keys[0]}'"
    shares = data.shares or together
    if not is_training and pipeline.batching.batch_size % shares:
        return
    if reason:
        if is_training and data.shares is not None and data.shares > 1:
            raise ConfigError(f"the data cannot be divided: {reason}; remove it", at=("data", "shares"))
        return
    if shares == together == 1:
        return
    if pipeline.batching.batch_size % shares:
        text = f"a batch of {pipeline.batching.batch_size} examples cannot be divided in {shares} shares"
        raise ConfigError(f"{text}; give a divisor of it", at=("data", "shares"))
    found = processes.said_by_all(pipeline.position()["source"])
    if other := [number for number, source in enumerate(found) if source != found[0]]:
        raise DataError(
            f"the data of process {other[0]} differ from those of process 0; give all processes the same files"
        )
    preparer.has_own_rows = together > 1
    pipeline.divide(Division(shares, processes.index(), together, Messages() if together > 1 else None))


def _reason(pipeline: Pipeline[Any], program: Program, preparer: Preparer) -> str:
    """Return the reason why every process needs all examples of a batch; empty: none does."""
    data = need(program.config.data, "data")
    if pipeline.stream is not None:
        return "every process reads all of a source that grows"
    if data.negatives is not None or data.tree is not None:
        return "negatives are drawn for complete batches"
    if data.mask is not None or data.cost is not None:
        return "masks and costs need complete batches"
    if any(feature.part == "sequences" for feature in pipeline.converter.features):
        return "sequences of numbers go to every device"
    if not (preparer.pads or pipeline.batching.drop_remainder):
        return "an example may depend on others of its batch, so short batches cannot be padded; set drop_remainder"
    return ""


def _of_evaluation(program: Program) -> str:
    """Return the reason why an evaluation depends on the order of examples."""
    if program.config.evaluate.steps is not None:
        return "evaluate.steps takes the first examples"
    metrics = [use.metric for task in program.config.tasks.values() for use in task.metrics]
    return "a metric gives later examples more weight" if any(hasattr(one, "decay_step") for one in metrics) else ""


def told_of_shares(position: Mapping[str, Any], examples: int, skipped: int) -> list[int]:
    """Return the numbers of this process: examples of the batch, malformed rows so far, the position in each share.

    Each process gives 0 for the numbers that it does not know: the largest of all are known to all.
    """
    counts = [0] * (2 * processes.count())
    counts[2 * processes.index() : 2 * processes.index() + 2] = [examples, skipped]
    return counts + [number for own in position["shares"] for number in own or [0] * _EACH]


def known_of_shares(position: Mapping[str, Any], numbers: Sequence[int]) -> tuple[dict[str, Any], int, int]:
    """Return the position in all shares, the examples of the batch, and the malformed rows, of all processes."""
    end = 2 * processes.count()
    counts, shares = numbers[:end], numbers[end:]
    found = [list(shares[at : at + _EACH]) for at in range(0, len(shares), _EACH)]
    # Where the data are not divided, all processes read all of them, and know all malformed rows.
    skipped = sum(counts[1::2]) if found else max(counts[1::2])
    return {**position, "shares": found}, sum(counts[::2]), skipped
