"""Functions of an export that keep a user's history as a state: from the history, by new events, for candidates."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow.config import ConfigError, Problem, need
from sparrow.embedding import Sequence as Ordered
from sparrow.exports.contents import Parameters
from sparrow.exports.functions import Arguments, Arrays, Function
from sparrow.models import Known, flat_states, recorded, states_of_flat
from sparrow.runs import Program
from sparrow.serving.description import APPEND, HISTORY, LEFT, SCORE, STATE
from sparrow.tasks import TOWERS, predictions, vector_column

EVENTS: Final = 16
"""New events that `APPEND` takes at a time."""
CANDIDATES: Final = 64
"""Candidates that `SCORE` takes at a time, of a model that reads one per row."""


class StateFunction(NamedTuple):
    """A function, its arguments, and by feature the number of elements that differs from the feature's own."""

    function: Function
    arguments: Arguments
    lengths: dict[str, int]


def state_functions(program: Program, parameters: Parameters, arguments: Arguments) -> dict[str, StateFunction]:
    """Return the functions of the model's states, or raise `ConfigError` for a model that has none."""
    tree = parameters.tree(parameters.arrays)
    model: Any = nnx.merge(program.apply.evaluating, tree["params"], tree["rest"])
    architecture = need(program.config.model, "model").architecture
    why = getattr(model, "why_no_states", f"{type(model).__name__} keeps no states")
    if why is None and any(feature.element_pooling is not None for feature in program.assembly.features):
        why = "a sequence has several ids in an element"
    if why is not None:
        raise ConfigError([Problem(("model",), f"cannot be exported with states: {why}; leave --states out")])
    made = _Functions(program, parameters, arguments, architecture.candidate_group)
    functions = {HISTORY: made.history()}
    if model.why_no_append is None:
        functions[APPEND] = made.append()
    if architecture.candidate_group is not None:
        functions[SCORE] = made.score()
    return functions


class _Functions:
    def __init__(
        self, program: Program, parameters: Parameters, arguments: Arguments, candidate_group: str | None
    ) -> None:
        self._program, self._parameters, self._arguments = program, parameters, arguments
        groups = program.assembly.inputs.groups
        of_candidates = {candidate_group, f"{candidate_group}_timestamp"} if candidate_group is not None else set()
        inside, outside = (
            {name for group, names in groups.items() if (group in of_candidates) == is_in for name in names}
            for is_in in (True, False)
        )
        self._candidates = inside - outside
        dims = program.assembly.inputs
        self._dims = {**dims.acts, **dims.numbers, **dims.sequences}
        self._histories = {name for name in outside if name in dims.sequences}
        self._is_tower = TOWERS["user"] in jax.eval_shape(self._outputs, *arguments.shapes(2))

    def history(self) -> StateFunction:
        def history(arrays: Arrays, acts: Arrays, numbers: Arrays) -> Arrays:
            return self._states(arrays, self._given((acts, numbers), self._candidates), None)

        return StateFunction(history, self._arguments, {})

    def append(self) -> StateFunction:
        lengths = self._program.assembly.lengths
        most = {name: min(EVENTS, lengths[name]) for name in self._histories}
        arguments = self._with_state(most)
        dropped = self._dims.keys() - self._histories

        def append(arrays: Arrays, acts: Arrays, numbers: Arrays) -> Arrays:
            return self._states(arrays, self._given((acts, numbers), dropped), self._past(numbers))

        return StateFunction(append, arguments, self._by_feature(most))

    def score(self) -> StateFunction:
        single = {name: CANDIDATES for name in self._candidates if name not in self._program.assembly.lengths}
        arguments = self._with_state(single)
        dropped = self._dims.keys() - self._candidates

        def score(arrays: Arrays, acts: Arrays, numbers: Arrays) -> Arrays:
            with recorded(self._past(numbers)):
                outputs = self._forward(arrays, *self._given((acts, numbers), dropped, single))
            return predictions(self._program.config.tasks, outputs)

        return StateFunction(score, arguments, self._by_feature(single))

    @functools.cached_property
    def _shapes(self) -> list[tuple[int, int]]:
        """The places and the width of each pass of the model."""

        def known(arrays: Arrays, acts: Arrays, numbers: Arrays) -> list[Known]:
            with recorded() as recorder:
                self._forward(arrays, *self._given((acts, numbers), self._candidates))
            return recorder.known

        return [state.held.shape[1:] for state in jax.eval_shape(known, *self._arguments.shapes(2))]

    def _past(self, numbers: Arrays) -> list[Known]:
        return states_of_flat(numbers[STATE], self._shapes)

    def _states(self, arrays: Arrays, given: tuple[Any, Any], past: Sequence[Known] | None) -> Arrays:
        """Return the states after a call, the events that still fit, and for two towers the vectors of users."""
        with recorded(past) as recorder:
            outputs = self._forward(arrays, *given)
        known = recorder.known
        left = [state.held.shape[1] - state.lengths for state in known]
        made = {STATE: flat_states(known), LEFT: functools.reduce(jnp.minimum, left)}
        if self._is_tower:
            made[vector_column("user")] = outputs[TOWERS["user"]]
        return made

    def _forward(self, arrays: Arrays, acts: Any, numbers: Any) -> Mapping[str, jax.Array]:
        tree = self._parameters.tree(arrays)
        return self._program.forward(tree["params"], tree["rest"], acts, numbers)

    def _outputs(self, arrays: Arrays, acts: Arrays, numbers: Arrays) -> Any:
        return self._forward(arrays, *self._given((acts, numbers), set()))

    def _given(
        self, given: tuple[Arrays, Arrays], dropped: Any, several: Mapping[str, int] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the arguments as the model takes them: ``dropped`` are empty, ``several`` are sequences."""
        sequences, (first, *_) = self._program.assembly.inputs.sequences, given[0].values() or given[1].values()
        batch = first.shape[0]

        def made(name: str, array: jax.Array) -> Any:
            dim = self._dims[name]
            if name in dropped:
                if name not in sequences:
                    return jnp.zeros((batch, dim), array.dtype)
                return Ordered(jnp.zeros((batch, 1, dim), array.dtype), jnp.zeros(batch, jnp.int32))
            return Ordered.of_flat(array, dim) if name in sequences or name in (several or ()) else array

        acts, numbers = ({name: made(name, x) for name, x in part.items() if name != STATE} for part in given)
        return acts, numbers

    def _with_state(self, lengths: Mapping[str, int]) -> Arguments:
        """Return the arguments with a state, and features of ``lengths`` elements."""

        def widths(held: Mapping[str, int]) -> dict[str, int]:
            return {name: lengths[name] * self._dims[name] + 1 if name in lengths else held[name] for name in held}

        width = len(self._shapes) + sum(places * size for places, size in self._shapes)
        own = self._arguments
        return Arguments(own.parameters, widths(own.acts), {**widths(own.numbers), STATE: width})

    def _by_feature(self, lengths: Mapping[str, int]) -> dict[str, int]:
        ids_of = self._program.assembly.ids_of
        return {ids_of.get(name, name): length for name, length in lengths.items()}
