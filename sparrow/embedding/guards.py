"""Errors in place of gradients that would be silently zero. Each is raised while JAX traces, before anything runs."""

from __future__ import annotations

from typing import Any

import jax

Activations = dict[str, jax.Array]

_TABLES = (
    "gradients with respect to tables cannot be taken: take them at the activations. Write "
    "acts = emb.lookup(state, batch); act_grads = jax.grad(loss_fn)(acts); "
    "state = emb.update(state, batch, act_grads), or sp.Optimizer(emb, tx).step(state, loss_fn, batch). "
    "Where the lookup is a layer of a Flax model, see sp.nnx.value_and_grad and sp.linen.TrainState"
)


@jax.custom_jvp
def undifferentiable(table: jax.Array) -> jax.Array:
    """Return the table; raise a TypeError where its derivative is asked for.

    >>> jax.grad(lambda w, table: w * undifferentiable(table).sum())(2.0, jax.numpy.ones(3)).item()
    3.0
    >>> jax.grad(lambda table: undifferentiable(table).sum())(jax.numpy.ones(3))
    Traceback (most recent call last):
        ...
    TypeError: gradients with respect to tables cannot be taken: ...
    """
    return table


@undifferentiable.defjvp
def _refuse_tables(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    raise TypeError(_TABLES)


def untrained(acts: Activations, anchor: jax.Array, advice: str) -> Activations:
    """Return the activations; raise a TypeError with ``advice`` where the layer's ``anchor`` is differentiated.

    Whoever differentiates a model by its parameters expects the layer to train: without room for the gradient at the
    activations it would not.
    """

    @jax.custom_jvp
    def guarded(acts: Activations, anchor: jax.Array) -> Activations:
        return acts

    @guarded.defjvp
    def _refuse(primals: Any, tangents: Any) -> tuple[Activations, Activations]:
        raise TypeError(advice)

    return guarded(acts, anchor)
