"""One training step as one compiled program: gradients of all micro-batches, the update, the metrics.

`Steps` makes such steps; `Ahead` also looks the rows of the next one up.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sparrow.embedding import EmbeddingState, PackedBatch, RowGrads
from sparrow.feed import Feed, Prepared, alike, placed
from sparrow.runs.loop.staging import Taken
from sparrow.runs.step.calls import scanned
from sparrow.runs.step.compiling import Compiled
from sparrow.runs.step.on_mesh import kept_everywhere, on_host, summed_in_order
from sparrow.runs.step.packed import PackedState, opened, packs
from sparrow.runs.step.program import Program, TrainState
from sparrow.tasks import count_examples
from sparrow.trees import named_leaves


class Report(NamedTuple):
    """Facts about a step: scalars on the device, fetched only when they are shown.

    Attributes:
      loss: the total loss.
      terms: the loss of each task.
      gradient_norm: the norm over tables and dense parameters together, or None.
      gradient_norms: the norm of each dense parameter by its path; empty unless requested.
      gradients: the gradient of each dense parameter by its path; empty unless requested.
      go: whether the run may continue: false after the first step that was not finite, where that stops a run. Later
        steps change nothing, so that the state of the last good step stays until the host checks.
    """

    loss: jax.Array
    terms: dict[str, jax.Array]
    gradient_norm: jax.Array | None
    gradient_norms: dict[str, jax.Array]
    gradients: dict[str, jax.Array]
    go: jax.Array


class History(NamedTuple):
    """The total losses of the steps of a call, and whether the run may continue after each; `Report` is of the last."""

    loss: jax.Array  # (steps,); of one step, ()
    go: jax.Array


Context = Callable[[], contextlib.AbstractContextManager[None]]
Held = TrainState | PackedState
Made = tuple[Held, Report, History]
"""The result of a call: the state and the report after its last step, and the losses of all."""


class Found(NamedTuple):
    """Activations of a micro-batch, found in the step before its own.

    Attributes:
      acts: activations by feature; without those of dynamic tables, where they have to be exact.
      batch: the batch with its ids at the owners of their rows, on a mesh; None: the batch of the feed.
    """

    acts: dict[str, jax.Array]
    batch: PackedBatch | None


class Steps:
    """The compiled steps of a run: one in a call, or `Program.steps_per_call` of them; each call donates the state."""

    kept: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, program: Program) -> None:
        self._program, self._one = program, _single(program)
        self._packs = packs(program.embedder)

    def log_programs(self, log: Callable[[str], None], compiling: Context) -> None:
        """Give a line to ``log`` for each program after the first, compiled in the context of ``compiling``."""
        self._one.log, self._one.compiling = log, compiling

    def groups(self, read: Callable[[int | None], Iterator[Taken]], left: int | None) -> Iterator[Taken]:
        """Return the batches of ``left`` steps, which ``read`` yields."""
        return read(left)

    def make(self, state: Held, call: Sequence[Taken], go: Any) -> Made:
        """Make the steps of a call. The feeds of several steps have one layout."""
        if self._packs and isinstance(state, TrainState):
            state = PackedState.of(state)
        feeds = [_feeds_of(taken.batches) for taken in call]
        if len(feeds) == 1:
            state, report = self.one(state, feeds[0], go)
            return state, report, History(report.loss, report.go)
        go = jnp.array(True) if go is None else go
        given = tuple(feed for own in feeds for feed in alike(self._program.embedder, own))
        made: Made = self._several(state, given, go)
        return made

    def one(self, state: Held, feeds: tuple[Feed, ...], go: Any = None) -> tuple[Held, Report]:
        """Make one step of these micro-batches; ``go`` comes from the report before it.

        They may differ in examples, and each is weighted by them, as in one batch.
        """
        go = self._program.embedder.on_its_devices(jnp.array(True)) if go is None else go
        made: tuple[Held, Report] = self._one(state, alike(self._program.embedder, feeds), go)
        return made

    def forget(self) -> None:
        """Begin again after a step that was not finite."""

    @functools.cached_property
    def _several(self) -> Compiled:
        step, count = _on_held(one_step(self._program)), self._program.steps_per_call

        def steps(state: Held, feeds: tuple[Feed, ...], go: jax.Array) -> tuple[Held, Report, History]:
            each = len(feeds) // count  # micro-batches of a step
            own = [feeds[first : first + each] for first in range(0, len(feeds), each)]

            def body(carried: tuple[Held, jax.Array], feeds: tuple[Feed, ...]) -> Any:
                state, report = step(carried[0], feeds, carried[1])
                return (state, report.go), report

            (state, _), reports = scanned(body, (state, go), own)
            last: Report = jax.tree.map(lambda array: array[-1], reports)
            return state, last, History(reports.loss, reports.go)

        compiled = Compiled("training", steps, batch=1, donate=(0,))
        compiled.log, compiled.compiling = self._one.log, self._one.compiling
        return compiled


def lowered_step(program: Program, state: TrainState, feeds: tuple[Feed, ...]) -> Any:
    """Return the program that a run on such batches compiles for its step; ``state`` may be of shapes."""
    go = jax.ShapeDtypeStruct((), jnp.bool_)  # type: ignore[no-untyped-call]
    if not looks_ahead(program):
        return _single(program).lower(state, feeds, go)
    found = jax.eval_shape(functools.partial(look_up, program), state, feeds)
    return looking_ahead(program).lower(state, feeds + feeds, go, found)


def looks_ahead(program: Program) -> bool:
    """Return whether a step finds activations of the next one. On one device no exact ones: no row has to travel."""
    pipeline = program.config.train.pipeline
    return pipeline == "stale" or (pipeline == "patch" and program.embedder.shards is not None)


def look_up(program: Program, state: TrainState, feeds: tuple[Feed, ...]) -> tuple[Found, ...]:
    """Return the activations of a step before it: of the first one."""
    embedding = state.optimizer.embedding
    return _ahead(program, embedding, [_fetched(program, embedding, feed) for feed in feeds], None)


def _fetched(program: Program, embedding: EmbeddingState, feed: Feed) -> Any:
    """Return all of a batch that can be found before an update."""
    embedder = program.embedder
    if program.config.train.pipeline == "patch":
        return embedder.fetch(embedding, feed.packed)
    batch = embedder.exchange(feed.packed)
    acts = embedder.by_name(embedder.lookup(embedding, batch, program.optimizer.precision))
    return Found(dict(acts), None if embedder.shards is None else batch)


def _by_stack(program: Program, fetched: Any) -> dict[str, jax.Array]:
    """Return an array of `_fetched` for each stack."""
    if not isinstance(fetched, Found):
        return dict(fetched.vectors)
    stacks = {table.name: stack.name for stack in program.embedder.stacks for table in stack.tables}
    return {stacks[spec.table_spec.name]: fetched.acts[spec.name] for spec in program.embedder.features}


def _ahead(
    program: Program, embedding: EmbeddingState, fetched: Sequence[Any], grads: RowGrads | None
) -> tuple[Found, ...]:
    """Return the activations of a step from `_fetched`, after an update by ``grads``."""
    if program.config.train.pipeline == "stale":
        return tuple(fetched)
    patch, precision = program.embedder.patch, program.optimizer.precision
    return tuple(Found(patch(embedding, own, grads, precision), own.batch) for own in fetched)


def _single(program: Program) -> Compiled:
    """Return the step, to be compiled."""
    return Compiled("training", _on_held(one_step(program)), batch=1, donate=(0,))


def _on_held(step: Callable[..., Any]) -> Callable[[Held, tuple[Feed, ...], jax.Array], tuple[Held, Report]]:
    """Return a step that takes a state as it is, or packed, and returns the next one alike."""

    def on_held(held: Held, feeds: tuple[Feed, ...], go: jax.Array) -> tuple[Held, Report]:
        state, report, _ = step(opened(held), feeds, go)
        return PackedState.of(state) if isinstance(held, PackedState) else state, report

    return on_held


def looking_ahead(program: Program) -> Compiled:
    """Return the step where `looks_ahead`, to be compiled: ``step(state, feeds + following, go, found)``.

    ``found`` are the activations of each of ``feeds``. The step looks up ``following``, the micro-batches of the next
    step, before it updates the tables, and also returns their activations: as they were then (``train.pipeline:
    stale``), or as they are after the update (``patch``). It is as `Steps.one` otherwise.
    """
    step = one_step(program)

    def split(state: TrainState, feeds: tuple[Feed, ...], go: jax.Array, found: tuple[Found, ...]) -> Any:
        return step(state, feeds[: len(found)], go, found, feeds[len(found) :])

    return Compiled("training", split, batch=1, donate=(0,))


def one_step(program: Program) -> Callable[..., tuple[TrainState, Report, tuple[Found, ...]]]:
    """Return the step as a function to compile; see `looking_ahead` for ``found`` and ``following``."""
    optimizer, summaries = program.optimizer, program.config.train.summaries
    stops = program.config.train.non_finite == "stop"

    def step(
        state: TrainState,
        feeds: tuple[Feed, ...],
        go: jax.Array,
        found: tuple[Found, ...] = (),
        following: tuple[Feed, ...] = (),
    ) -> tuple[TrainState, Report, tuple[Found, ...]]:
        found = found or (Found({}, None),) * len(feeds)
        given = [feed.packed if own.batch is None else own.batch for feed, own in zip(feeds, found, strict=True)]
        assigned, packed = optimizer.assign(state.optimizer, given, go)
        go &= program.embedder.has_rows(assigned.embedding)
        state = dataclasses.replace(state, optimizer=assigned)
        sizes = [count_examples(feed.columns, feed.size) for feed in feeds]
        total = sum(sizes)
        rest, metrics = state.rest, state.metrics
        grads: list[Any] = []
        terms: list[Any] = []
        for feed, own, size, before in zip(feeds, packed, sizes, found, strict=True):
            share = 1.0 if len(feeds) == 1 else size / total
            of_feed, (of_tasks, outputs, rest) = optimizer.gradients(
                state.optimizer, program.loss, own, rest, feed, has_aux=True, weight=share, acts=before.acts
            )
            grads.append(of_feed)
            terms.append({task: share * term for task, term in of_tasks.items()})
            update = summed_in_order(program.embedder, program.train_scores.update, feed.size)
            metrics = update(metrics, outputs, feed.columns)
        gradients = functools.reduce(operator.add, grads)
        touched = gradients.rows
        fetched = [_fetched(program, assigned.embedding, feed) for feed in following]
        for own in fetched:  # before the update, which then works in place
            rows = gradients.rows.after(_by_stack(program, own))
            gradients = dataclasses.replace(gradients, rows=rows)
        if stops:
            # A loss scale makes gradients overflow now and then, by design; the loss itself never does.
            scaled = optimizer.loss_scale is not None
            go &= jnp.isfinite(gradients.loss) if scaled else optimizer.all_finite(gradients)
        new, info = optimizer.apply(
            state.optimizer, gradients, grad_norm="global_gradient_norm" in summaries, when=go, batches=packed
        )
        ahead = _ahead(program, new.embedding, fetched, touched)
        rest, metrics = jax.tree.map(
            lambda old, new: jnp.where(info.applied, new, old), (state.rest, state.metrics), (rest, metrics)
        )
        dense = named_leaves(gradients.dense)
        norms = {path: jnp.linalg.norm(x) for path, x in dense.items()} if "gradient_norm" in summaries else {}
        kept = dense if "gradient" in summaries else {}
        of_tasks = {task: functools.reduce(operator.add, (part[task] for part in terms)) for task in terms[0]}
        report = Report(info.loss, of_tasks, info.grad_norm, norms, kept, go)
        made = TrainState(new, rest, metrics)
        made = TrainState.joined(new.embedding, kept_everywhere(program.embedder, made.parts()))
        return made, kept_everywhere(program.embedder, report), ahead

    return step


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


def _feeds_of(batches: Iterable[Prepared]) -> tuple[Feed, ...]:
    return tuple(prepared.feed for prepared in batches)


class Ahead:
    """Steps that look the rows of the next one up before their own update; an extra of checkpoints.

    The lookup of a batch, and the exchange of its rows, need not wait for the update then: the device may do both at
    once. With ``train.pipeline: stale``, a step sees all updates of tables but the last one; dense parameters are never
    late. With ``patch``, rows that the update changes travel again after it: a step sees all updates.
    """

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
        """Return the batches of ``left`` steps, each with those of the next one."""
        return itertools.islice(with_following(read(None if left is None else left + 1)), left)

    def make(self, state: Held, call: Sequence[Taken], go: Any) -> Made:
        (taken,) = call
        state = opened(state)
        feeds, found = self._of(state, taken)
        following = self._feeds(taken.following)
        go = self._program.embedder.on_its_devices(jnp.array(True)) if go is None else go
        state, report, ahead = self._step(state, feeds + following, go, found)
        self._next = (following, ahead) if following else None
        return state, report, History(report.loss, report.go)

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
        return alike(self._program.embedder, _feeds_of(batches))

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
