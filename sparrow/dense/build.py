"""One function from a name and numbers to an optax transformation, weight decay included."""

from __future__ import annotations

import collections
import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax

from sparrow import schedules
from sparrow.dense.clipping import clip_by_global_norm
from sparrow.dense.paths import check_patterns, is_patterns, matching
from sparrow.dense.registry import OPTIMIZERS, DenseOptimizer
from sparrow.fields import integer, is_zero, number, takes_step
from sparrow.registry import nearest
from sparrow.rules import Rule, as_optax

LearningRate = Any  # a number, a schedule (step -> rate), or a schedule's config
Schedule = Callable[[Any], Any]


def build(
    name: str | DenseOptimizer | Rule,
    learning_rate: LearningRate,
    *,
    weight_decay: float = 0.0,
    weight_decay_mask: Mask = None,
    l2: float = 0.0,
    clip_norm: float | None = None,
    clip_norm_type: float = 2.0,
    clip_value: float | None = None,
    accumulate: int = 1,
    fused: bool = False,
    **hyper: Any,
) -> tuple[optax.GradientTransformationExtraArgs, Schedule]:
    """Build an optimizer: the optax transformation, and the schedule it follows.

    The gradients go through these steps, in this order: the mean of ``accumulate`` micro-batches; ``clip_norm``;
    ``clip_value``; ``l2``; the optimizer, times ``-learning_rate``; ``weight_decay``.

    >>> tx, schedule = build("adamw", 0.1, beta2=0.99, weight_decay=0.01, weight_decay_mask=r".*kernel", clip_norm=1.0)
    >>> params = {"kernel": jnp.ones(2), "bias": jnp.ones(2)}
    >>> updates, state = tx.update({"kernel": jnp.ones(2), "bias": -jnp.ones(2)}, tx.init(params), params)
    >>> [round(float(updates[name][0]), 4) for name in params]
    [-0.101, 0.1]
    >>> build("adamw", 0.1, beta_2=0.99)
    Traceback (most recent call last):
    ValueError: optimizer 'adamw' has no argument 'beta_2': did you mean 'beta2'? Valid names: ...

    Args:
      name: the optimizer's name (see ``dense.names()``), its record such as ``dense.Adam(beta1=0.8)``, or a rule for
        tables such as ``rules.FTRL(l1=0.1)``, whose own learning rate gives way to ``learning_rate``.
      learning_rate: a number, a schedule, or a schedule's config ``{"name": "cosine", "lr": ...}``. 0, or a schedule
        whose base rate is 0, freezes the parameters: no update and no state.
      weight_decay: decoupled: each step takes ``learning_rate * weight_decay * params`` away, after the optimizer.
      weight_decay_mask: the parameters that ``weight_decay`` and ``l2`` act on: a regular expression over complete
        parameter paths (or several), a tree of booleans, or a function to such a tree. All, unless given.
      l2: ``l2 * params`` joins the gradient before the optimizer sees it (and after clipping, which is about the
        loss's gradient). This is what PyTorch calls weight_decay in SGD, Adagrad, Adam, Adadelta and RMSprop.
      clip_norm: the largest global norm of the gradients. A caller that holds only a share of them hands in the norm
        of the whole: ``tx.update(..., global_norm=norm)``. In the ``tx`` of ``sp.Optimizer`` it clips dense parameters
        only; ``clip_global_norm`` of ``sp.Optimizer`` clips them and the rows of tables by one norm.
      clip_norm_type: the norm: 2, another number of at least 1, or ``math.inf`` for the largest absolute value.
      clip_value: the largest absolute value of a gradient's element.
      accumulate: micro-batches per optimizer step; the updates in between are zeros. Schedules count optimizer steps.
      fused: accepted for configs written for PyTorch; XLA fuses the update either way.
      **hyper: the optimizer's own hyper-parameters.
    """
    del fused
    number("weight_decay", weight_decay, at_least=0)
    number("l2", l2, at_least=0)
    optimizer = _optimizer(name, hyper)
    schedule = as_schedule(learning_rate)
    if isinstance(schedule, schedules.Schedule) and is_zero(schedule.lr):
        return optax.with_extra_args_support(optax.set_to_zero()), schedule
    steps: list[tuple[str, optax.GradientTransformation]] = clipping(clip_norm, clip_value, clip_norm_type)
    if not is_zero(l2):
        steps.append(("l2", add_parameters(lambda _: l2, weight_decay_mask)))
    steps.append(("optimizer", _keep_dtypes(optimizer.build(schedule))))
    if not is_zero(weight_decay):
        decay = add_parameters(lambda step: -weight_decay * schedule(step), weight_decay_mask)
        steps.append(("weight_decay", decay))
    return accumulating(optax.named_chain(*steps), accumulate), schedule


def clipping(
    clip_norm: float | None, clip_value: float | None, clip_norm_type: float = 2.0
) -> list[tuple[str, optax.GradientTransformation]]:
    """Return the named steps that clip gradients: none, one or both."""
    steps: list[tuple[str, optax.GradientTransformation]] = []
    if clip_norm is not None:
        number("clip_norm", clip_norm, above=0)
        if clip_norm_type != math.inf:
            number("clip_norm_type", clip_norm_type, at_least=1)
        steps.append(("clip_norm", clip_by_global_norm(clip_norm, clip_norm_type)))
    if clip_value is not None:
        number("clip_value", clip_value, above=0)
        steps.append(("clip_value", optax.clip(clip_value)))
    return steps


def accumulating(tx: optax.GradientTransformation, accumulate: int) -> optax.GradientTransformationExtraArgs:
    """``tx`` once every ``accumulate`` calls, on the mean of their gradients."""
    integer("accumulate", accumulate, at_least=1)
    if accumulate == 1:
        return optax.with_extra_args_support(tx)
    multi = optax.MultiSteps(tx, accumulate)
    return optax.GradientTransformationExtraArgs(multi.init, multi.update)


def as_schedule(learning_rate: LearningRate) -> Schedule:
    """Return a number, a schedule or a schedule's config as a schedule.

    A function without arguments is a schedule whose number a compiled step keeps.

    >>> as_schedule(0.5)
    Constant(lr=0.5, ...)
    """
    if isinstance(learning_rate, Mapping):
        return schedules.from_dict(learning_rate)
    if not callable(learning_rate):
        number("learning_rate", learning_rate, at_least=0)
        return schedules.constant(learning_rate)
    schedule: Schedule = learning_rate
    return schedule if takes_step(schedule) else lambda step: schedule()  # type: ignore[call-arg]


def _keep_dtypes(tx: optax.GradientTransformation) -> optax.GradientTransformationExtraArgs:
    """Update in the gradients' dtypes, whatever ``tx`` computes in."""
    tx = optax.with_extra_args_support(tx)

    def update(updates: Any, state: Any, params: Any = None, **extra_args: Any) -> tuple[Any, Any]:
        new_updates, state = tx.update(updates, state, params, **extra_args)
        return optax.tree.cast_like(new_updates, updates), state

    return optax.GradientTransformationExtraArgs(tx.init, update)


@dataclasses.dataclass(frozen=True)
class _FromRule(DenseOptimizer):
    """A rule for tables, on dense parameters."""

    rule: Rule

    def build(self, learning_rate: optax.Schedule) -> optax.GradientTransformation:
        return as_optax(dataclasses.replace(self.rule, learning_rate=learning_rate))


def _optimizer(name: str | DenseOptimizer | Rule, hyper: Mapping[str, Any]) -> DenseOptimizer:
    if isinstance(name, str):
        own = [field.name for field in dataclasses.fields(OPTIMIZERS[name])]  # type: ignore[arg-type]
        for given in hyper:
            if given not in own:
                valid = [*own, *(set(inspect.signature(build).parameters) - {"name", "hyper"})]
                raise ValueError(f"optimizer '{name}' has no argument '{given}': {nearest(given, valid)}")
        return OPTIMIZERS.make(name, **hyper)
    if hyper:
        raise ValueError(
            f"{', '.join(hyper)} cannot be given together with a record; put it into {type(name).__name__}(...)"
        )
    if isinstance(name, Rule):
        return _FromRule(name)
    if isinstance(name, DenseOptimizer):
        return name
    raise TypeError(f"name must be an optimizer's name, its record or a rule, got {name!r}")


AddParametersState = collections.namedtuple("AddParametersState", "step")
Mask = Any  # a pattern, several patterns, a tree of booleans, or a function from parameters to such a tree


def add_parameters(
    coefficient: Callable[[jax.Array], jax.typing.ArrayLike], mask: Mask = None
) -> optax.GradientTransformation:
    """Return ``updates + coefficient(step) * params``, on the parameters that ``mask`` selects.

    ``coefficient = -learning_rate(step) * weight_decay`` after an optimizer is decoupled weight decay; a constant
    before it is an L2 penalty of half that constant. Unlike ``optax.add_decayed_weights`` with a schedule, the
    updates keep their dtype.

    ``mask`` is a regular expression over parameter paths (or several; they must match complete paths, and each must
    match something), a tree of booleans, or a function from parameters to a tree of booleans. True is decayed.

    >>> decay = add_parameters(lambda step: -0.1, mask=r".*kernel")
    >>> params = {"kernel": jnp.array(2.0), "bias": jnp.array(2.0)}
    >>> updates, _ = decay.update({"kernel": jnp.array(0.0), "bias": jnp.array(0.0)}, decay.init(params), params)
    >>> float(updates["kernel"]), float(updates["bias"])
    (-0.2..., 0.0)
    """

    def init(params: Any) -> AddParametersState:
        del params
        return AddParametersState(jnp.zeros((), jnp.int32))

    def update(updates: Any, state: AddParametersState, params: Any = None) -> tuple[Any, AddParametersState]:
        if params is None:
            raise ValueError("weight decay needs the parameters: call tx.update(gradients, state, params)")
        scale = coefficient(state.step)
        updates = jax.tree.map(lambda u, p: (u + scale * p).astype(u.dtype), updates, params)
        return updates, AddParametersState(optax.safe_increment(state.step))

    tx = optax.GradientTransformation(init, update)
    if mask is None:
        return tx
    if not is_patterns(mask):
        return optax.masked(tx, mask)
    masked = optax.masked(tx, matching(mask))

    def checked_init(params: Any) -> Any:
        check_patterns([mask], params)
        return masked.init(params)

    return optax.GradientTransformationExtraArgs(checked_init, masked.update)
