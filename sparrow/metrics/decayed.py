"""Metrics over the latest steps of training, instead of all steps since the beginning: the AUC, and any other one."""

from __future__ import annotations

import dataclasses
import functools
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from sparrow.fields import Count, Share
from sparrow.metrics import sums
from sparrow.metrics.auc import AUC, Thresholds
from sparrow.metrics.fixed import SumState
from sparrow.metrics.inputs import as_arrays, is_traced, refuse_groups
from sparrow.metrics.protocol import Metric, Result, register_metric


class DecayedAUCState(NamedTuple):
    """``average`` is the decayed histogram, ``window`` that of the updates since it last changed."""

    average: SumState
    window: SumState
    updates: jax.Array  # () int32, in the window


@dataclasses.dataclass(frozen=True)
class DecayedHistogram(AUC):
    """The histogram and the curve of `DecayedAUC`; its errors and reasons name the latter."""

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

    thresholds: Thresholds = 200
    decay_rate: Share = 0.9
    decay_step: Count = 100
    from_logits: bool = False
    add_origin: bool = False

    @property
    def _auc(self) -> AUC:
        return DecayedHistogram(self.thresholds, self.from_logits, self.add_origin)

    jittable = True

    def init(self) -> DecayedAUCState:
        return DecayedAUCState(self._auc.init(), self._auc.init(), jnp.asarray(np.int32(0)))

    def update(
        self, state: DecayedAUCState, predictions: Any, labels: Any, weights: Any = None, groups: Any = None
    ) -> DecayedAUCState:
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
        auc, xp = self._auc, jnp if is_traced(a, b) else np
        return DecayedAUCState(
            auc.merge(a.average, b.average), auc.merge(a.window, b.window), xp.maximum(a.updates, b.updates)
        )

    def evaluate(self, state: DecayedAUCState) -> Result:
        if not np.asarray(state.average).any():
            why = f"no window of {self.decay_step} updates has ended yet"
            return Result(float("nan"), f"{self.name}: {why}", {})
        return self._auc.evaluate(state.average)

    def value(self, state: DecayedAUCState) -> jax.Array:
        return self._auc.value(state.average)

    def has_faults(self, state: DecayedAUCState) -> Any:
        """Whether the last window has rows that cannot be judged."""
        return self._auc.has_faults(state.average)


class DecayedState(NamedTuple):
    """``value`` is the average so far; ``inner`` has seen the updates of the window that is not full yet."""

    inner: Any
    updates: Any  # () int32, in the window
    value: Any  # () float32
    windows: Any  # () int32, that are in the value
    skipped: Any  # () int32, windows in which the metric is not defined
    broken: Any  # () bool, whether the last window has rows that cannot be judged


@register_metric("decayed")
@dataclasses.dataclass(frozen=True)
class Decayed(Metric[DecayedState]):
    """The moving average of a metric over windows of ``decay_step`` updates.

    At the end of every window: ``v = metric of the window; value <- decay_rate * value + (1 - decay_rate) * v``, the
    first window giving ``value = v``. NaN before the first window ends. Windows in which the metric is not defined
    (such as of one class only) are skipped, and counted in `details`. A window with rows that cannot be judged makes
    the value NaN until the next window, which starts afresh.

    Fixed size and jittable where the metric is; on the host where it keeps rows (then only those of one window).
    It depends on the order of the updates. `merge` takes the mean over replicas that are in step, by their number
    of windows; inside a jitted step over a sharded batch nothing needs merging, since the batch is complete.

    >>> from sparrow.metrics.pointwise import MAE
    >>> metric = Decayed(MAE(), decay_rate=0.5, decay_step=1)
    >>> state = metric.update(metric.init(), [1.0, 2.0], [0.0, 1.0])
    >>> metric.compute(metric.update(state, [1.0, 2.0], [4.0, 5.0]))
    2.0
    """

    metric: Metric[Any]
    decay_rate: Share = 0.9
    decay_step: Count = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.metric, Metric) or isinstance(self.metric, Decayed | DecayedAUC):
            raise ValueError(f"Decayed: metric must be a metric that is not decayed itself; got {self.metric!r}")

    @property
    def name(self) -> str:
        return f"Decayed({self.metric.name})"

    @property
    def needs_groups(self) -> bool:  # type: ignore[override]
        return self.metric.needs_groups

    @property
    def needs_probabilities(self) -> bool:
        return self.metric.needs_probabilities

    @property
    def jittable(self) -> bool:
        return self.metric.jittable

    def init(self) -> DecayedState:
        xp = jnp if self.jittable else np
        zero, nan, no = (xp.asarray(value) for value in (np.int32(0), np.float32(np.nan), np.bool_(False)))
        return DecayedState(self.metric.init(), updates=zero, value=nan, windows=zero, skipped=zero, broken=no)

    def update(
        self, state: DecayedState, predictions: Any, labels: Any = None, weights: Any = None, groups: Any = None
    ) -> DecayedState:
        if self.jittable:
            refuse_groups(self.name, groups)
            added: DecayedState = self._add(state, *as_arrays(self.name, predictions, labels, weights))
            return added
        inner = self.metric.update(state.inner, predictions, labels, weights, groups)
        state = state._replace(inner=inner, updates=state.updates + 1)
        if state.updates < self.decay_step:
            return state
        return self._close(state, np, np.float32(self.metric.compute(inner)))

    @functools.partial(jax.jit, static_argnums=0)
    def _add(self, state: DecayedState, predictions: Any, labels: Any, weights: Any) -> DecayedState:
        inner = self.metric.update(state.inner, predictions, labels, weights)
        state = state._replace(inner=inner, updates=state.updates + 1)
        closed: DecayedState = jax.lax.cond(
            state.updates >= self.decay_step,
            lambda state: self._close(state, jnp, self.metric.value(state.inner)),
            lambda state: state,
            state,
        )
        return closed

    def _close(self, state: DecayedState, xp: ModuleType, current: Any) -> DecayedState:
        """End a window whose value is ``current``."""
        broken = xp.asarray(self.metric.has_faults(state.inner))
        defined = ~xp.isnan(current)
        blended = self.decay_rate * state.value + (1 - self.decay_rate) * current
        blended = xp.where(xp.isnan(state.value), current, blended)
        value = xp.where(broken, xp.nan, xp.where(defined, blended, state.value))
        return DecayedState(
            inner=self.metric.init(),
            updates=xp.zeros_like(state.updates),
            value=xp.asarray(value, xp.float32),
            windows=state.windows + xp.asarray(defined, xp.int32),
            skipped=state.skipped + xp.asarray(~defined, xp.int32),
            broken=broken,
        )

    def merge(self, a: DecayedState, b: DecayedState) -> DecayedState:
        xp: ModuleType = jnp if is_traced(a, b) else np
        if xp is np:
            a, b = jax.tree.map(np.asarray, (a, b))
        windows, broken = a.windows + b.windows, a.broken | b.broken
        total = sum(xp.where(s.windows > 0, s.windows * s.value, 0) for s in (a, b))
        value = xp.where(broken | (windows == 0), xp.nan, total / xp.maximum(windows, 1))
        return DecayedState(
            inner=self.metric.merge(a.inner, b.inner),
            updates=xp.maximum(a.updates, b.updates),
            value=xp.asarray(value, xp.float32),
            windows=windows,
            skipped=a.skipped + b.skipped,
            broken=broken,
        )

    def evaluate(self, state: DecayedState) -> Result:
        value, details = float(state.value), {"skipped_windows": int(state.skipped)}
        if not np.isnan(value):
            return Result(value, None, details)
        if bool(state.broken):
            why = "the last window has rows that cannot be judged (NaN predictions, impossible labels or weights)"
        elif int(state.skipped):
            why = f"the metric is not defined in any of the {int(state.skipped)} windows so far"
        else:
            why = f"no window of {self.decay_step} updates has ended yet"
        return Result(value, f"{self.name}: {why}", details)

    def to_arrays(self, state: DecayedState) -> dict[str, NDArray[Any]]:
        inner = {f"inner/{name}": array for name, array in self.metric.to_arrays(state.inner).items()}
        return {**inner, **{name: np.asarray(getattr(state, name)) for name in state._fields[1:]}}

    def from_arrays(self, arrays: dict[str, NDArray[Any]]) -> DecayedState:
        xp = jnp if self.jittable else np
        inner = {name[6:]: array for name, array in arrays.items() if name.startswith("inner/")}
        own = {name: xp.asarray(arrays[name]) for name in DecayedState._fields[1:]}
        return DecayedState(inner=self.metric.from_arrays(inner), **own)

    def value(self, state: DecayedState) -> jax.Array:
        return jnp.asarray(state.value)

    def has_faults(self, state: DecayedState) -> Any:
        """Whether the window that is not full yet has rows that cannot be judged."""
        return self.metric.has_faults(state.inner)
