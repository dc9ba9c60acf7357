"""Which parameter lies on which stage, and where a stage keeps what belongs to it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import optax
from jax.sharding import Sharding

from sparrow.dense.paths import path_names
from sparrow.dense.stages.placement import OnStage, PlacedValue, Stage
from sparrow.dense.stages.programs import replicated


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
