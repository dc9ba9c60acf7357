"""Errors instead of gradients that would be silently zero. Each is raised while JAX traces, before anything runs."""

from __future__ import annotations

from typing import Any

import jax
from jax.experimental.custom_partitioning import custom_partitioning

Activations = Any  # by feature, or in the structure of the features

_TABLES = (
    "gradients with respect to tables cannot be taken: take them at the activations. Write "
    "acts = emb.lookup(state, batch); act_grads = jax.grad(loss_fn)(acts); "
    "state = emb.update(state, batch, act_grads), or sp.Optimizer(emb, tx).step(state, loss_fn, batch). "
    "Where the lookup is a layer of a Flax model, see sp.nnx.value_and_grad and sp.linen.TrainState"
)


@jax.custom_jvp
def undifferentiable(table: jax.Array) -> jax.Array:
    """Return the table; raise a TypeError where its derivative is requested.

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


_SHARDED = (
    "a table was split over devices by hand, and the kernel of one device would gather all of it on each of them: "
    "spread tables with sp.Embedder(features, mesh=mesh, axis='data') and its init, or keep them on one device"
)


def whole(array: jax.Array) -> jax.Array:
    """Return a table; raise a ValueError where it is split over devices, inside of a compiled program too."""
    if isinstance(array, jax.core.Tracer):
        guarded: jax.Array = _whole(array)
        return guarded
    if isinstance(array, jax.Array) and not array.sharding.is_fully_replicated:
        raise ValueError(_SHARDED)
    return array


@custom_partitioning
def _whole(array: jax.Array) -> jax.Array:
    """Nothing, on one device; on several, a place for `_refuse_split` to see how the array is split."""
    return array


def _refuse_split(mesh: Any, arguments: Any, result: Any) -> Any:
    (sharding,) = (argument.sharding for argument in arguments)
    if not sharding.is_fully_replicated:
        raise ValueError(_SHARDED)
    return mesh, lambda array: array, sharding, (sharding,)


_whole.def_partition(  # type: ignore[no-untyped-call]
    partition=_refuse_split,
    infer_sharding_from_operands=lambda mesh, arguments, result: arguments[0].sharding,
    sharding_rule="rows columns -> rows columns",
)


def untrained(acts: Activations, anchor: jax.Array, advice: str) -> Activations:
    """Return the activations; raise a TypeError with ``advice`` where the layer's ``anchor`` is differentiated.

    Whoever differentiates a model by its parameters expects the layer to train: where nothing takes the gradient at the
    activations, it would not.
    """

    @jax.custom_jvp
    def guarded(acts: Activations, anchor: jax.Array) -> Activations:
        return acts

    @guarded.defjvp
    def _refuse(primals: Any, tangents: Any) -> tuple[Activations, Activations]:
        raise TypeError(advice)

    return guarded(acts, anchor)
