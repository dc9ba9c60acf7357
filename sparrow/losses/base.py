"""`Loss`: an equation with its hyper-parameters, the meaning of the output that it trains, its mean over examples."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, TypeVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from sparrow import fields
from sparrow.losses import _checks as checks
from sparrow.registry import Registry, answering

L = TypeVar("L", bound="type[Loss]")

LabelKind = Literal["binary", "class", "real", "none"]


class Loss(abc.ABC):
    """A loss with its hyper-parameters: a frozen dataclass, called with arrays, one value per example.

    A loss describes the output that it trains, so that evaluation, files of predictions and exports need to know
    nothing else about it. A subclass must define `__call__`, `prediction` and `meaning`; the rest has defaults.

    Attributes:
      label_kind: the labels that it takes: "binary" (0 and 1, or probabilities in between), "class" (integers from 0),
        "real" (any number), or "none" where it reads no label.
      num_classes: how many classes there are; None: as many as the model has logits.
      is_probability: whether `prediction` is the probability of a label above 0, for ROC and calibration curves.
      is_per_example: whether the value of an example depends on that example alone. Then short batches are padded, and
        need no program of their own; False where examples are compared, or it is not known.
      negatives: the negatives of a softmax over items: "batch" (the items of the other examples), or "drawn" (by the
        sampler); None for any other loss.
    """

    label_kind: ClassVar[LabelKind] = "real"
    num_classes: ClassVar[int | None] = None
    is_probability: ClassVar[bool] = False
    is_per_example: ClassVar[bool] = False
    negatives: ClassVar[Literal["batch", "drawn"] | None] = None

    def __post_init__(self) -> None:
        fields.check(self, f"{self.name}: ")

    @property
    def name(self) -> str:
        """The word that errors begin with: the name in config files, else that of the class."""
        return registry.name_of(self) if type(self) in registry else type(self).__name__

    @abc.abstractmethod
    def __call__(self, *arrays: Any, **named_arrays: Any) -> jax.Array:
        """Return one value per example."""

    @abc.abstractmethod
    def prediction(self, output: Any) -> jax.Array:
        """Return the prediction for each example from the model's output, for metrics and for users.

        ``output`` is an array, (batch,) or (batch, classes); the `Towers` where the loss is of two towers; all outputs
        by name where it reads other `outputs`.
        """

    @property
    @abc.abstractmethod
    def meaning(self) -> str:
        """The meaning of a prediction in a few words, such as "probability"; a class attribute will do."""

    @property
    def is_from_0_to_1(self) -> bool:
        """Whether predictions are in [0, 1], as `auc`, `log_loss` and others need them; a class attribute will do."""
        return self.is_probability or "probability" in self.meaning

    @property
    def corrects_frequency(self) -> bool:
        """Whether it corrects for how often an item is a negative (log Q)."""
        return False

    @property
    def outputs(self) -> tuple[str, ...]:
        """The model's outputs that it reads, such as those of two towers; empty: the output of its task."""
        return ()

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns of the batch that it compares for equality, such as that of the session."""
        return ()

    @property
    def is_matching(self) -> bool:
        """Whether it is a loss of two towers, which compares a query with items."""
        return "query" in self.outputs

    @property
    def reads_label(self) -> bool:
        """Whether it compares the output with a label."""
        return self.label_kind != "none" and not self.is_matching

    def compared(self, output: Any) -> tuple[jax.Array, jax.Array]:
        """Return what metrics compare, where there is no label: a prediction, and what it should be."""
        raise TypeError(f"{type(self).__name__} reads no label, and gives metrics nothing to compare")

    def values(self, output: Any, labels: Any, keys: Sequence[Any]) -> jax.Array:
        """Return one value per example of a batch.

        ``output`` is that of `prediction`; ``keys`` are the `key_columns`, numbered by value.
        """
        return self(output, *keys) if self.label_kind == "none" else self(output, labels, *keys)


class BinaryLoss(Loss):
    """A loss of logits whose sigmoid is the probability of a yes."""

    label_kind = "binary"
    is_probability = True
    meaning = "probability"

    def prediction(self, output: jax.Array) -> jax.Array:
        return jax.nn.sigmoid(output)


registry: Registry[Loss] = Registry("loss", Loss)


def register_loss(name: str) -> Callable[[L], L]:
    """Class decorator: makes a loss of yours known by ``name``, to config files too.

    >>> @register_loss("absolute_error")
    ... @dataclasses.dataclass(frozen=True)
    ... class AbsoluteError(Loss):
    ...     scale: float = 1.0
    ...     meaning = "value"
    ...
    ...     def __call__(self, outputs, labels):
    ...         return self.scale * jnp.abs(outputs - labels)
    ...
    ...     def prediction(self, output):
    ...         return output
    >>> loss = registry.from_dict({"name": "absolute_error", "scale": 2.0})
    >>> print(loss(jnp.array([1.0, 4.0]), jnp.array([1.5, 2.0])))
    [1. 4.]
    """

    def decorate(cls: L) -> L:
        if not issubclass(cls, Loss):
            raise TypeError(f"loss '{name}': {cls.__name__} must be a subclass of sparrow.losses.Loss")
        if not (dataclasses.is_dataclass(cls) and cls.__dataclass_params__.frozen):
            raise TypeError(f"loss '{name}': {cls.__name__} must be a dataclass with frozen=True")
        if cls.__abstractmethods__:
            missing = ", ".join(sorted(cls.__abstractmethods__))
            raise TypeError(
                f"loss '{name}': {cls.__name__} must define {missing}; prediction(output) makes the prediction of the "
                "model's output (return it as it is where that is the prediction), meaning names it"
            )
        return registry.register(name)(cls)

    return decorate


def normalize_weights(weights: ArrayLike) -> jax.Array:
    """Weights with mean 1, ``weights / mean(weights)``; all 0 where the weights add up to 0.

    >>> print(normalize_weights(jnp.array([1.0, 3.0])))
    [0.5 1.5]
    """
    weights = jnp.asarray(weights)
    if not jnp.issubdtype(weights.dtype, jnp.floating):
        weights = weights.astype(jnp.float32)  # masks and counts are weights as well
    weights = checks.floating("normalize_weights", "weights", weights)
    # The mean of no weights at all is 0 / 1; written out, because jnp.mean would make it NaN.
    mean = jnp.sum(weights) / max(weights.size, 1)
    return jnp.where(mean == 0, 0, weights / jnp.where(mean == 0, 1, mean))


@answering
def reduce(values: ArrayLike, weights: ArrayLike | None = None) -> jax.Array:
    """Return the mean of a loss's values, each times its weight.

    ::

        mean(values * weights / mean(weights))

    Only the ratio of the weights matters: twice the weight counts as twice the example, and the scale of the loss (and
    so the learning rate) does not change. With no example, or weights that add up to 0, the result and its gradient
    are 0. Under ``jit`` both means are over the complete batch, on however many devices it lies.

    Args:
      values: one value per example, any shape.
      weights: not negative, same shape; None weighs all alike.

    Returns:
      A scalar, float32.

    >>> print(reduce(jnp.array([1.0, 4.0])), reduce(jnp.array([1.0, 4.0]), weights=jnp.array([2.0, 1.0])))
    2.5 2.0
    """
    values = checks.floating("reduce", "values", values)
    if weights is not None:
        weights = jnp.asarray(weights)
        checks.shape("reduce", "weights", weights, values.shape, "that of the values")
        values = values * normalize_weights(weights.astype(values.dtype))
    return jnp.sum(values) / max(values.size, 1)
