"""Equations that optax does not have, or has in another form than PyTorch: one `scale_by_*` each.

State is a tree like the parameters, in the parameters' dtypes. Updates keep the gradients' dtypes.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from sparrow.rules import bias_correction, divide_or_zero, step_count

Number = float | jax.Array

# States: ``step`` is an int32 scalar, the rest are trees like the parameters.
TraceState = collections.namedtuple("TraceState", "step trace")
AdagradState = collections.namedtuple("AdagradState", "accumulator")
AmsgradState = collections.namedtuple("AmsgradState", "step mu nu nu_max")
CenteredState = collections.namedtuple("CenteredState", "mean square")


def dampened_trace(momentum: Number, dampening: Number) -> optax.GradientTransformation:
    """PyTorch's momentum with dampening; the first gradient comes in undampened.

    ``trace' = momentum * trace + (1 - dampening) * g`` after a first ``trace' = g``; the update is ``trace'``.

    Reference: ``torch.optim.SGD``.
    """

    def equation(step: jax.Array, g: jax.Array, trace: jax.Array) -> tuple[jax.Array, ...]:
        trace = momentum * trace + jnp.where(step == 0, 1.0, 1.0 - dampening) * g
        return trace, trace

    return _leafwise(TraceState, equation, lambda params: [optax.tree.zeros_like(params)])


def scale_by_adagrad(initial_accumulator: Number, eps: Number) -> optax.GradientTransformation:
    """``accumulator' = accumulator + g**2``; the update is ``g / (sqrt(accumulator') + eps)``.

    eps stands outside the root, as in PyTorch and in the rules for tables (``optax.adagrad`` has it inside). Without
    history and gradient the update is 0, even with eps 0.

    Duchi, Hazan, Singer, Adaptive Subgradient Methods, JMLR 12, 2011.
    """

    def equation(step: jax.Array | None, g: jax.Array, accumulator: jax.Array) -> tuple[jax.Array, ...]:
        accumulator = accumulator + jnp.square(g)
        return divide_or_zero(g, jnp.sqrt(accumulator) + eps), accumulator

    return _leafwise(AdagradState, equation, lambda params: [optax.tree.full_like(params, initial_accumulator)])


def scale_by_amsgrad(
    beta1: Number, beta2: Number, eps: Number, eps_root: Number = 0.0, mu_dtype: Any = None
) -> optax.GradientTransformation:
    """Adam whose second moment never falls: the maximum is taken over the raw moment, as in PyTorch. ::

        mu'     = beta1 * mu + (1 - beta1) * g
        nu'     = beta2 * nu + (1 - beta2) * g**2
        nu_max' = max(nu_max, nu')
        update  = mu' / (1 - beta1**t) / (sqrt(nu_max' / (1 - beta2**t) + eps_root) + eps)

    ``optax.scale_by_amsgrad`` takes the maximum over the bias-corrected moment, which weighs the first steps more.

    Reddi, Kale, Kumar, On the Convergence of Adam and Beyond, https://arxiv.org/abs/1904.09237
    """

    def init(params: Any) -> list[Any]:
        return [optax.tree.zeros_like(params, dtype=dtype) for dtype in (mu_dtype, None, None)]

    def equation(
        step: jax.Array, g: jax.Array, mu: jax.Array, nu: jax.Array, nu_max: jax.Array
    ) -> tuple[jax.Array, ...]:
        count = step_count(step)
        mu, nu = beta1 * mu + (1 - beta1) * g, beta2 * nu + (1 - beta2) * jnp.square(g)
        nu_max = jnp.maximum(nu, nu_max)
        root = jnp.sqrt(nu_max / bias_correction(beta2, count) + eps_root)
        return divide_or_zero(mu / bias_correction(beta1, count), root + eps), mu, nu, nu_max

    return _leafwise(AmsgradState, equation, init)


def scale_by_deviation(
    alpha: Number, eps: Number, initial_accumulator: Number = 0.0, *, eps_in_root: bool
) -> optax.GradientTransformation:
    """RMSprop's centered form: the gradient over its running standard deviation. ::

        mean'   = alpha * mean   + (1 - alpha) * g
        square' = alpha * square + (1 - alpha) * g**2
        update  = g / (sqrt(square' - mean'**2) + eps)        eps inside the root with ``eps_in_root``

    The variance is kept from falling below 0 by rounding, which gives NaN in ``optax.scale_by_stddev`` and in PyTorch
    once a gradient has been constant for long.

    Graves, Generating Sequences With Recurrent Neural Networks, https://arxiv.org/abs/1308.0850
    """

    def init(params: Any) -> list[Any]:
        return [optax.tree.zeros_like(params), optax.tree.full_like(params, initial_accumulator)]

    def equation(step: jax.Array | None, g: jax.Array, mean: jax.Array, square: jax.Array) -> tuple[jax.Array, ...]:
        mean, square = alpha * mean + (1 - alpha) * g, alpha * square + (1 - alpha) * jnp.square(g)
        variance = jnp.maximum(square - jnp.square(mean), 0)
        root = jnp.sqrt(variance + eps) if eps_in_root else jnp.sqrt(variance) + eps
        return divide_or_zero(g, root), mean, square

    return _leafwise(CenteredState, equation, init)


def _leafwise(
    state_type: Any, equation: Callable[..., tuple[jax.Array, ...]], init: Callable[[Any], Sequence[Any]]
) -> optax.GradientTransformation:
    """Return the transformation of ``equation(step, g, *slots) -> (update, *slots)`` over the leaves of trees.

    ``init`` makes the trees of slots, from the parameters. The step counts from 0; None where the state has none.
    """
    counts = state_type._fields[0] == "step"

    def first(params: Any) -> Any:
        return state_type(*([jnp.zeros((), jnp.int32)] if counts else []), *init(params))

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        del params
        step, trees = (state[0] if counts else None), (updates, *state[counts:])
        structure: Any = jax.tree.structure(updates)
        made = [
            [new.astype(old.dtype) for new, old in zip(equation(step, *leaves), leaves, strict=True)]
            for leaves in zip(*map(structure.flatten_up_to, trees), strict=True)
        ]
        found = [jax.tree.unflatten(structure, column) for column in zip(*made, strict=True)] or trees
        return found[0], state_type(*([optax.safe_increment(step)] if counts else []), *found[1:])

    return optax.GradientTransformation(first, update)
