"""MARS: Adam on gradients from which part of the noise has been taken away."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax

from sparrow.dense.clipping import global_norm
from sparrow.dense.registry import DenseOptimizer, register_optimizer
from sparrow.fields import NotNegative, Positive, Share, name_dtype

Clip = Literal["global", "per_tensor"]


ScaleByMarsState = collections.namedtuple("ScaleByMarsState", "step mu nu previous")
"""State of `Mars`; ``previous`` is the gradient of the step before, and the trees hold its ``state_dtype``."""


def _clipped(tree: optax.Updates, max_norm: Any, clip: Clip) -> optax.Updates:
    if clip == "global":
        scale = jnp.minimum(1.0, max_norm / (global_norm(tree) + 1e-6))
        return jax.tree.map(lambda leaf: leaf * scale, tree)

    def clipped(leaf: jax.Array) -> jax.Array:
        norm = jnp.linalg.norm(leaf.ravel())
        return leaf * jnp.where(norm > max_norm, max_norm / norm, 1.0)

    return jax.tree.map(clipped, tree)


@register_optimizer("mars")
@dataclasses.dataclass(frozen=True)
class Mars(DenseOptimizer):
    """MARS-AdamW, in the form that needs one gradient per step.

    With ``g`` the gradient and ``p`` that of the step before (zero at first), at step ``t``::

        c  = g + gamma beta1 / (1 - beta1) (g - p)
        c  = c min(1, max_grad_norm / |c|)
        mu = beta1 mu + (1 - beta1) c;     nu = beta2 nu + (1 - beta2) c²
        direction = (mu / (1 - beta1^t)) / (sqrt(nu / (1 - beta2^t)) + eps)

    Attributes:
        beta1: decay of the mean of the corrected gradient.
        beta2: decay of the mean of its square.
        gamma: how strongly the gradient's change is added; 0 gives Adam.
        eps: added to the root of the second moment.
        max_grad_norm: the corrected gradient is scaled down to this norm; None leaves it.
        clip: "per_tensor" takes the norm of each parameter on its own, as in the paper's code; "global" takes that
            of all parameters together (with 1e-6 added to it), as most JAX ports do.
        state_dtype: "float32" or "bfloat16", of ``mu``, ``nu`` and ``p``.

    The paper gives vectors to AdamW with its own rates; parameter groups do that here.

    >>> tx = Mars().build(optax.constant_schedule(0.1))
    >>> params = jnp.array([1.0, -2.0])
    >>> state, update = tx.init(params), jax.jit(tx.update)
    >>> for _ in range(100):
    ...     updates, state = update(2 * params, state)
    ...     params = optax.apply_updates(params, updates)
    >>> bool(jnp.abs(params).max() < 0.1)
    True

    References:
        Yuan et al., `MARS: Unleashing the power of variance reduction for training large models
        <https://arxiv.org/abs/2411.10438>`_, 2024
    """

    beta1: Share = 0.95
    beta2: Share = 0.99
    gamma: NotNegative = 0.025
    eps: NotNegative = 1e-8
    max_grad_norm: Positive | None = 1.0
    clip: Clip = "global"
    state_dtype: str = "float32"

    def __post_init__(self) -> None:
        super().__post_init__()
        name_dtype(self, "state_dtype", "float32", "bfloat16")

    def direction(self) -> optax.GradientTransformation:
        beta1, beta2, dtype = self.beta1, self.beta2, jnp.dtype(self.state_dtype)
        strength = self.gamma * beta1 / (1 - beta1)

        def init(params: optax.Params) -> ScaleByMarsState:
            return ScaleByMarsState(jnp.zeros([], jnp.int32), *(optax.tree.zeros_like(params, dtype) for _ in range(3)))

        def update(
            updates: optax.Updates, state: ScaleByMarsState, params: optax.Params | None = None
        ) -> tuple[optax.Updates, ScaleByMarsState]:
            del params
            step = optax.safe_increment(state.step)
            gradients = optax.tree.cast(updates, jnp.float32)
            corrected = jax.tree.map(lambda g, before: g + strength * (g - before), gradients, state.previous)
            if self.max_grad_norm is not None:
                corrected = _clipped(corrected, self.max_grad_norm, self.clip)
            mu = jax.tree.map(lambda m, c: beta1 * m + (1 - beta1) * c, state.mu, corrected)
            nu = jax.tree.map(lambda n, c: beta2 * n + (1 - beta2) * jnp.square(c), state.nu, corrected)
            mu_scale, nu_scale = 1 - beta1**step, 1 - beta2**step

            def scaled(g: Any, m: Any, n: Any) -> Any:
                return ((m / mu_scale) / (jnp.sqrt(n / nu_scale) + self.eps)).astype(g.dtype)

            kept = (optax.tree.cast(tree, dtype) for tree in (mu, nu, gradients))
            return jax.tree.map(scaled, updates, mu, nu), ScaleByMarsState(step, *kept)

        return optax.GradientTransformation(init, update)
