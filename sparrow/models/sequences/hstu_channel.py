"""A channel of HSTU: the groups of one history, the tokens that they become, and the layers over these."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow import fields
from sparrow.embedding import Rows
from sparrow.models.inputs import Arrays, Inputs, Sequence, SequenceGroup
from sparrow.models.layers.norms import LayerNorm, unit
from sparrow.models.sequences.gated import STU
from sparrow.models.sequences.layout import Layout, Tokens, no_rows
from sparrow.models.sequences.tokens import (
    Actions,
    ActionTokens,
    Content,
    ContentTokens,
    ContextTokens,
    history_group,
    single_number,
)


@dataclasses.dataclass(frozen=True)
class TimePeriod:
    """A period such as a day of 24 hours.

    Attributes:
      unit: the length of a part, in units of the timestamps, such as 3600.
      count: the parts of a period, such as 24.
    """

    unit: fields.Count
    count: fields.Count

    def __post_init__(self) -> None:
        fields.check(self)


@dataclasses.dataclass(frozen=True)
class HSTUChannel:
    """One history, and how it is read.

    Attributes:
      stu: the layers.
      name: the group of the history; others are called after it: name_action, name_watchtime, name_timestamp.
      content: how elements and candidates become tokens; None: a linear layer for each.
      actions: the actions of an element, of the group name_action, whose tokens are added; None: they are not read.
      postprocessor: how results are normalized: "layernorm", "l2norm", or "timestamp_layernorm", which reads the time
        of the candidate.
      time_periods: the periods of "timestamp_layernorm".
      concat_contextual_features: whether the group "contextual" is one token, instead of one for each feature.
    """

    stu: STU
    name: str = "uih"
    content: Content | None = None
    actions: Actions | None = None
    postprocessor: Literal["layernorm", "l2norm", "timestamp_layernorm"] = "layernorm"
    time_periods: tuple[TimePeriod, ...] = ()
    concat_contextual_features: bool = False

    def __post_init__(self) -> None:
        fields.check(self)
        if (self.postprocessor == "timestamp_layernorm") != bool(self.time_periods):
            raise ValueError("HSTUChannel.time_periods go with the postprocessor 'timestamp_layernorm'; give both")

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups besides the history that a channel may have."""
        return tuple(f"{self.name}_{part}" for part in ("action", "watchtime", "timestamp"))


class Postprocessor(nnx.Module):
    """Normalization of the results.

    ::

        "layernorm"            norm(y)
        "l2norm"               y / |y|
        "timestamp_layernorm"  norm(W [y, cos(2π p_1), sin(2π p_1), cos(2π p_2), ...] + b)

    where p is the part of the period that has passed: (floor(time / unit) mod count) / count.
    """

    def __init__(self, channel: HSTUChannel, *, rngs: nnx.Rngs) -> None:
        dim = channel.stu.embedding_dim
        self.periods = channel.time_periods
        self.norm = nnx.data(None) if channel.postprocessor == "l2norm" else LayerNorm(dim, rngs=rngs)
        self.linear = nnx.data(None)
        if self.periods:
            self.linear = nnx.Linear(dim + 2 * len(self.periods), dim, rngs=rngs)

    def __call__(self, y: jax.Array, times: jax.Array | None) -> jax.Array:
        """Map ``(..., dim)`` to the same shape; times are ``(...)``."""
        if self.norm is None:
            return unit(y.astype(jnp.float32)).astype(y.dtype)
        if self.linear is not None and times is not None:
            parts = []
            for period in self.periods:
                angle = 2 * math.pi * (jnp.floor(times / period.unit) % period.count) / period.count
                parts += [jnp.cos(angle), jnp.sin(angle)]
            y = self.linear(jnp.concatenate([y, jnp.stack(parts, axis=-1).astype(y.dtype)], axis=-1))
        return self.norm(y)


class ChannelLayers(nnx.Module):
    """The layers that an `HSTUChannel` describes; ``candidate_dim`` is 0 where there are no candidates."""

    def __init__(self, model: str, channel: HSTUChannel, inputs: Inputs, candidate_dim: int, *, rngs: nnx.Rngs) -> None:
        self.channel, dim = channel, channel.stu.embedding_dim
        self.group = history_group(model, inputs, channel.name)
        reads_times = channel.stu.num_time_buckets is not None or (bool(channel.time_periods) and not candidate_dim)
        self.times = self._optional(model, inputs, "timestamp", reads_times)
        self.acted = self._optional(model, inputs, "action", channel.actions is not None)
        needs_watch = channel.actions is not None and bool(channel.actions.watchtime_thresholds)
        self.watched = self._optional(model, inputs, "watchtime", needs_watch)
        width = self.group.sequences.dim
        self.content: ContentTokens | None = nnx.data(None)
        self.linear: Any = nnx.data(None)
        self.candidate_linear: Any = nnx.data(None)
        if channel.content is not None and candidate_dim:
            self.content = ContentTokens(channel.content, width, candidate_dim, dim, rngs=rngs)
        else:
            self.linear = nnx.Linear(width, dim, rngs=rngs)
            if candidate_dim:
                self.candidate_linear = nnx.Linear(candidate_dim, dim, rngs=rngs)
        self.actions = nnx.data(None) if channel.actions is None else ActionTokens(channel.actions, dim, rngs=rngs)
        as_one = channel.concat_contextual_features
        self.context = ContextTokens(model, inputs, dim, as_one=as_one, rngs=rngs)
        self.layers = channel.stu.build(rngs=rngs)
        self.post = Postprocessor(channel, rngs=rngs)

    @property
    def why_no_append(self) -> str | None:
        return "the group 'contextual' attends to all of the history" if self.context.group is not None else None

    def _optional(self, model: str, inputs: Inputs, part: str, is_read: bool) -> SequenceGroup | None:
        """Return a group of one number per element; None: it is not read."""
        name = f"{self.channel.name}_{part}"
        if not is_read:
            return None
        if name not in inputs.groups:
            raise ValueError(f"{model} needs the group '{name}', as its options read it")
        return history_group(model, inputs, name, dim=1)

    def _tokens(self, acts: Arrays, numbers: Arrays) -> tuple[Rows, int]:
        """Return the tokens of the history, and the most that an example may have."""
        found = self.group.sequence(acts, numbers)
        rows = found.rows
        x = self.linear(rows.values) if self.content is None else self.content.history(rows.values)
        if self.actions is not None:
            parts = (self._numbers(group, acts, numbers) for group in (self.acted, self.watched))
            read: list[Any] = [None if each is None else each.rows.values[: x.shape[0], 0] for each in parts]
            acted = self.actions.history(*read)
            x = x[: acted.shape[0]] + acted
        return rows._replace(values=x), found.values.shape[1]

    def rank(self, acts: Arrays, numbers: Arrays, candidates: Sequence, stamps: jax.Array | None) -> jax.Array:
        """Return a vector for each candidate, ``(batch, candidates, dim)``; ``stamps`` are their times."""
        history, most = self._tokens(acts, numbers)
        rows = candidates.rows
        x = self.candidate_linear(rows.values) if self.content is None else self.content.candidates(rows.values)
        if self.actions is not None:
            x = x + self.actions.candidates()
        context = self.context(acts, numbers, history.lengths, x.dtype)
        made = rows._replace(values=x.astype(history.values.dtype))
        times = self._numbers(self.times, acts, numbers)
        y, layout = self.layers(Tokens(context, history, made, most, candidates.values.shape[1], times, stamps))
        return self.post(layout.of_candidates(y), stamps)

    def states(self, acts: Arrays, numbers: Arrays, request: jax.Array | None) -> tuple[jax.Array, Layout, Rows]:
        """Return the state of each token, ``(tokens, dim)``, where they are, and the features of the elements."""
        history, most = self._tokens(acts, numbers)
        context = self.context(acts, numbers, history.lengths, history.values.dtype)
        times = self._numbers(self.times, acts, numbers)
        y, layout = self.layers(Tokens(context, history, no_rows(history), most, 0, times, request=request))
        return y, layout, self.group.sequence(acts, numbers).rows

    def newest(self, acts: Arrays, numbers: Arrays, request: jax.Array | None) -> jax.Array:
        """Return the vector of the newest token, ``(batch, dim)``; zeros where there is none."""
        y, layout, history = self.states(acts, numbers, request)
        times, at = self._numbers(self.times, acts, numbers), None
        if times is not None:
            at = jnp.take_along_axis(times.clean[..., 0], jnp.maximum(history.lengths - 1, 0)[:, None], axis=1)[:, 0]
            at = jnp.where(history.lengths > 0, at, 0)
        newest = self.post(layout.newest(y), at)
        return jnp.where((layout.context + history.lengths > 0)[:, None], newest, 0)

    def _numbers(self, group: SequenceGroup | None, acts: Arrays, numbers: Arrays) -> Sequence | None:
        return None if group is None else single_number(group, acts, numbers)
