"""A placed computation as compiled programs: one per stage and round, with scalars sent between rounds."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

from sparrow.dense.stages.placement import OnStage, PlacedValue, Stage, compute, foreign, inputs_of


@dataclasses.dataclass(frozen=True)
class Wanted:
    """The values that a stage computes, and the places of the results."""

    values: Sequence[PlacedValue]
    shardings: Sequence[Sharding]


class Programs:
    """Computes what every stage wants.

    A scalar that another stage needs is computed by its own stage in one round and received in the next. Each round
    starts again from the inputs: XLA leaves out what the round does not need, and what is computed twice is cheap
    (the square of a gradient) beside what keeping it would cost (a copy of all gradients).

    Attributes:
        receivers: the scalars that are sent from stage to stage, and the stages that receive each.
    """

    def __init__(
        self, wanted: Mapping[Stage, Wanted], scalars: Mapping[Stage, Sharding], donated: Collection[PlacedValue] = ()
    ) -> None:
        """``scalars`` holds the sharding of the scalars that each stage receives; ``donated`` inputs are used up."""
        self._scalars = scalars
        self.receivers: dict[PlacedValue, list[Stage]] = {}
        levels: dict[PlacedValue, int] = {}

        def level(value: PlacedValue, sender: Stage) -> int:
            """In which round a value that travels is computed."""
            if sender not in wanted:
                raise ValueError(
                    f"stage {sender!r} has no gradients (None), but the other stages need a number from it, such as "
                    "its part of a global norm; give all gradients together, or hand in global_norm="
                )
            if value not in levels:
                levels[value] = max((1 + require(needed, sender) for needed in foreign([value], sender)), default=0)
            return levels[value]

        def require(value: PlacedValue, receiver: Stage) -> int:
            receivers = self.receivers.setdefault(value, [])
            if receiver not in receivers:
                receivers.append(receiver)
            return level(value, _stage(value))

        for stage, results in wanted.items():
            for value in foreign(results.values, stage):
                require(value, stage)

        self._rounds = [
            [
                _Program(stage, Wanted(values, [scalars[stage]] * len(values)))
                for stage in wanted
                if (values := [value for value in levels if levels[value] == number and _stage(value) == stage])
            ]
            for number in range(max(levels.values(), default=-1) + 1)
        ]
        self._last = [_Program(stage, results, donated) for stage, results in wanted.items()]

    def __call__(self, given: Mapping[Stage, Mapping[PlacedValue, jax.Array]]) -> dict[Stage, list[jax.Array]]:
        """From each stage's inputs to what each stage wants."""
        known = {stage: dict(values) for stage, values in given.items()}
        for programs in self._rounds:
            computed = [(program, program(known[program.stage])) for program in programs]
            for program, results in computed:
                for value, result in zip(program.wanted.values, results, strict=True):
                    for receiver in self.receivers[value]:
                        known[receiver][value] = jax.device_put(result, self._scalars[receiver])
        return {program.stage: program(known[program.stage]) for program in self._last}


class _Program:
    """One stage's part of one round, compiled for the stage's devices."""

    def __init__(self, stage: Stage, wanted: Wanted, donated: Collection[PlacedValue] = ()) -> None:
        self.stage = stage
        self.wanted = wanted
        reads = [*inputs_of(wanted.values, stage), *foreign(wanted.values, stage)]
        self._donated = [value for value in reads if value in donated]
        self._kept = [value for value in reads if value not in donated]

        def run(donated: Iterable[Any], kept: Iterable[Any]) -> list[Any]:
            given = dict(zip([*self._donated, *self._kept], [*donated, *kept], strict=True))
            return compute(wanted.values, stage, given)

        self._run = jax.jit(run, out_shardings=list(wanted.shardings), donate_argnums=0)

    def __call__(self, known: Mapping[PlacedValue, jax.Array]) -> list[jax.Array]:
        results: list[jax.Array] = self._run(
            [known[value] for value in self._donated], [known[value] for value in self._kept]
        )
        return results


def replicated(sharding: Sharding, parameter: str) -> Sharding:
    """Return the same devices as ``sharding``, for something too small to be cut."""
    if isinstance(sharding, NamedSharding):
        return NamedSharding(sharding.mesh, PartitionSpec())  # type: ignore[no-untyped-call]
    if len(sharding.device_set) == 1:
        return SingleDeviceSharding(next(iter(sharding.device_set)))
    raise ValueError(
        f"parameter '{parameter}' lies on several devices with a {type(sharding).__name__}; use a NamedSharding"
    )


def _stage(value: PlacedValue) -> Stage:
    if not isinstance(value.place, OnStage):
        raise TypeError("only a value that lies on a stage can be sent from it")
    return value.place.stage
