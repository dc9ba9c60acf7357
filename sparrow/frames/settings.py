"""The settings of training that `guess` chooses; `benchmarks/NOTES.md` has the figures that chose them.

A weight decay is given for each occurrence of an id: the rule adds it to gradients of means over a batch, so it is
divided by the batch size. A table of few rows in small batches then is held back as much as one in large batches.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from sparrow.config import WIDE


class Settings(NamedTuple):
    """The settings for one kind of model.

    Attributes:
      embedding_dim: the dim of tables.
      dropout: the share of units that layers leave out in training.
      rule: the fields of the tables' rule, for a batch size.
      wide: the fields of the rule of wide tables, the same way; None: that of the others.
    """

    embedding_dim: int
    dropout: float
    rule: dict[str, Any]
    wide: dict[str, Any] | None = None

    def train(self, batch_size: int, has_wide: bool) -> dict[str, Any]:
        """Return the fields of the section ``train`` that set the tables' rules."""
        made: dict[str, Any] = {"sparse_optimizer": _for_batches(self.rule, batch_size)}
        if has_wide and self.wide is not None:
            wide = {"tables": [f".*{WIDE}"], "optimizer": _for_batches(self.wide, batch_size)}
            made["table_optimizers"] = [wide]
        return made


def _decayed(learning_rate: float, weight_decay: float) -> dict[str, Any]:
    return {
        "name": "rowwise_adagrad",
        "learning_rate": learning_rate,
        "weight_decay": weight_decay,
        "weight_decay_mode": "l2",
    }


def _for_batches(rule: dict[str, Any], batch_size: int) -> dict[str, Any]:
    """Return a rule whose weight decay is of one occurrence, for gradients of means over a batch.

    >>> _for_batches({"name": "rowwise_adagrad", "weight_decay": 0.3}, 128)["weight_decay"]
    0.0023
    """
    if "weight_decay" not in rule:
        return rule
    return {**rule, "weight_decay": float(f"{rule['weight_decay'] / batch_size:.2g}")}


RANKING: Final = Settings(8, 0.2, _decayed(0.1, 0.3), _decayed(0.2, 0.05))
"""Ids of a few rows are not learned by heart, and the linear part is learned before products of ids are."""
TWO_TOWERS: Final = Settings(16, 0.0, {"name": "adagrad", "learning_rate": 0.05})
"""Towers have no linear part; the settings of ranking were not tried for them."""
PATIENCE: Final = 4
"""Evaluations without a gain that end training: interactions of ids often show after a few epochs without any."""


def batch_size_of(rows: int) -> int:
    """Return a power of two: about a hundredth of the rows, from 32 to 4,096.

    >>> batch_size_of(100_000), batch_size_of(10), batch_size_of(10**8)
    (1024, 32, 4096)
    """
    return int(2 ** np.clip(round(np.log2(max(rows, 1) / 100)), 5, 12))
