"""The public face: an optax transformation that runs on stages."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import jax
import numpy as np
import optax

from sparrow.dense.stages.placement import place
from sparrow.dense.stages.plan import Plan, StagedState, StageLayout, Traced, held_by, merged, shapes_of, unflatten_some
from sparrow.dense.stages.programs import Programs, Wanted


class StagedOptimizer:
    """An optax transformation whose parameters, gradients and state live on several stages.

    The trees stay whole: ``params`` is the model's tree, its leaves lying on the devices of their stages, and so are
    gradients and updates. Each stage holds its own state, step counts included. Parts of the update that depend on no
    parameter are computed by every stage; scalars that one stage needs from another are sent to it, without a
    detour over the host. Where more than scalars would have to travel, `init` names the parameters that meet.

    >>> import jax.numpy as jnp
    >>> from sparrow import dense
    >>> tx, _ = dense.build("adamw", 0.1, clip_norm=1.0, weight_decay=0.01, weight_decay_mask=r".*kernel", accumulate=2)
    >>> staged = StagedOptimizer(tx, stage_of=lambda path: path.split("/")[0])
    >>> params = {"bottom": {"kernel": jnp.ones((3, 2))}, "top": {"kernel": jnp.ones(2), "bias": jnp.zeros(1)}}
    >>> state = staged.init(params)
    >>> sorted(state)
    ['bottom', 'top']
    >>> grads = jax.tree.map(jnp.ones_like, params)
    >>> for _ in range(2):
    ...     updates, state = staged.update(grads, state, params)
    >>> [round(float(update), 4) for update in updates["top"]["kernel"]]
    [-0.101, -0.101]
    >>> int(staged.merge(state).gradient_step)
    1

    Args:
      tx: the transformation, from ``dense.build``, ``dense.build_parts`` or optax.
      stage_of: from a parameter's path (``"bottom/kernel"``) to its stage, a name or a number. Without it, parameters
        on the same devices are one stage.
      donate: let `update` reuse the memory of the state it is given, which is then used up.
    """

    def __init__(
        self,
        tx: optax.GradientTransformation,
        stage_of: Callable[[str], Hashable] | None = None,
        *,
        donate: bool = False,
    ) -> None:
        self._tx = optax.with_extra_args_support(tx)
        self._stage_of = stage_of
        self._donate = donate
        self._plans: dict[Any, Plan] = {}

    def init(self, params: optax.Params, **extra_args: Any) -> StagedState:
        """Return the state of each stage, on its devices.

        ``extra_args`` are examples of those that `update` will be given, for a transformation that cannot do without.
        """
        layout = StageLayout(params, self._stage_of)
        shapes = shapes_of(params)
        state, structure = jax.tree.flatten(jax.eval_shape(self._tx.init, shapes))
        owners = Traced(self._tx, layout, shapes, jax.tree.unflatten(structure, state), shapes, extra_args).owners
        inputs, outputs = place(jax.make_jaxpr(self._tx.init)(shapes), layout.places)
        held = {stage: held_by(owners, stage) for stage in layout.stages}
        programs = Programs(
            {
                stage: Wanted([outputs[i] for i in here], [layout.sharding(stage, owners[i], state[i]) for i in here])
                for stage, here in held.items()
            },
            layout.scalars,
        )
        results = programs(layout.by_stage(inputs, jax.tree.leaves(params)))
        return {stage: unflatten_some(structure, held[stage], results[stage]) for stage in layout.stages}

    def update(
        self, grads: optax.Updates, state: StagedState, params: optax.Params | None = None, **extra_args: Any
    ) -> tuple[optax.Updates, StagedState]:
        """Return the updates, each on its parameter's devices, and each stage's new state.

        A stage whose gradients are all None waits: its updates are None, and its state, step counts included, is the
        one given. Stages can so be updated one after another, in any order.
        """
        for name, argument in extra_args.items():
            _require_numbers(name, argument)
        given = (grads, state, params, extra_args)
        key = (jax.tree.structure(given), *map(_signature, jax.tree.leaves(given)))
        if key not in self._plans:
            self._plans[key] = Plan(self._tx, self._stage_of, self._donate, *given)
        return self._plans[key](*given)

    def merge(self, state: StagedState) -> optax.OptState:
        """Return the state as the transformation itself has it; each leaf stays on the devices of its stage.

        How the parameters were spread is not in it, so it suits checkpoints. `split` is the inverse.
        """
        return merged(state)

    def split(self, state: optax.OptState, params: optax.Params, **extra_args: Any) -> StagedState:
        """Return each of the stages that ``params`` lie on its share of a whole state."""
        layout = StageLayout(params, self._stage_of)
        leaves, structure = jax.tree.flatten(state)
        owners = Traced(self._tx, layout, shapes_of(params), shapes_of(state), shapes_of(params), extra_args).owners
        shares = {}
        for stage in layout.stages:
            held = held_by(owners, stage)
            here = [jax.device_put(leaves[i], layout.sharding(stage, owners[i], leaves[i])) for i in held]
            shares[stage] = unflatten_some(structure, held, here)
        return shares


def _signature(leaf: Any) -> Any:
    if isinstance(leaf, jax.core.Tracer):
        raise TypeError("StagedOptimizer compiles one program per stage by itself: call it outside of jax.jit")
    aval = jax.typeof(leaf)
    return aval.shape, aval.dtype, getattr(leaf, "sharding", None)


def _require_numbers(name: str, argument: Any) -> None:
    for leaf in jax.tree.leaves(argument):
        if not isinstance(leaf, jax.Array | np.ndarray | np.generic | int | float | complex):
            raise TypeError(f"the extra argument '{name}' is a {type(leaf).__name__}; only numbers reach the stages")
