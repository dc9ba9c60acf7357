"""The protocol of metrics, ``init``, ``update``, ``merge``, ``compute``, and their registry."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from sparrow import fields
from sparrow.registry import Registry
from sparrow.trees import named_leaves

State = TypeVar("State")


class Result(NamedTuple):
    """The result of a state: the number, the reason where there is none (or None), and further details."""

    value: float
    reason: str | None
    details: dict[str, Any]


class Metric(abc.ABC, Generic[State]):
    """A metric is a frozen dataclass of plain options; the rows seen are a separate value, the state.

    The state is a pytree and is never changed in place. Every metric obeys three laws (decayed ones depend on the
    order of their updates and obey the last two only): batching does not change the result, ``merge`` is
    associative and order-free, and ``init()`` is its neutral element.

    Rows whose weight is 0 are as good as absent, whatever they hold: that is how a short last batch is padded. Any
    other row that cannot be judged (a NaN prediction, an impossible label or weight) makes the result NaN,
    and `reason` gives their number.

    There are two kinds:

    * fixed size: the state is a few sums; ``update`` runs anywhere, inside a jitted step too (`jittable`);
    * exact, by rows: the state keeps the rows in NumPy, so ``update`` runs on the host. Return predictions,
      labels and the rest from the jitted step and feed them outside of it.
    """

    needs_groups: ClassVar[bool] = False
    needs_labels: ClassVar[bool] = True

    def __post_init__(self) -> None:
        fields.check(self)

    @property
    @abc.abstractmethod
    def jittable(self) -> bool:
        """Whether ``update`` and `value` may run inside ``jax.jit``."""

    @property
    def needs_probabilities(self) -> bool:
        """Whether predictions must be in [0, 1]: True where a metric has the option ``from_logits`` and it is off."""
        return getattr(self, "from_logits", None) is False

    @abc.abstractmethod
    def init(self) -> State:
        """Return the state that has seen nothing."""

    @abc.abstractmethod
    def update(self, state: State, predictions: Any, labels: Any, weights: Any = None, groups: Any = None) -> State:
        """``state`` with one more batch. The first axis of every argument is the batch."""

    @abc.abstractmethod
    def merge(self, a: State, b: State) -> State:
        """One state that has seen what ``a`` and ``b`` have seen."""

    @abc.abstractmethod
    def evaluate(self, state: State) -> Result:
        """Return the number, the reason when there is none, and the details, in one pass over the state."""

    @abc.abstractmethod
    def has_faults(self, state: State) -> Any:
        """Whether the state has seen rows that cannot be judged: a bool, or a traced one inside a step."""

    def compute(self, state: State) -> float:
        """Return the metric, in float64 on the host. NaN where it is not defined: `reason` gives the cause."""
        return self.evaluate(state).value

    def reason(self, state: State) -> str | None:
        """Why `compute` is NaN, in one sentence; None when it is a number."""
        return self.evaluate(state).reason

    def details(self, state: State) -> dict[str, Any]:
        """Return the details of the number: a curve, values per class, the lists left out."""
        return self.evaluate(state).details

    def value(self, state: State) -> jax.Array:
        """Return the metric as a float32 scalar, NaN where not defined; runs inside a jitted step (`jittable` only)."""
        raise TypeError(f"{self.name}: computed on the host only; call compute(state) outside of jax.jit")

    def to_arrays(self, state: State) -> dict[str, NDArray[Any]]:
        """Return the state as named arrays of numbers, which `to_bytes` writes and processes exchange."""
        return {name: np.asarray(leaf) for name, leaf in named_leaves(state).items()}

    def from_arrays(self, arrays: dict[str, NDArray[Any]]) -> State:
        """Return the state of arrays from `to_arrays`."""
        empty = self.init()
        names = list(self.to_arrays(empty))
        treedef = jax.tree.structure(empty)
        return jax.tree.unflatten(treedef, [jnp.asarray(arrays[name]) for name in names])  # type: ignore[no-any-return]

    @property
    def name(self) -> str:
        """The word that errors and reasons begin with."""
        return type(self).__name__


DESCRIPTIONS: Final = {
    "add_origin": "Whether the curve begins in the origin.",
    "average": "How the values of groups or classes are averaged.",
    "bins": "The number of bins of predictions.",
    "decay_rate": "The factor of older batches.",
    "decay_step": "The number of updates between two decays.",
    "epsilon": "A small number in the denominator.",
    "eta": "The smallest distance of a prediction from 0 and 1.",
    "from_logits": "Whether predictions are logits instead of probabilities.",
    "gain": "The gain of a label.",
    "in_batch": "Whether pairs are of examples of one batch.",
    "max_pairs": "The largest number of pairs that are drawn.",
    "metric": "The metric that is computed.",
    "num_classes": "The number of classes.",
    "sample_ratio": "The share of all pairs that is drawn; None counts every pair.",
    "seed": "The seed of the draw.",
    "threshold": "The prediction from which on a class is predicted.",
    "thresholds": "The number of thresholds at which the curve is known.",
    "top_k": "The number of best predictions that count.",
}


MetricClass = TypeVar("MetricClass", bound=type[Any])

registry: Registry[Metric[Any]] = Registry("metric", Metric, descriptions=DESCRIPTIONS)


def register_metric(name: str) -> Callable[[MetricClass], MetricClass]:
    """Class decorator: makes a metric available to configs under ``name``.

    >>> registry.to_dict(registry.make("auc", thresholds=100))["thresholds"]
    100
    """
    return registry.register(name)
