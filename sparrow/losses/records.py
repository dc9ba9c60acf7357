"""Losses by name: frozen records of hyper-parameters, for config files and for one's own losses."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import jax
from jax.typing import ArrayLike

from sparrow.losses import _checks as checks
from sparrow.losses.binary import binary_cross_entropy, binary_focal
from sparrow.losses.matching import in_batch_softmax, sampled_softmax
from sparrow.losses.pairwise import bpr
from sparrow.losses.regression import l2
from sparrow.losses.sessionwise import jrc
from sparrow.losses.softmax import softmax_cross_entropy
from sparrow.registry import Registry

L = TypeVar("L", bound="type[Loss]")


class Loss(abc.ABC):
    """A loss with its hyper-parameters: called with the arrays of a batch, it gives one value per example."""

    @abc.abstractmethod
    def __call__(self, *arrays: Any, **named_arrays: Any) -> jax.Array:
        """One value per example."""


registry: Registry[Loss] = Registry("loss")


def register_loss(name: str) -> Callable[[L], L]:
    """Class decorator: makes one's own loss known by ``name``, to config files too.

    >>> import jax.numpy as jnp
    >>> @register_loss("absolute_error")
    ... @dataclasses.dataclass(frozen=True)
    ... class AbsoluteError(Loss):
    ...     scale: float = 1.0
    ...
    ...     def __call__(self, predictions, labels):
    ...         return self.scale * jnp.abs(predictions - labels)
    >>> loss = registry.from_dict({"name": "absolute_error", "scale": 2.0})
    >>> print(loss(jnp.array([1.0, 4.0]), jnp.array([1.5, 2.0])))
    [1. 4.]
    """

    def decorate(cls: L) -> L:
        if not issubclass(cls, Loss):
            raise TypeError(f"loss '{name}': {cls.__name__} must be a subclass of sparrow.losses.Loss")
        if not (dataclasses.is_dataclass(cls) and cls.__dataclass_params__.frozen):
            raise TypeError(f"loss '{name}': {cls.__name__} must be a dataclass with frozen=True")
        return registry.register(name)(cls)

    return decorate


@register_loss("binary_cross_entropy")
@dataclasses.dataclass(frozen=True)
class BinaryCrossEntropy(Loss):
    """`binary_cross_entropy`, as a record."""

    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        checks.number("binary_cross_entropy", "label_smoothing", self.label_smoothing, 0, 1)

    def __call__(self, logits: ArrayLike, labels: ArrayLike) -> jax.Array:
        """One value per example."""
        return binary_cross_entropy(logits, labels, self.label_smoothing)


@register_loss("binary_focal")
@dataclasses.dataclass(frozen=True)
class BinaryFocal(Loss):
    """`binary_focal`, as a record."""

    gamma: float = 2.0
    alpha: float = 0.5

    def __post_init__(self) -> None:
        checks.number("binary_focal", "gamma", self.gamma, 0)
        checks.number("binary_focal", "alpha", self.alpha, 0, 1, "[]")

    def __call__(self, logits: ArrayLike, labels: ArrayLike) -> jax.Array:
        """One value per example."""
        return binary_focal(logits, labels, self.gamma, self.alpha)


@register_loss("softmax_cross_entropy")
@dataclasses.dataclass(frozen=True)
class SoftmaxCrossEntropy(Loss):
    """`softmax_cross_entropy`, as a record."""

    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        checks.number("softmax_cross_entropy", "label_smoothing", self.label_smoothing, 0, 1)

    def __call__(self, logits: ArrayLike, labels: ArrayLike) -> jax.Array:
        """One value per example."""
        return softmax_cross_entropy(logits, labels, self.label_smoothing)


@register_loss("l2")
@dataclasses.dataclass(frozen=True)
class L2(Loss):
    """`l2`, as a record."""

    def __call__(self, predictions: ArrayLike, labels: ArrayLike) -> jax.Array:
        """One value per example."""
        return l2(predictions, labels)


@register_loss("jrc")
@dataclasses.dataclass(frozen=True)
class JRC(Loss):
    """`jrc`, as a record. ``session_name`` is the field of the batch that holds the session ids."""

    session_name: str
    alpha: float = 0.5

    def __post_init__(self) -> None:
        if not isinstance(self.session_name, str) or not self.session_name:
            raise ValueError(f"jrc: session_name must be the name of a batch field, got {self.session_name!r}")
        checks.number("jrc", "alpha", self.alpha, 0, 1, "[]")

    def __call__(self, logits: ArrayLike, labels: ArrayLike, sessions: ArrayLike) -> jax.Array:
        """One value per example."""
        return jrc(logits, labels, sessions, self.alpha)


@register_loss("bpr")
@dataclasses.dataclass(frozen=True)
class BPR(Loss):
    """`bpr`, as a record.

    With ``session_name``, the field of the batch that holds the session ids, an example with a label above 0 is to
    score above those of its session without one. Without it, what a query chose is to score above other items.
    """

    session_name: str | None = None

    def __post_init__(self) -> None:
        if self.session_name is not None and (not isinstance(self.session_name, str) or not self.session_name):
            raise ValueError(f"bpr: session_name must be the name of a batch field, got {self.session_name!r}")

    def __call__(
        self, positive_logits: ArrayLike, negative_logits: ArrayLike, where: ArrayLike | None = None
    ) -> jax.Array:
        """One value per example."""
        return bpr(positive_logits, negative_logits, where)


@dataclasses.dataclass(frozen=True)
class _CandidateSoftmax(Loss):
    temperature: float = 1.0
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        checks.number(registry.name_of(self), "temperature", self.temperature, 0, interval="()")
        checks.number(registry.name_of(self), "label_smoothing", self.label_smoothing, 0, 1)


@register_loss("in_batch_softmax")
@dataclasses.dataclass(frozen=True)
class InBatchSoftmax(_CandidateSoftmax):
    """`in_batch_softmax`, as a record."""

    def __call__(self, query: ArrayLike, item: ArrayLike, **arrays: ArrayLike | None) -> jax.Array:
        """One value per query; ``arrays`` are ``log_q`` and ``item_ids``."""
        return in_batch_softmax(
            query, item, temperature=self.temperature, label_smoothing=self.label_smoothing, **arrays
        )


@register_loss("sampled_softmax")
@dataclasses.dataclass(frozen=True)
class SampledSoftmax(_CandidateSoftmax):
    """`sampled_softmax`, as a record."""

    def __call__(
        self, query: ArrayLike, positive: ArrayLike, negatives: ArrayLike, **arrays: ArrayLike | None
    ) -> jax.Array:
        """One value per query; ``arrays`` are the log q and the ids of positives and negatives."""
        return sampled_softmax(
            query,
            positive,
            negatives,
            temperature=self.temperature,
            label_smoothing=self.label_smoothing,
            **arrays,
        )
