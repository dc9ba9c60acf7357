"""An optax transformation on stages: the update of all parameters, traced once and cut into programs of the stages."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import numpy as np
import optax
from jax.sharding import Sharding

from sparrow.dense.paths import path_names
from sparrow.dense.stages.placement import EVERYWHERE, Mixed, OnStage, PlacedValue, Placement, Stage, place
from sparrow.dense.stages.programs import Programs, Wanted, replicated


class StagedOptimizer:
    """An optax transformation whose parameters, gradients and state live on several stages.

    The trees stay complete: ``params`` is the model's tree, its leaves lying on the devices of their stages, and so are
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
      stage_of: returns the stage of a parameter's path (``"bottom/kernel"``), a name or a number. None: parameters on
        the same devices are one stage.
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
        """Return each of the stages that ``params`` lie on its share of a complete state."""
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


StagedState = dict[Stage, Any]
"""By stage: the optimizer's state, with None in place of what belongs to other stages."""

_MAX_CORRECTIONS = 10


class Traced:
    """The update of all parameters together: a place for every value, an owner for every leaf of the state."""

    def __init__(
        self,
        tx: optax.GradientTransformationExtraArgs,
        layout: StageLayout,
        grads: Any,
        state: Any,
        params: Any,
        extra_args: dict[str, Any],
    ) -> None:
        def update(grads: Any, state: Any, params: Any, extra_args: dict[str, Any]) -> Any:
            return tx.update(grads, state, params, **extra_args)

        closed = jax.make_jaxpr(update)(grads, state, params, shapes_of(extra_args))
        sizes = [len(jax.tree.leaves(tree)) for tree in (grads, state, params, extra_args)]
        # A leaf of the state belongs where its new value is computed. That depends in turn on where the old values
        # lie, so the owners are guessed and corrected until they hold.
        self.owners: list[OnStage | None] = [None] * sizes[1]
        for _ in range(_MAX_CORRECTIONS):
            places: list[Placement] = [*layout.places, *self.owners, *(layout.places if sizes[2] else ())]
            inputs, outputs = place(closed, [*places, *[EVERYWHERE] * sizes[3]])
            owners = [_owner(value.place) for value in outputs[sizes[0] :]]
            if owners == self.owners:
                break
            self.owners = owners
        else:
            raise ValueError("the state of this optimizer moves from stage to stage, which stages cannot follow")
        bounds = [sum(sizes[:i]) for i in range(5)]
        self.grads, self.state, self.params, self.extra = (
            inputs[start:stop] for start, stop in itertools.pairwise(bounds)
        )
        self.updates, self.new_state = outputs[: sizes[0]], outputs[sizes[0] :]


class Plan:
    """The compiled update for arguments of given shapes, dtypes and shardings."""

    def __init__(
        self,
        tx: optax.GradientTransformationExtraArgs,
        stage_of: Callable[[str], Hashable] | None,
        donate: bool,
        grads: Any,
        state: StagedState,
        params: Any,
        extra_args: dict[str, Any],
    ) -> None:
        grads, silent = filled(grads, params)
        structures: list[Any] = [jax.tree.structure(tree) for tree in (grads, params)]
        if params is not None and structures[0] != structures[1]:
            raise ValueError(
                f"the gradients are of {path_names(grads)}, the parameters are {path_names(params)}; "
                "the two trees must have the same structure"
            )
        self._layout = layout = StageLayout(grads if params is None else params, stage_of)
        self._waiting = _waiting(layout, silent)
        layout.require_here(grads)
        whole = merged(state)
        self._structure: Any = jax.tree.structure(whole)
        traced = Traced(tx, layout, shapes_of(grads), shapes_of(whole), shapes_of(params), extra_args)
        self._traced = traced
        self._held = {stage: held_by(traced.owners, stage) for stage in layout.stages}
        self._updated = {
            stage: [i for i, here in enumerate(layout.places) if here.stage == stage] for stage in layout.stages
        }
        shares = self._shares(state)
        gradients = jax.tree.leaves(grads)
        wanted = {
            stage: Wanted(
                [traced.updates[i] for i in self._updated[stage]] + [traced.new_state[i] for i in self._held[stage]],
                [gradients[i].sharding for i in self._updated[stage]]
                + [shares[stage][i].sharding for i in self._held[stage]],
            )
            for stage in layout.stages
            if stage not in self._waiting
        }
        self._programs = Programs(wanted, layout.scalars, set(traced.state) if donate else ())

    def __call__(
        self, grads: Any, state: StagedState, params: Any, extra_args: dict[str, Any]
    ) -> tuple[Any, StagedState]:
        traced, shares = self._traced, self._shares(state)
        given = self._layout.by_stage(traced.grads, jax.tree.leaves(filled(grads, params)[0]))
        own_params = self._layout.by_stage(traced.params, jax.tree.leaves(params)) if traced.params else {}
        for stage, values in given.items():
            values.update(own_params.get(stage, {}))
            values.update((traced.state[i], shares[stage][i]) for i in self._held[stage])
            for value, leaf in zip(traced.extra, jax.tree.leaves(extra_args), strict=True):
                values[value] = jax.device_put(leaf, self._layout.scalars[stage])
        results = self._programs(given)

        updates: list[Any] = [None] * len(traced.updates)
        new_state = {stage: state[stage] for stage in self._waiting}
        for stage, computed in results.items():
            updated = self._updated[stage]
            for i, update in zip(updated, computed, strict=False):
                updates[i] = update
            new_state[stage] = unflatten_some(self._structure, self._held[stage], computed[len(updated) :])
        structure: Any = jax.tree.structure(grads, is_leaf=_is_none)
        return jax.tree.unflatten(structure, updates), {stage: new_state[stage] for stage in self._held}

    def _shares(self, state: StagedState) -> dict[Stage, list[Any]]:
        """Return the leaves of the complete state as each stage has them: None where it has none."""
        shares = {stage: self._structure.flatten_up_to(share) for stage, share in state.items()}
        for stage, held in self._held.items():
            if stage not in shares or any(shares[stage][i] is None for i in held):
                raise ValueError(
                    f"the state does not fit the stages of the parameters, {self._layout.stages}: it is for "
                    f"{list(state)}; use split(merge(state), params)"
                )
        return shares


def filled(grads: Any, params: Any) -> tuple[Any, list[bool]]:
    """Return the gradients with the parameter in place of each None, and which leaves those are."""
    leaves, structure = jax.tree.flatten(grads, is_leaf=_is_none)
    silent = [leaf is None for leaf in leaves]
    if not any(silent):
        return grads, silent
    own = jax.tree.leaves(params)
    if len(own) != len(leaves):
        raise ValueError("gradients that are None need the parameters: call update(grads, state, params)")
    leaves = [param if leaf is None else leaf for leaf, param in zip(leaves, own, strict=True)]
    return jax.tree.unflatten(structure, leaves), silent


def _is_none(leaf: Any) -> bool:
    return leaf is None


def _waiting(layout: StageLayout, silent: Sequence[bool]) -> list[Stage]:
    found: dict[Stage, dict[bool, str]] = {}
    for here, without in zip(layout.places, silent, strict=True):
        found.setdefault(here.stage, {})[without] = here.parameter
    for stage, names in found.items():
        if len(names) == 2:
            raise ValueError(
                f"the gradient of '{names[True]}' is None, but '{names[False]}' of the same stage {stage!r} has one; "
                "only a stage without any gradient waits, so give zeros, or freeze the parameter (dense.build_parts)"
            )
    return [stage for stage, names in found.items() if True in names]


def _owner(where: Placement) -> OnStage | None:
    return where.last if isinstance(where, Mixed) else where


def held_by(owners: Sequence[OnStage | None], stage: Stage) -> list[int]:
    """Which leaves of the state a stage holds: its own, and those that every stage has."""
    return [i for i, owner in enumerate(owners) if owner is None or owner.stage == stage]


def merged(state: StagedState) -> Any:
    """Return the shares of all stages in one tree."""

    def first(*leaves: Any) -> Any:
        return next((leaf for leaf in leaves if leaf is not None), None)

    return jax.tree.map(first, *state.values(), is_leaf=_is_none)


def unflatten_some(structure: Any, indices: Sequence[int], leaves: Sequence[Any]) -> Any:
    """Return a tree with ``leaves`` at ``indices`` and None elsewhere."""
    found = dict(zip(indices, leaves, strict=True))
    return jax.tree.unflatten(structure, [found.get(i) for i in range(structure.num_leaves)])


def shapes_of(tree: Any) -> Any:
    """Shapes and dtypes, without devices."""

    def shape(leaf: Any) -> Any:
        aval = jax.typeof(leaf)
        return jax.ShapeDtypeStruct(aval.shape, aval.dtype)  # type: ignore[no-untyped-call]

    return jax.tree.map(shape, tree)


class StageLayout:
    """Which parameter lies where."""

    def __init__(self, params: optax.Params, stage_of: Callable[[str], Hashable] | None) -> None:
        names, leaves = path_names(params), jax.tree.leaves(params)
        for name, leaf in zip(names, leaves, strict=True):
            _require_on_devices(f"parameter '{name}'", leaf)
        stages = [
            _ids(leaf.sharding) if stage_of is None else stage_of(name)
            for name, leaf in zip(names, leaves, strict=True)
        ]
        self.places = [OnStage(stage, name) for stage, name in zip(stages, names, strict=True)]
        self.stages = list(dict.fromkeys(stages))
        self.scalars: dict[Stage, Sharding] = {}
        # Not the arrays themselves, which a layout would otherwise keep alive.
        self._shapes = {name: leaf.shape for name, leaf in zip(names, leaves, strict=True)}
        self._shardings: dict[str, Sharding] = {name: leaf.sharding for name, leaf in zip(names, leaves, strict=True)}
        for here, leaf in zip(self.places, leaves, strict=True):
            scalars = self.scalars.setdefault(here.stage, replicated(leaf.sharding, here.parameter))
            if scalars.device_set != leaf.sharding.device_set:
                other = next(place.parameter for place in self.places if place.stage == here.stage)
                raise ValueError(
                    f"'{other}' and '{here.parameter}' are both of stage {here.stage!r} but lie on different devices, "
                    f"{_ids(self._shardings[other])} and {_ids(leaf.sharding)}; put them on the same"
                )

    def require_here(self, grads: Any) -> None:
        """Raise unless each gradient lies on the devices of its parameter."""
        for here, leaf in zip(self.places, jax.tree.leaves(grads), strict=True):
            _require_on_devices(f"gradient of '{here.parameter}'", leaf)
            if leaf.sharding.device_set != self.scalars[here.stage].device_set:
                raise ValueError(
                    f"the gradient of '{here.parameter}' lies on devices {_ids(leaf.sharding)}, its parameter on "
                    f"{_ids(self._shardings[here.parameter])}; move it to its stage (jax.device_put)"
                )

    def sharding(self, stage: Stage, owner: OnStage | None, leaf: Any) -> Sharding:
        """Where a stage keeps a leaf of the state: as its parameter lies, if it has the parameter's shape."""
        if owner is not None and leaf.shape == self._shapes[owner.parameter]:
            return self._shardings[owner.parameter]
        return self.scalars[stage]

    def by_stage(
        self, values: Sequence[PlacedValue], leaves: Sequence[jax.Array]
    ) -> dict[Stage, dict[PlacedValue, jax.Array]]:
        """Return the leaves of a tree shaped like the parameters, by the stage that each lies on."""
        found: dict[Stage, dict[PlacedValue, jax.Array]] = {stage: {} for stage in self.stages}
        for here, value, leaf in zip(self.places, values, leaves, strict=True):
            found[here.stage][value] = leaf
        return found


def _ids(sharding: Any) -> tuple[int, ...]:
    return tuple(sorted(device.id for device in sharding.device_set))


def _require_on_devices(what: str, leaf: Any) -> None:
    if isinstance(leaf, jax.core.Tracer):
        raise TypeError("StagedOptimizer compiles one program per stage by itself: call it outside of jax.jit")
    if not isinstance(leaf, jax.Array):
        raise TypeError(f"the {what} is a {type(leaf).__name__}; put it on its stage's devices (jax.device_put)")
    if not leaf.is_fully_addressable:
        raise ValueError(f"the {what} lies on devices of another process; stages span one process only")
