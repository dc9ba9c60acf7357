"""Tokens of context, history and candidates, one after the other without padding."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from sparrow.embedding import Rows, Sequence, Shards
from sparrow.kernels import Past, gated_attention, jagged_attention, token_places
from sparrow.models.layers.norms import LayerNorm
from sparrow.models.sequences.gathers import Order, place_lookup, small_lookup, spread, summed
from sparrow.models.sequences.states import Pass, next_pass

T = TypeVar("T")

ALIGNED: Final = 128
"""Tokens are padded to a multiple of it where there are many: else XLA copies every factor of a product to pad it."""


class Tokens(NamedTuple):
    """The input of layers of attention.

    Attributes:
      context: ``(batch, features, dim)``; may have no feature.
      history: the elements of each example, the oldest first.
      candidates: the candidates of each example; may have none.
      most: no history is longer.
      most_candidates: no example has more candidates.
      times: one number of each element of the history, when it was; None where times are not read.
      candidate_times: ``(batch, candidates)``.
      request: ``(batch,)``, the time of the request; None: that of the last candidate, or else element.
    """

    context: jax.Array
    history: Rows
    candidates: Rows
    most: int
    most_candidates: int
    times: Sequence | None = None
    candidate_times: jax.Array | None = None
    request: jax.Array | None = None

    @classmethod
    def of(cls, history: Rows, most: int, times: Sequence | None = None) -> Tokens:
        """Return the tokens of a history alone."""
        context = jnp.zeros((history.lengths.shape[0], 0, history.values.shape[1]), history.values.dtype)
        return cls(context, history, no_rows(history), most, 0, times)

    @property
    def start_time(self) -> jax.Array:
        """``(batch,)``: the time of the first element, or of the first candidate without a history."""
        found = jnp.zeros(self.history.lengths.shape, jnp.float32)
        if self.candidate_times is not None and self.candidate_times.shape[1]:
            found = self.candidate_times[:, 0]
        if self.times is not None and self.times.values.shape[1]:
            found = jnp.where(self.history.lengths > 0, self.times.values[:, 0, 0].astype(jnp.float32), found)
        return found

    @property
    def request_time(self) -> jax.Array:
        """``(batch,)``: the time that others are counted from."""
        if self.request is not None:
            return self.request
        found = jnp.zeros(self.history.lengths.shape, jnp.float32)
        for times, lengths in (
            (None if self.times is None else self.times.clean[..., 0].astype(jnp.float32), self.history.lengths),
            (self.candidate_times, self.candidates.lengths),
        ):
            if times is not None and times.shape[1]:
                newest = jnp.take_along_axis(times, jnp.maximum(lengths - 1, 0)[:, None], axis=1)[:, 0]
                found = jnp.where(lengths > 0, newest, found)
        return found


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where the tokens of each example are: ``context`` of them, its history, its candidates.

    Attributes:
      context: the tokens of context, the same number in each example.
      history: (batch,) the elements of each history.
      candidates: (batch,) the candidates of each example.
      offsets: (batch + 1,) the first token of each example; on a mesh, such numbers of each device.
      most: no example has more tokens.
      most_candidates: no example has more candidates.
      shards: the devices that all is split over; None: one device.
      recording: the pass whose keys and values are kept, see `sparrow.models.sequences.states`; None: none are.
      known_context: the tokens of context among those that the pass knows from before.
    """

    context: int
    history: jax.Array
    candidates: jax.Array
    offsets: jax.Array
    most: int
    most_candidates: int
    shards: Shards | None
    recording: Pass | None = None
    known_context: int = 0

    @property
    def before(self) -> jax.Array | int:
        """(batch,) or 0: the tokens of each example that are known from before, and are not among these."""
        past = None if self.recording is None else self.recording.past
        return 0 if past is None else past.lengths

    def each(self, f: Callable[..., T]) -> Callable[..., T]:
        """``f`` on every device with its own parts of the arguments."""
        return f if self.shards is None else self.shards.each(f, self.shards.split, self.shards.split)

    def own_rows(self, starts: jax.Array) -> jax.Array:
        """Return starts among the rows of this device; on a mesh rows are padded, the same number for each example."""
        return starts if self.shards is None else starts - starts[:1]

    @classmethod
    def join(cls, tokens: Tokens) -> tuple[jax.Array, Layout]:
        """Return all tokens, (tokens, dim), and where they are."""
        context, history, candidates = tokens[:3]
        recording, known_context = next_pass(), 0
        if recording is not None and recording.past is not None:
            context, known_context = context[:, :0], context.shape[1]
        features = context.shape[1]
        most = features + tokens.most + tokens.most_candidates
        shards = history.shards or candidates.shards
        lengths = history.lengths, candidates.lengths
        made = Layout(
            features, *lengths, history.starts, most, tokens.most_candidates, shards, recording, known_context
        )

        def own(context: jax.Array, *arrays: jax.Array) -> tuple[jax.Array, jax.Array]:
            values, starts, lengths, more, more_starts, more_lengths = arrays
            batch = context.shape[0]
            source = jnp.concatenate([context.reshape(batch * features, context.shape[2]), values, more])
            first = features * jnp.arange(batch, dtype=jnp.int32), jnp.full(batch, features, jnp.int32)
            parts = [first, (batch * features + made.own_rows(starts), lengths)]
            parts.append((batch * features + values.shape[0] + made.own_rows(more_starts), more_lengths))
            to, offsets = _arranged(parts, source.shape[0], _aligned(source.shape[0]))
            return Order.of(to, source.shape[0]).take(source), offsets

        x, offsets = made.each(own)(context, *history[:3], *candidates[:3])
        return x, dataclasses.replace(made, offsets=offsets)

    def without(self, x: jax.Array, dropped: jax.Array, tail: int) -> tuple[jax.Array, Layout]:
        """Return the tokens without the ``dropped`` oldest of each history, which leaves it ``tail`` at most."""

        def own(x: jax.Array, offsets: jax.Array, *arrays: jax.Array) -> tuple[jax.Array, jax.Array]:
            history, candidates, dropped = arrays
            starts, features = offsets[:-1], jnp.full(history.shape, self.context, jnp.int32)
            parts = [(starts, features), (starts + self.context + dropped, history - dropped)]
            parts.append((starts + self.context + history, candidates))
            size = _aligned(min(x.shape[0], history.shape[0] * (self.context + tail + self.most_candidates)))
            to, offsets = _arranged(parts, x.shape[0], size)
            return Order.of(to, x.shape[0]).take(x), offsets

        x, offsets = self.each(own)(x, self.offsets, self.history, self.candidates, dropped)
        return x, dataclasses.replace(self, history=self.history - dropped, offsets=offsets)

    def of_tokens(self, x: jax.Array, *values: jax.Array) -> tuple[jax.Array, ...]:
        """Return each token's number in its example, and ``values``, (batch,), of its example; all (tokens,)."""

        def own(x: jax.Array, offsets: jax.Array, *values: jax.Array) -> tuple[jax.Array, ...]:
            segments, places = token_places(offsets, x.shape[0])
            if isinstance(self.before, jax.Array):
                places = places + self.before.at[segments].get(mode="clip")
            return (places, *(value.at[segments].get(mode="clip") for value in values))

        return self.each(own)(x, self.offsets, *values)

    def numbers(self, x: jax.Array, history: Rows, candidates: jax.Array | None) -> jax.Array:
        """(tokens,): a number of each element, and (batch, most_candidates) of each candidate; 0 of the context."""

        def own(x: jax.Array, offsets: jax.Array, *arrays: jax.Array) -> jax.Array:
            values, starts, lengths, *more = arrays
            starts = self.own_rows(starts)
            segments, places = token_places(offsets, x.shape[0])
            place = places - self.context
            at = jnp.where(place < 0, values.shape[0], starts.at[segments].get(mode="clip") + place)
            found = values[:, 0].at[at].get(mode="fill", fill_value=0)
            place = place - lengths.at[segments].get(mode="clip")
            if not more:
                return jnp.where(place < 0, found, 0)
            return jnp.where(
                place < 0, found, more[0].at[segments, jnp.maximum(place, 0)].get(mode="fill", fill_value=0)
            )

        more = [] if candidates is None else [candidates]
        return self.each(own)(x, self.offsets, history.values, history.starts, self.history, *more)

    def following(self, x: jax.Array, history: Rows, last: jax.Array) -> tuple[jax.Array, jax.Array]:
        """(tokens, dim): the element after each token of the history, and whether it is such a token, (tokens,).

        After the last element comes the row of ``last``, (batch, dim), of the example.
        """

        def own(x: jax.Array, offsets: jax.Array, *arrays: jax.Array) -> tuple[jax.Array, jax.Array]:
            lengths, values, starts, last = arrays
            segments, places = token_places(offsets, x.shape[0])
            place = places - self.context
            length = lengths.at[segments].get(mode="clip")
            there = (place >= 0) & (place < length) & (jnp.arange(x.shape[0]) < offsets[-1])
            to = self.own_rows(starts).at[segments].get(mode="clip") + place + 1
            to = jnp.where(place + 1 < length, to, values.shape[0] + segments)
            source = jnp.concatenate([values, last.astype(values.dtype)])
            order = Order.of(jnp.where(there, to, source.shape[0]), source.shape[0])
            return order.take(source), there

        return self.each(own)(x, self.offsets, self.history, history.values, history.starts, last)

    def looked_up(self, table: jax.Array, rows: jax.Array) -> jax.Array:
        """(tokens, dim): the rows of a small table, such as that of positions, for each token."""
        if self.shards is None:
            return small_lookup(table, rows)
        everywhere = PartitionSpec()  # type: ignore[no-untyped-call]
        f = self.shards.each(small_lookup, (everywhere, self.shards.split), self.shards.split)
        made: jax.Array = f(table, rows)
        return made

    def at_places(self, table: jax.Array, places: jax.Array) -> jax.Array:
        """`looked_up` of each token's number in its example, where all candidates have that of the first one."""
        if self.shards is not None or self.recording is not None:
            return self.looked_up(table, places)
        ends = self.context + self.history
        return place_lookup(self.most, self.most_candidates, table, places, self.offsets, ends)

    def spread(self, x: jax.Array, values: jax.Array) -> jax.Array:
        """(tokens, dim): for each token the row of ``values``, (batch, dim), of its example; zeros behind the last."""

        def own(x: jax.Array, offsets: jax.Array, values: jax.Array) -> jax.Array:
            return spread(x.shape[0], self.most, values, offsets)

        return self.each(own)(x, self.offsets, values)

    def summed(self, x: jax.Array) -> jax.Array:
        """(batch, dim): the sum of the tokens of each example."""

        def own(x: jax.Array, offsets: jax.Array) -> jax.Array:
            return summed(x.shape[0], self.most, x, offsets)

        return self.each(own)(x, self.offsets)

    def softmax(self, scores: jax.Array) -> jax.Array:
        """(tokens, 1): the softmax of scores, (tokens, 1), over the tokens of each example, float32; 0 of padding."""

        def largest(scores: jax.Array, offsets: jax.Array) -> jax.Array:
            at = offsets[:-1, None] + jnp.arange(self.most)
            at = jnp.where(at < offsets[1:, None], at, scores.shape[0])
            return scores[:, 0].at[at].get(mode="fill", fill_value=-jnp.inf).max(axis=1, keepdims=True, initial=-1e30)

        scores = scores.astype(jnp.float32)
        top = self.each(largest)(jax.lax.stop_gradient(scores), self.offsets)
        one = self.spread(scores, jnp.ones((self.history.shape[0], 1)))
        powers = jnp.exp(jnp.where(one > 0, scores - self.spread(scores, top), -jnp.inf))
        total = self.spread(scores, self.summed(powers))
        return powers / jnp.where(total > 0, total, 1)

    def attend(
        self,
        q: jax.Array,
        k: jax.Array,
        v: jax.Array,
        biases: dict[str, jax.Array] | None = None,
        times: jax.Array | None = None,
        *,
        in_any_order: bool = False,
        **options: Any,
    ) -> jax.Array:
        """`jagged_attention` of all heads, (tokens, heads, dim); ``biases`` are its position_bias and time_bias.

        With ``in_any_order`` every token of an example sees every other.
        """
        each: dict[str, jax.Array] = {} if times is None else {"times": times}
        if self.recording is not None:
            options = {**options, "past": self._recorded(self.recording, k, v, times)}
        each.update(self._counts(options, in_any_order))

        def own(arrays: Any, each: Any, biases: Any) -> jax.Array:
            q, k, v, offsets = arrays
            return jagged_attention(q, k, v, offsets, max_length=self.most, **each, **biases, **options)

        arguments = (q, k, v, self.offsets), each, biases or {}
        if self.shards is None:
            return own(*arguments)
        split, everywhere = self.shards.split, PartitionSpec()  # type: ignore[no-untyped-call]
        made: jax.Array = self.shards.each(own, (split, split, everywhere), split)(*arguments)
        return made

    def _counts(self, options: dict[str, Any], in_any_order: bool = False) -> dict[str, jax.Array]:
        """Return the tokens of context and the candidates of each example, where they change who sees whom.

        One candidate after a history without context sees what any next element would; kernels are faster without.
        """
        counts = {}
        if in_any_order:
            counts["contexts"] = self.context + self.history
        elif self.context or self.known_context:
            counts["contexts"] = jnp.full(self.history.shape, self.context or self.known_context, jnp.int32)
        is_next = not counts and not options.get("sla_k1") and not options.get("sla_k2")
        if self.most_candidates > is_next:
            counts["candidates"] = self.candidates
        return counts

    def gated(
        self, x: jax.Array, kernel: jax.Array, shift: jax.Array, norm: LayerNorm, heads: int, **options: Any
    ) -> jax.Array | None:
        """`gated_attention` with the norm's scale and bias; None where no kernel has it, or a pass is kept."""
        if self.recording is not None or self.shards is not None:
            return None
        each = self._counts(options)
        scale, bias = norm.scale[...], norm.bias[...]
        options = {**options, **each, "heads": heads, "epsilon": norm.epsilon, "max_length": self.most}
        return gated_attention(x, kernel, shift, scale, bias, self.offsets, **options)

    def _recorded(self, recording: Pass, k: jax.Array, v: jax.Array, times: jax.Array | None) -> Past | None:
        """Record keys and values of context and history, and return those from before, None where there are none."""
        there, most = self.context + self.history, self.most - self.most_candidates
        parts = [k, v] if times is None else [times, k, v]
        past = None
        if recording.past is not None:
            stamps = None if times is None else recording.taken(())
            past = Past(recording.taken(k.shape[1:]), recording.taken(v.shape[1:]), recording.past.lengths, stamps)
        for x in parts:
            recording.add(x, self.offsets, there, most)
        return past

    def with_context_as_history(self) -> Layout:
        """Return the same tokens, where those of context are the first elements of the history."""
        return dataclasses.replace(self, context=0, known_context=0, history=self.history + self.context)

    def of_candidates(self, x: jax.Array) -> jax.Array:
        """(batch, most_candidates, dim): the tokens of the candidates; zeros where there is none."""
        return self._picked(x, self.context + self.history, self.candidates, self.most_candidates)

    def newest(self, x: jax.Array) -> jax.Array:
        """(batch, dim): the last token of context and history; zeros where there is none."""
        there = jnp.minimum(self.context + self.history, 1)
        return self._picked(x, self.context + self.history - 1, there, 1)[:, 0]

    def _picked(self, x: jax.Array, first: jax.Array, lengths: jax.Array, most: int) -> jax.Array:
        def own(x: jax.Array, offsets: jax.Array, first: jax.Array, lengths: jax.Array) -> jax.Array:
            place = jnp.arange(most, dtype=jnp.int32)
            rows = jnp.where(place < lengths[:, None], (offsets[:-1] + first)[:, None] + place, x.shape[0])
            return Order.of(rows.reshape(-1), x.shape[0]).take(x).reshape(lengths.shape[0], most, x.shape[1])

        return self.each(own)(x, self.offsets, first, lengths)


def elements_of(sequence: Sequence, max_length: int | None = None) -> tuple[jax.Array, Layout]:
    """Return the elements of a sequence as tokens, (tokens, dim), and where they are; the first ``max_length`` of each.

    >>> x, layout = elements_of(Sequence(jnp.ones((2, 3, 1)), jnp.array([3, 2])), 2)
    >>> x[:, 0].tolist(), layout.offsets.tolist()
    ([1.0, 1.0, 1.0, 1.0, 0.0, 0.0], [0, 2, 4])
    """
    rows, most = sequence.rows, sequence.values.shape[1]
    if max_length is not None and max_length < most:
        rows, most = rows._replace(lengths=jnp.minimum(rows.lengths, max_length)), max_length
    return Layout.join(Tokens.of(rows, most))


def _aligned(tokens: int) -> int:
    """Return the number of tokens with padding; as it is in an export, where it is no integer."""
    return tokens if not isinstance(tokens, int) or tokens < 8 * ALIGNED else -(-tokens // ALIGNED) * ALIGNED


def no_rows(like: Rows) -> Rows:
    """Return no element for each example of ``like``."""
    none = jnp.zeros_like(like.lengths)
    return Rows(jnp.zeros((0, like.values.shape[1]), like.values.dtype), none, none, like.shards)


def _arranged(parts: Any, rows: int, size: int) -> tuple[jax.Array, jax.Array]:
    """Return the rows of the parts (starts and lengths, (batch,)) of each example in turn, (size,), and the offsets."""
    lengths = functools.reduce(jnp.add, [part[1] for part in parts])
    offsets = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(lengths).astype(jnp.int32)])
    segments, places = token_places(offsets, size)
    to, begin = jnp.full(size, rows, jnp.int32), jnp.zeros_like(lengths)
    for starts, length in parts:
        place = places - begin.at[segments].get(mode="clip")
        here = (place >= 0) & (place < length.at[segments].get(mode="clip"))
        to = jnp.where(here, starts.at[segments].get(mode="clip") + place, to)
        begin = begin + length
    return jnp.where(jnp.arange(size) < offsets[-1], to, rows), offsets
