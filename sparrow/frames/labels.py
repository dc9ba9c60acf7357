"""The task of a target column: its loss and its metrics, by the values of the label."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparrow.config import ConfigError
from sparrow.data import shown
from sparrow.frames.columns import short
from sparrow.losses import registry as losses
from sparrow.registry import nearest

METRICS: Final[dict[str, list[str]]] = {"binary": ["auc", "log_loss"], "real": ["rmse", "mae"], "class": ["accuracy"]}
"""The metrics of each kind of label."""
BEST_BY: Final = {"binary": "log_loss", "real": "rmse", "class": "loss"}
"""The result that chooses the best step: probabilities are to be right, not only in the right order."""
FEW_CLASSES: Final = 20
"""Integers from 0 up to FEW_CLASSES - 1 may be classes."""
EVEN: Final = 0.2
"""Shares of yes this near to a half need no prior."""


class Target(NamedTuple):
    """A target column.

    Attributes:
      column: its name.
      loss: the loss.
      kind: the kind of label that the loss takes: "binary", "real" or "class".
      classes: the number of classes; 1 unless there are some.
      words: for people.
      fields: the fields of the loss: the best constant prediction, which training starts from.
    """

    column: str
    loss: str
    kind: str
    classes: int
    words: str
    fields: Mapping[str, float] = {}


def read_target(name: str, values: Any, loss: str | None = None, *, may_be_constant: bool = True) -> Target:
    """Return the task of a column; ``may_be_constant``: False refuses a column of one value.

    >>> read_target("click", pa.chunked_array([[0, 1, 1]])).words
    'yes or no, by binary_cross_entropy'
    >>> read_target("rating", pa.chunked_array([[3.5, 1.0]])).loss
    'l2'
    """
    if values.null_count:
        raise ConfigError(
            f"target '{name}': {values.null_count:,} of {len(values):,} rows have no value; leave them out first"
        )
    try:
        array = np.asarray(values.combine_chunks().cast(pa.float64()), np.float64)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        example = ", ".join(list(dict.fromkeys(map(shown, values[:100].to_pylist())))[:2])
        why = f"must hold numbers, got {values.type} such as [{example}]; convert it to 0 and 1, or numbers"
        raise ConfigError(f"target '{name}' {why}") from None
    if not may_be_constant and len(array) and (array == array[0]).all():
        raise ConfigError(f"target '{name}' is {array[0]:g} in every row; choose one with several values")
    if loss is None:
        loss = "binary_cross_entropy" if np.isin(array, (0.0, 1.0)).all() else "l2"
    usable = [each for each in losses.names() if losses[each].label_kind in METRICS and each not in ("bpr", "jrc")]
    if loss not in usable:
        raise ConfigError(f"target '{name}': unknown loss '{loss}': {nearest(loss, usable)}")
    kind = str(losses[loss].label_kind)
    classes = int(array.max(initial=0)) + 1 if kind == "class" else 1
    words = {"binary": "yes or no", "real": "a number", "class": f"one of {classes} classes"}[kind]
    words = f"{words}, by {loss}{_other_reading(array) if kind == 'real' else ''}"
    return Target(name, loss, kind, classes, words, _constant(loss, array))


def is_calibrated(target: Target) -> bool:
    """Return whether predictions of the target are probabilities, to be scaled by rows that are held out."""
    return losses[target.loss].is_probability


def _constant(loss: str, array: npt.NDArray[np.float64]) -> dict[str, float]:
    """Return the fields of a loss that make the best constant the first prediction.

    >>> _constant("l2", np.array([90.0, 110.0])), _constant("binary_cross_entropy", np.array([0.0] * 9 + [1.0]))
    ({'mean': 100.0, 'std': 10.0}, {'prior': 0.1})
    """
    if not array.size or not np.isfinite(array).all():
        return {}
    mean, std = short(float(array.mean())), short(float(array.std()))
    if loss == "l2" and std > 0:
        return {"mean": mean, "std": std}
    if loss == "binary_cross_entropy" and 0 < mean < 1 and abs(mean - 0.5) > EVEN:
        return {"prior": mean}
    return {}


def _other_reading(array: npt.NDArray[np.float64]) -> str:
    """Return the other way to read numbers of few values, for the words of a target.

    >>> _other_reading(np.array([0.0, 2.0, 1.0])), _other_reading(np.array([0.5, 1.0, 1.5]))
    ('; for 3 classes, choose the loss softmax_cross_entropy', '')
    >>> _other_reading(np.array([-1.0, 1.0]))
    '; for yes or no, convert it to 0 and 1'
    """
    values = np.unique(array)
    if len(values) == 2:
        return "; for yes or no, convert it to 0 and 1"
    if 2 < len(values) <= FEW_CLASSES and (values == np.arange(len(values))).all():
        return f"; for {len(values)} classes, choose the loss softmax_cross_entropy"
    return ""
