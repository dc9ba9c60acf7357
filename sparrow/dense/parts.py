"""Parameter groups: patterns over parameter paths give a part of the model its own optimizer and schedule."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import optax

from sparrow.dense.build import LearningRate, accumulating, build, clipping
from sparrow.dense.paths import Patterns, check_patterns, labels
from sparrow.dense.registry import DenseOptimizer
from sparrow.rules import Rule

MAIN = "main"
"""The name of the group of all parameters that no part takes."""


@dataclasses.dataclass(frozen=True)
class Part:
    """A group of parameters, by patterns that match complete paths, and what trains them."""

    patterns: Patterns
    tx: optax.GradientTransformation
    schedule: Callable[[Any], Any]


def part(
    patterns: Patterns, name: str | DenseOptimizer | Rule = "sgd", learning_rate: LearningRate = 0.0, **options: Any
) -> Part:
    """Return a `Part` with the optimizer that ``dense.build(name, learning_rate, **options)`` gives.

    Without a rate the part is frozen: it gets no updates and no optimizer state.
    """
    return Part(patterns, *build(name, learning_rate, **options))


def build_parts(
    main: tuple[optax.GradientTransformation, Callable[[Any], Any]],
    parts: Mapping[str, Part],
    *,
    clip_norm: float | None = None,
    clip_norm_type: float = 2.0,
    clip_value: float | None = None,
    accumulate: int = 1,
) -> tuple[optax.GradientTransformationExtraArgs, dict[str, Callable[[Any], Any]]]:
    """One transformation for the complete model, and the schedules by group name (``"main"`` for the rest).

    The state of each group lies under its name. A pattern that matches no parameter, and a parameter matched by two
    parts, are errors at ``tx.init`` that list the paths. ``clip_norm`` (of ``clip_norm_type``), ``clip_value`` and
    ``accumulate`` here act on all parameters together; the same options inside a part's own optimizer see that part
    alone.

    >>> import jax, jax.numpy as jnp
    >>> tx, schedules = build_parts(
    ...     build("adam", 0.001),
    ...     {"towers": part(r"tower_\\d/.*", "sgd", 0.5), "frozen": part(r".*/embedding")},
    ...     clip_norm=10.0,
    ... )
    >>> params = {"tower_1": {"kernel": jnp.ones(2)}, "head": {"kernel": jnp.ones(2)}, "in": {"embedding": jnp.ones(2)}}
    >>> updates, state = tx.update(params, tx.init(params), params)  # the gradients happen to equal the parameters
    >>> {name: round(float(jax.tree.leaves(update)[0][0]), 4) for name, update in updates.items()}
    {'head': -0.001, 'in': 0.0, 'tower_1': -0.5}
    >>> float(schedules["towers"](0)), jax.tree.leaves(state["parts"].inner_states["frozen"])
    (0.5, [])
    """
    if MAIN in parts:
        raise ValueError(f"'{MAIN}' is the name of the parameters that no part takes; call the part something else")
    groups = list(parts)
    patterns = [parts[group].patterns for group in groups]
    main_tx, main_schedule = main
    partition = optax.partition(
        {MAIN: main_tx, **{group: parts[group].tx for group in groups}},
        lambda tree: labels(groups, patterns, MAIN, tree),
    )

    def init(params: Any) -> Any:
        check_patterns(patterns, params)
        return partition.init(params)

    steps = [
        *clipping(clip_norm, clip_value, clip_norm_type),
        ("parts", optax.GradientTransformationExtraArgs(init, partition.update)),
    ]
    schedules = {MAIN: main_schedule, **{group: parts[group].schedule for group in groups}}
    return accumulating(optax.named_chain(*steps), accumulate), schedules
