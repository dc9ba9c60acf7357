"""Any rule as an optax transformation, for parameters that are not tables."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from sparrow.rules.base import PER_ROW, Rule, Slot, Slots


class RuleState(NamedTuple):
    """State of `as_optax`."""

    step: jax.Array  # shape=(), dtype=int32
    slots: dict[str, Any]  # by slot name, a tree like the parameters


def as_optax(rule: Rule) -> optax.GradientTransformation:
    """Turn a rule into an optax transformation: the last axis of a parameter is the row, and every row is touched.

    A vector or a scalar is one row. ``max_gradient`` clamps the gradient element-wise.

    >>> from sparrow.rules import RowwiseAdagrad
    >>> tx = as_optax(RowwiseAdagrad(learning_rate=0.5))
    >>> params = jnp.ones((2, 4))
    >>> updates, state = tx.update(jnp.ones((2, 4)), tx.init(params), params)
    >>> float(updates[0, 0])
    -0.5
    """

    def init(params: Any) -> RuleState:
        def full(name: str, slot: Slot) -> Any:
            axes = -1 if slot.layout == PER_ROW else None
            return jax.tree.map(lambda p: jnp.full(jnp.shape(p)[:axes], rule.slot_init(name), jnp.float32), params)

        return RuleState(jnp.zeros((), jnp.int32), {name: full(name, slot) for name, slot in rule.slots.items()})

    def update(updates: Any, state: RuleState, params: Any = None) -> tuple[Any, RuleState]:
        if params is None:
            raise ValueError(f"as_optax({rule.name}) needs the parameters: call tx.update(grads, state, params)")
        h = SimpleNamespace(**{name: jnp.asarray(value, jnp.float32) for name, value in rule.hyper(state.step).items()})
        view = rule.without_numbers()

        def one(grad: jax.Array, param: jax.Array, slots: dict[str, jax.Array]) -> tuple[jax.Array, Any]:
            rows = jnp.atleast_1d(param).astype(jnp.float32)
            grads = jnp.atleast_1d(grad).astype(jnp.float32)
            if rule.max_gradient is not None:
                grads = jnp.clip(grads, -rule.max_gradient, rule.max_gradient)
            slots = {
                name: value if rule.slots[name].layout == PER_ROW else jnp.atleast_1d(value)
                for name, value in slots.items()
            }
            apply: Callable[..., tuple[jax.Array, Slots]] = lambda row, g, s: view.update(row, g, s, h)  # noqa: E731
            for _ in rows.shape[:-1]:
                apply = jax.vmap(apply)
            new_rows, new_slots = apply(rows, grads, slots)
            new_slots = {
                name: value if rule.slots[name].layout == PER_ROW else value.reshape(param.shape)
                for name, value in new_slots.items()
            }
            return (new_rows - rows).reshape(param.shape).astype(grad.dtype), new_slots

        structure: Any
        grad_leaves, structure = jax.tree.flatten(updates)
        slot_leaves = {name: structure.flatten_up_to(tree) for name, tree in state.slots.items()}
        results = [
            one(grad, param, {name: leaves[i] for name, leaves in slot_leaves.items()})
            for i, (grad, param) in enumerate(zip(grad_leaves, structure.flatten_up_to(params), strict=True))
        ]
        new_slots = {name: structure.unflatten([slots[name] for _, slots in results]) for name in state.slots}
        new_state = RuleState(optax.safe_increment(state.step), new_slots)
        return structure.unflatten([delta for delta, _ in results]), new_state

    return optax.GradientTransformation(init, update)
