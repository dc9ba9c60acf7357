"""The source of a loss or gradient that is not finite."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sparrow.feed import Feed
from sparrow.optimizer import cast
from sparrow.runs.errors import RunError
from sparrow.runs.step.in_flight import Started
from sparrow.runs.step.on_mesh import on_host
from sparrow.runs.step.program import Program, TrainState
from sparrow.tasks import count_examples
from sparrow.trees import named_leaves

SHOWN = 3
"""The number of names that a sentence lists."""


class NonFinite(RunError):
    """A run that was stopped by a loss or gradient that is not finite. The state is the one of the previous step."""


def culprit(program: Program, state: TrainState, bad: Started) -> str:
    """Return a line for the step and the batch, and one for each of their values that is not finite."""
    loss, position = bad.loss, bad.position
    what = f"the loss is {loss}" if not np.isfinite(loss) else "a gradient is not finite"
    batches = f"batch {position['batches'] + 1}"
    if len(bad.feeds) > 1:
        batches = f"batches {position['batches'] + 1} to {position['batches'] + len(bad.feeds)}"
    where = f"epoch {position['epoch']}, from row {position['row']} of chunk {position['chunk']}"
    if position.get("shares"):
        where = f"epoch {position['epoch']}, batch {position['row'] + 1} of it"
    lines = [f"step {bad.step}: {what}; it was computed from {batches} of the data ({where})"]
    for feed in bad.feeds:
        lines += _sources(program, state, feed)
    return "\n".join(dict.fromkeys(lines))


def without_shortage(program: Program, state: TrainState) -> tuple[TrainState, str | None]:
    """Return a state that can go on, and a sentence where a step needed more rows for its ids than there are."""
    embedding = state.optimizer.embedding
    problem = program.embedder.shortage(embedding)
    if problem is None:
        return state, None
    optimizer = dataclasses.replace(state.optimizer, embedding=program.embedder.without_shortage(embedding))
    return dataclasses.replace(state, optimizer=optimizer), problem


def _sources(program: Program, state: TrainState, feed: Feed) -> list[str]:
    """Return the first of inputs, tables, parameters, outputs and gradients that is not finite."""
    found = [*_inputs(program, feed), *_tables(program, state, feed)]
    found = found or [f"parameter {name} is not finite" for name in _named(state.optimizer.params)]
    if found:
        return found
    outputs = program.outputs(state.optimizer, state.rest, feed)
    if names := _named(dict(outputs)):
        return [f"inputs, tables and parameters are finite, but the model's output {', '.join(names)} is not"]
    return [_gradients(program, state, feed)]


def _inputs(program: Program, feed: Feed) -> Iterator[str]:
    for kind, arrays in (("dense feature", feed.numbers), ("column", feed.columns)):
        for name, array in arrays.items():
            rows = _rows(on_host(program.embedder, array))
            if len(rows):
                yield f"{kind} '{name}' is not finite in {_some(rows, _examples(program, feed))}"


def _tables(program: Program, state: TrainState, feed: Feed) -> Iterator[str]:
    embedder, embedding = program.embedder, state.optimizer.embedding
    tables = {feature.name: feature.table_spec.name for feature in embedder.features}
    examples = _examples(program, feed)
    for name, activation in embedder.lookup(embedding, feed.packed).items():
        rows = _rows(on_host(embedder, activation))
        if not len(rows):
            continue
        if embedder.shards is not None and embedder.shards.processes > 1:  # no process can hold the table
            yield f"feature '{name}' is not finite in {_some(rows, examples)}: its table, or the weights of its ids"
            continue
        broken = np.flatnonzero(~np.asarray(_finite_rows(embedder.table(embedding, tables[name]))))
        if len(broken):
            cause = f"table '{tables[name]}' is not finite in {_some(broken, None)}"
        else:
            cause = f"table '{tables[name]}' is finite, so the weights of its ids, or their sum, are not"
        yield f"feature '{name}' is not finite in {_some(rows, examples)}: {cause}"


def _examples(program: Program, feed: Feed) -> int:
    return int(count_examples({name: on_host(program.embedder, x) for name, x in feed.columns.items()}, feed.size))


def _gradients(program: Program, state: TrainState, feed: Feed) -> str:
    precision = program.optimizer.precision
    acts = program.embedder.lookup(state.optimizer.embedding, feed.packed)

    def loss(params: Any, acts: Any) -> Any:
        return program.loss(cast(params, precision), cast(acts, precision), state.rest, feed)[0]

    value, (params, features) = jax.value_and_grad(loss, argnums=(0, 1))(state.optimizer.params, acts)
    if not np.isfinite(value):
        return "everything up to the model's output is finite, but the loss in training is not"
    names = [*(f"feature '{name}'" for name in _named(features)), *(f"parameter {name}" for name in _named(params))]
    listed = ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
    return f"everything is finite but the gradients of {listed or 'this batch under the loss scale'}"


def _named(tree: Mapping[str, Any]) -> list[str]:
    """Return the paths of the leaves that are not finite."""
    finite = jax.device_get({name: jnp.isfinite(leaf).all() for name, leaf in named_leaves(tree).items()})
    return [name for name, good in finite.items() if not good]


def _rows(array: Any) -> Any:
    """Return the rows of a batch that are not finite."""
    array = np.asarray(array)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        return np.array([], np.int64)
    return np.flatnonzero(~np.isfinite(array.astype(np.float32)).reshape(len(array), -1).all(axis=1))


@jax.jit
def _finite_rows(table: jax.Array) -> jax.Array:
    return jnp.isfinite(table).all(axis=1)


def _some(rows: Any, size: int | None) -> str:
    listed = ", ".join(map(str, rows[:SHOWN])) + (", ..." if len(rows) > SHOWN else "")
    of = f"{len(rows)} row{'s' * (len(rows) > 1)}"
    return f"{of} ({listed})" if size is None else f"{of} of {size} ({listed})"
