"""Adding a multiple of the parameters to the updates: weight decay, decoupled or as an L2 penalty."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from sparrow.dense.paths import check_patterns, is_patterns, matching

Mask = Any  # a pattern, several patterns, a tree of booleans, or a function from parameters to such a tree


class AddParametersState(NamedTuple):
    """State of `add_parameters`."""

    step: jax.Array  # shape=(), dtype=int32


def add_parameters(
    coefficient: Callable[[jax.Array], jax.typing.ArrayLike], mask: Mask = None
) -> optax.GradientTransformation:
    """Return ``updates + coefficient(step) * params``, on the parameters that ``mask`` selects.

    ``coefficient = -learning_rate(step) * weight_decay`` after an optimizer is decoupled weight decay; a constant
    before it is an L2 penalty of half that constant. Unlike ``optax.add_decayed_weights`` with a schedule, the
    updates keep their dtype.

    ``mask`` is a regular expression over parameter paths (or several; they must match whole paths, and each must match
    something), a tree of booleans, or a function from parameters to a tree of booleans. True is decayed.

    >>> decay = add_parameters(lambda step: -0.1, mask=r".*kernel")
    >>> params = {"kernel": jnp.array(2.0), "bias": jnp.array(2.0)}
    >>> updates, _ = decay.update({"kernel": jnp.array(0.0), "bias": jnp.array(0.0)}, decay.init(params), params)
    >>> float(updates["kernel"]), float(updates["bias"])
    (-0.2..., 0.0)
    """

    def init(params: Any) -> AddParametersState:
        del params
        return AddParametersState(jnp.zeros((), jnp.int32))

    def update(updates: Any, state: AddParametersState, params: Any = None) -> tuple[Any, AddParametersState]:
        if params is None:
            raise ValueError("weight decay needs the parameters: call tx.update(gradients, state, params)")
        scale = coefficient(state.step)
        updates = jax.tree.map(lambda u, p: (u + scale * p).astype(u.dtype), updates, params)
        return updates, AddParametersState(optax.safe_increment(state.step))

    tx = optax.GradientTransformation(init, update)
    if mask is None:
        return tx
    if not is_patterns(mask):
        return optax.masked(tx, mask)
    masked = optax.masked(tx, matching(mask))

    def checked_init(params: Any) -> Any:
        check_patterns([mask], params)
        return masked.init(params)

    return optax.GradientTransformationExtraArgs(checked_init, masked.update)
