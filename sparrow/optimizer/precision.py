"""Mixed precision: the dtype that a model computes in, and the loss scale that keeps float16 gradients alive."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Final, NamedTuple

import jax
import jax.numpy as jnp

from sparrow import fields
from sparrow.registry import answering, nearest

PRECISIONS: Final = {
    "float32": "float32",
    "bfloat16": "bfloat16",
    "bf16": "bfloat16",
    "float16": "float16",
    "fp16": "float16",
}


def compute_dtype(name: str) -> str:
    """Return the dtype behind a precision's name.

    >>> compute_dtype("bf16")
    'bfloat16'
    """
    if name not in PRECISIONS:
        raise ValueError(f"unknown precision '{name}': {nearest(str(name), PRECISIONS)}")
    return PRECISIONS[name]


def cast(tree: Any, dtype: str) -> Any:
    """Return the tree with its floating-point leaves in ``dtype``; other leaves stay."""
    return jax.tree.map(
        lambda leaf: leaf.astype(dtype) if jnp.issubdtype(jnp.result_type(leaf), jnp.floating) else leaf, tree
    )


class LossScaleState(NamedTuple):
    """State of a dynamic loss scale."""

    scale: jax.Array  # shape=(), dtype=float32
    good_steps: jax.Array  # shape=(), dtype=int32: finite steps since the scale last changed


@answering
@dataclasses.dataclass(frozen=True)
class LossScale:
    """Dynamic loss scaling: the loss is multiplied by ``scale``, the gradients are divided by it again.

    After ``growth_interval`` finite steps in a row the scale grows by ``growth_factor``; after a step whose gradients
    are not finite it shrinks by ``backoff_factor``.

    >>> policy = LossScale(init_scale=8.0, growth_interval=2)
    >>> state = policy.init()
    >>> for finite in (True, True, False):
    ...     state = policy.update(state, jnp.array(finite))
    ...     print(float(state.scale), int(state.good_steps))
    8.0 1
    16.0 0
    8.0 0

    Attributes:
      init_scale: the first scale.
      growth_factor: the factor by which the scale grows.
      backoff_factor: the factor by which it shrinks.
      growth_interval: finite steps in a row after which it grows.

    Reference: Micikevicius et al., 2017, arXiv 1710.03740.
    """

    init_scale: fields.Positive = 65536.0
    growth_factor: Annotated[float, fields.Bounds(at_least=1)] = 2.0
    backoff_factor: Annotated[float, fields.Bounds(above=0, at_most=1)] = 0.5
    growth_interval: fields.Count = 2000

    def __post_init__(self) -> None:
        fields.check(self)

    def init(self) -> LossScaleState:
        """Return the state before the first step."""
        return LossScaleState(jnp.asarray(self.init_scale, jnp.float32), jnp.zeros((), jnp.int32))

    def update(self, state: LossScaleState, finite: jax.Array) -> LossScaleState:
        """Return the state after a step whose gradients were, or were not, finite."""
        good_steps = state.good_steps + 1
        grows = finite & (good_steps >= self.growth_interval)
        grown = state.scale * self.growth_factor
        grown = jnp.where(jnp.isfinite(grown), grown, state.scale)
        kept = jnp.where(grows, grown, state.scale)
        return LossScaleState(
            scale=jnp.where(finite, kept, state.scale * self.backoff_factor),
            good_steps=jnp.where(finite & ~grows, good_steps, 0),
        )
