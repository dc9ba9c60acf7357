"""AUC while training: of a histogram that forgets. Fixed size, jittable."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sparrow import fields
from sparrow.metrics import sums
from sparrow.metrics.auc import AUC
from sparrow.metrics.fixed import SumState
from sparrow.metrics.inputs import as_arrays, is_traced, refuse_groups
from sparrow.metrics.protocol import Metric, Result
from sparrow.metrics.records import register_metric


def check_decay(name: str, decay_rate: float, decay_step: int) -> None:
    """Return a rate in [0, 1), and windows of at least one update."""
    fields.number(f"{name}.decay_rate", decay_rate, at_least=0, below=1)
    fields.integer(f"{name}.decay_step", decay_step)


class DecayedAUCState(NamedTuple):
    """``average`` is the decayed histogram, ``window`` that of the updates since it last changed."""

    average: SumState
    window: SumState
    updates: jax.Array  # () int32, in the window


@dataclasses.dataclass(frozen=True)
class DecayedHistogram(AUC):
    """The histogram and the curve of `DecayedAUC`; errors and reasons speak of the latter."""

    name = "DecayedAUC"


@register_metric("decayed_auc")
@dataclasses.dataclass(frozen=True)
class DecayedAUC(Metric[DecayedAUCState]):
    """AUC of a histogram that forgets: fixed size, jittable.

    Every ``decay_step`` updates ``H <- decay_rate * H + (1 - decay_rate) * B``, where ``B`` is the histogram (as in
    `AUC`) of these updates alone; the first window gives ``H = B``. The value changes at the end of a window, and
    is NaN before the first ends. A window with rows that cannot be judged makes it NaN until the next window,
    which starts afresh.

    It depends on the order of the updates. `merge` adds the histograms of replicas that make the same updates
    in step, each on its part of the batch.

    >>> metric = DecayedAUC(thresholds=10, decay_rate=0.9, decay_step=1)
    >>> p = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]
    >>> state = metric.update(metric.init(), p, [1, 0, 1, 0, 0, 0, 1, 1])
    >>> state = metric.update(state, p, [1, 0, 1, 0, 1, 0, 1, 0])
    >>> round(metric.compute(state), 6)
    0.54375
    """

    thresholds: int = 200
    decay_rate: float = 0.9
    decay_step: int = 100
    from_logits: bool = False
    add_origin: bool = False

    def __post_init__(self) -> None:
        check_decay(self.name, self.decay_rate, self.decay_step)
        self._auc  # noqa: B018  (checks the thresholds)

    @property
    def _auc(self) -> AUC:
        return DecayedHistogram(self.thresholds, self.from_logits, self.add_origin)

    @property
    def jittable(self) -> bool:
        """True: the state has a fixed size."""
        return True

    def init(self) -> DecayedAUCState:
        """Nothing seen."""
        return DecayedAUCState(self._auc.init(), self._auc.init(), jnp.asarray(np.int32(0)))

    def update(
        self, state: DecayedAUCState, predictions: Any, labels: Any, weights: Any = None, groups: Any = None
    ) -> DecayedAUCState:
        """Add a batch to the window, and the window to the average when it is full."""
        refuse_groups(self.name, groups)
        added: DecayedAUCState = self._add(state, *as_arrays(self.name, predictions, labels, weights))
        return added

    @functools.partial(jax.jit, static_argnums=0)
    def _add(self, state: DecayedAUCState, predictions: Any, labels: Any, weights: Any) -> DecayedAUCState:
        window = self._auc.update(state.window, predictions, labels, weights)
        updates = state.updates + 1
        full = updates >= self.decay_step
        old = state.average
        afresh = self._auc.has_faults(old) | ~jnp.any(old[0] > 0)
        keep = jnp.where(afresh, 0, jnp.float32(self.decay_rate))
        take = jnp.where(afresh, 1, jnp.float32(1 - self.decay_rate))
        average = sums.add(keep * old, take * window)
        return DecayedAUCState(
            average=jnp.where(full, average, old),
            window=jnp.where(full, 0, window),
            updates=jnp.where(full, 0, updates),
        )

    def merge(self, a: DecayedAUCState, b: DecayedAUCState) -> DecayedAUCState:
        """Add the histograms of replicas that are in step."""
        auc, xp = self._auc, jnp if is_traced(a, b) else np
        return DecayedAUCState(
            auc.merge(a.average, b.average), auc.merge(a.window, b.window), xp.maximum(a.updates, b.updates)
        )

    def evaluate(self, state: DecayedAUCState) -> Result:
        """Return the AUC of the decayed histogram."""
        if not np.asarray(state.average).any():
            why = f"no window of {self.decay_step} updates has ended yet"
            return Result(float("nan"), f"{self.name}: {why}", {})
        return self._auc.evaluate(state.average)

    def value(self, state: DecayedAUCState) -> jax.Array:
        """Return the AUC of the decayed histogram, inside a step."""
        return self._auc.value(state.average)

    def has_faults(self, state: DecayedAUCState) -> Any:
        """Whether the last window has rows that cannot be judged."""
        return self._auc.has_faults(state.average)
