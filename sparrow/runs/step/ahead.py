"""`Ahead`: the activations of the next step, looked up before the update of this one.

The lookup of a batch, and the exchange of its rows, need not wait for the update then: the device may do both at once.
With ``train.pipeline: stale``, a step sees all updates of tables but the last one; dense parameters are never late.
With ``patch``, rows that the update changes travel again after it: a step sees all updates.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from sparrow.feed import Feed, Prepared, alike, placed
from sparrow.runs.loop.staging import Taken
from sparrow.runs.step.on_mesh import on_host
from sparrow.runs.step.program import Program, TrainState
from sparrow.runs.step.step import Context, Found, Made, look_up, looking_ahead

ACTIVATIONS: Final = "ahead"
"""The name of the activations among the extras of a checkpoint."""


def with_following(steps: Iterable[Taken]) -> Iterator[Taken]:
    """Yield each step with the batches of the one after it; the last one has none."""
    before: Taken | None = None
    for taken in steps:
        if before is not None:
            yield before._replace(following=taken.batches)
        before = taken
    if before is not None:
        yield before


class Ahead:
    """The activations of the next step, one tree for each micro-batch; an extra of checkpoints."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._next: tuple[tuple[Feed, ...], tuple[Found, ...]] | None = None
        self._is_stale = program.config.train.pipeline == "stale"
        self._restored: Mapping[str, np.ndarray[Any, Any]] = {}
        self._step = looking_ahead(program)
        self.kept = {ACTIVATIONS: self} if self._is_stale else {}
        self._lookup = jax.jit(functools.partial(look_up, program))

    def log_programs(self, log: Callable[[str], None], compiling: Context) -> None:
        self._step.log, self._step.compiling = log, compiling
        if self._is_stale:
            log("train.pipeline is stale: a step looks rows up before the update of the step before it")

    def groups(self, read: Callable[[int | None], Iterator[Taken]], left: int | None) -> Iterator[Taken]:
        return itertools.islice(with_following(read(None if left is None else left + 1)), left)

    def make(self, state: TrainState, call: Sequence[Taken], go: Any) -> Made:
        (taken,) = call
        feeds, found = self._of(state, taken)
        following = self._feeds(taken.following)
        go = self._program.embedder.on_its_devices(jnp.array(True)) if go is None else go
        state, report, ahead = self._step(state, feeds + following, go, found)
        self._next = (following, ahead) if following else None
        return state, report, None

    def forget(self) -> None:
        self._next = None

    def state(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return the activations of the next step, so that a resumed run has the bits of one that never stopped."""
        if self._next is None:
            return {}
        host = {name: on_host(self._program.embedder, act) for name, act in _named(self._next[1]).items()}
        return {name: array.astype(np.float32) for name, array in host.items()}

    def restore(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Continue from the arrays of `state`; with another batch size or number of devices, look up again."""
        self._restored = dict(arrays)

    def _feeds(self, batches: tuple[Prepared, ...]) -> tuple[Feed, ...]:
        return alike(self._program.embedder, [prepared.feed for prepared in batches])

    def _of(self, state: TrainState, taken: Taken) -> tuple[tuple[Feed, ...], tuple[Found, ...]]:
        """Return the batches of a step and their activations: of the step before it, restored, or looked up now."""
        if self._next is not None:
            return self._next
        feeds = self._feeds(taken.batches)
        fresh = self._lookup(state, feeds)
        restored, self._restored = self._restored, {}
        wanted = {name: act.shape for name, act in _named(fresh).items()}
        if {name: array.shape for name, array in restored.items()} != wanted:
            return feeds, fresh
        return feeds, tuple(
            own._replace(acts={name: self._put(restored[f"{i}/{name}"], act) for name, act in own.acts.items()})
            for i, own in enumerate(fresh)
        )

    def _put(self, array: np.ndarray[Any, Any], like: jax.Array) -> Any:
        embedder, array = self._program.embedder, array.astype(like.dtype)
        return jax.device_put(array, like.sharding) if embedder.shards is None else placed(embedder, array)


def _named(found: Sequence[Found]) -> dict[str, jax.Array]:
    return {f"{i}/{name}": act for i, own in enumerate(found) for name, act in own.acts.items()}
