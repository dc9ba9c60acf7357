"""HSTU as a ranker: candidates follow the history, each as its next element."""

from __future__ import annotations

from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow.embedding import Rows
from sparrow.models.inputs import Arrays, Inputs, Sequence
from sparrow.models.layers.candidates import CandidateRanker
from sparrow.models.layers.mlp import MLP
from sparrow.models.layers.norms import LayerNorm, unit
from sparrow.models.layers.towers import TaskTower
from sparrow.models.records import register_model
from sparrow.models.sequences.gated import HSTU
from sparrow.models.sequences.hstu_channel import ChannelLayers, HSTUChannel
from sparrow.models.sequences.layout import Tokens
from sparrow.models.sequences.tokens import TokenLayers, history_group, single_number

Postprocessor = Literal["layernorm", "l2norm"]


class History(nnx.Module):
    """The elements of a history as an `HSTU` reads them: content, plus action where there is one, and times.

    ::

        x_l = linear(group "uih")_l + linear(group "uih_action")_l
    """

    def __init__(self, model: str, inputs: Inputs, content: str, hstu: HSTU, *, rngs: nnx.Rngs) -> None:
        self.content = history_group(model, inputs, content)
        action, stamps = f"{content}_action", f"{content}_timestamp"
        self.action = history_group(model, inputs, action) if action in inputs.groups else None
        self.stamps = history_group(model, inputs, stamps, dim=1) if stamps in inputs.groups else None
        if (self.stamps is None) != (hstu.num_time_buckets is None):
            raise ValueError(
                f"{model} reads the group '{stamps}' by hstu.num_time_buckets, and has only one of them; give both or "
                "neither"
            )
        self.linear = nnx.Linear(self.content.sequences.dim, hstu.embedding_dim, rngs=rngs)
        self.action_linear = nnx.data(None)
        if self.action is not None:  # one bias is enough
            self.action_linear = nnx.Linear(self.action.sequences.dim, hstu.embedding_dim, use_bias=False, rngs=rngs)

    def __call__(self, acts: Arrays, numbers: Arrays) -> tuple[Rows, int, Sequence | None]:
        """Return the elements, the most that an example may have, and their times, ``(batch, length, 1)``."""
        content = self.content.sequence(acts, numbers)
        rows = content.rows
        x = self.linear(rows.values)
        if self.action is not None and self.action_linear is not None:
            added = self.action_linear(self.action.sequence(acts, numbers).rows.values[: x.shape[0]])
            x = x[: added.shape[0]] + added
        rows, most = rows._replace(values=x), content.values.shape[1]
        return rows, most, None if self.stamps is None else single_number(self.stamps, acts, numbers)


@register_model("dlrm_hstu")
class DlrmHSTU(CandidateRanker):
    """Generative ranker: each candidate attends to everything the user did, and several tasks read the result.

    ::

        x         = [linear(group "contextual"), history elements..., linear(group "candidate")]
        y         = HSTU layers(x) at the candidate                       see `HSTU`
        h         = MLP(norm(y))                                          y / |y| with postprocessor "l2norm"
        output[t] = linear(MLP of task t(h))

    Groups: "uih", sequences of the user's interaction history, the oldest first; "candidate", single features, or
    sequences; and optionally "contextual", single features of the request that become one element before the history;
    "uih_action", sequences that are added to those of "uih"; "uih_timestamp" and "candidate_timestamp", one number
    each, with ``hstu.num_time_buckets``.

    With single features an example is one candidate, and an output is ``(batch,)``. With sequences it has as many
    candidates as elements: they share one pass over the history, do not see each other, and an output is ``(batch,
    candidates)``, 0 behind the last candidate of an example; `sparrow.data.CANDIDATES` is the output with
    their number. A label is then a list, with a number for each candidate.

    >>> hstu = HSTU(embedding_dim=8, num_heads=2, hidden_dim=4, attention_dim=4, scaling_seqlen=6, attn_num_layers=1)
    >>> options = {"hstu": hstu, "task_towers": (TaskTower("click"),), "mlp": MLP((8,)), "rngs": nnx.Rngs(0)}
    >>> clicks = Sequence(jnp.ones((2, 5, 4)), jnp.array([5, 0]))
    >>> groups = {"uih": ["clicks"], "candidate": ["item"]}
    >>> model = DlrmHSTU(Inputs(acts={"item": 4}, sequences={"clicks": 4}, groups=groups), **options)
    >>> model({"item": jnp.ones((2, 4)), "clicks": clicks}, {})["click"].shape
    (2,)
    >>> model = DlrmHSTU(Inputs(acts={}, sequences={"item": 4, "clicks": 4}, groups=groups), **options)
    >>> items = Sequence(jnp.ones((2, 3, 4)), jnp.array([3, 2]))
    >>> model({"item": items, "clicks": clicks}, {})["click"].shape
    (2, 3)

    Reference: Zhai et al., Actions Speak Louder than Words, ICML 2024, arXiv 2402.17152.
    """

    why_no_append: ClassVar[str | None] = None

    def __init__(
        self,
        inputs: Inputs,
        *,
        hstu: HSTU,
        task_towers: tuple[TaskTower, ...],
        mlp: MLP | None = None,
        postprocessor: Postprocessor = "layernorm",
        rngs: nnx.Rngs,
    ) -> None:
        optional = ("contextual", "uih_action", "uih_timestamp", "candidate_timestamp")
        inputs.check("DlrmHSTU", required=("uih", "candidate"), optional=optional)
        self.history = History("DlrmHSTU", inputs, "uih", hstu, rngs=rngs)
        if ("candidate_timestamp" in inputs.groups) != (hstu.num_time_buckets is not None):
            raise ValueError(
                "DlrmHSTU reads the group 'candidate_timestamp' by hstu.num_time_buckets, and has only one of them; "
                "give both or neither"
            )
        self._read_candidates(inputs, task_towers, mlp, reads_times=hstu.num_time_buckets is not None)
        self.contextual = inputs.group("contextual") if "contextual" in inputs.groups else None
        dim = hstu.embedding_dim
        self.linear = nnx.Linear(self.candidates.dim, dim, rngs=rngs)
        self.contextual_linear = nnx.data(None)
        if self.contextual is not None:
            self.contextual_linear = nnx.Linear(self.contextual.dim, dim, rngs=rngs)
        self.hstu = hstu.build(rngs=rngs)
        self.norm = LayerNorm(dim, rngs=rngs) if postprocessor == "layernorm" else nnx.data(None)
        self._make_towers(dim, task_towers, mlp, rngs=rngs)

    @property
    def why_no_states(self) -> str | None:
        """Why states of a history cannot be kept for later candidates; None: they can."""
        if self.contextual is not None and self.stamps is not None:
            return "the group 'contextual' has the time of the first candidate where a history is empty"
        return None

    def __call__(self, acts: Arrays, numbers: Arrays) -> dict[str, jax.Array]:
        history, most, times = self.history(acts, numbers)
        found = self.candidates(acts, numbers)
        rows = found.rows
        candidates = rows._replace(values=self.linear(rows.values).astype(history.values.dtype))
        context = jnp.zeros((history.lengths.shape[0], 0, history.values.shape[1]), history.values.dtype)
        if self.contextual is not None and self.contextual_linear is not None:
            made = self.contextual_linear(self.contextual.concat(acts, numbers))
            context = made[:, None].astype(history.values.dtype)
        tokens = Tokens(context, history, candidates, most, found.values.shape[1], times, self._times(numbers))
        x, layout = self.hstu(tokens)
        y = layout.of_candidates(x)
        y = y.reshape(-1, y.shape[-1])  # (batch * candidates, dim)
        return self._outputs(unit(y.astype(jnp.float32)).astype(y.dtype) if self.norm is None else self.norm(y), found)


@register_model("hstu_ranker")
class HSTURanker(CandidateRanker):
    """Generative ranker: the state of each candidate after its user's histories, times what the candidate is.

    ::

        user      = [post(STU layers(context, history c, candidates) at the candidate) of each channel c]   see `STU`
        item      = TokenLayers(candidate)
        h         = MLP(user * item)
        output[t] = linear(h)

    Groups: one per channel, sequences of a history, the oldest element first; "candidate", sequences with an element
    for each candidate of the example, or single features of its one; and optionally "contextual", single features of
    the request; those that `HSTUChannel` names; and "candidate_timestamp", the times of the candidates. Outputs are as
    those of `DlrmHSTU`.

    >>> from sparrow.models.inputs import Sequence
    >>> from sparrow.models.sequences.gated import STU
    >>> channel = HSTUChannel(STU(8, 2, 4, 4, scaling_seqlen=6, num_position_buckets=8))
    >>> inputs = Inputs(acts={}, sequences={"item": 4, "clicks": 4}, groups={"uih": ["clicks"], "candidate": ["item"]})
    >>> towers = (TaskTower("click"),)
    >>> model = HSTURanker(inputs, channels=(channel,), task_towers=towers, item_hidden_dim=8, rngs=nnx.Rngs(0))
    >>> items = Sequence(jnp.ones((2, 3, 4)), jnp.array([3, 2]))
    >>> model({"item": items, "clicks": Sequence(jnp.ones((2, 5, 4)), jnp.array([5, 0]))}, {})["click"].shape
    (2, 3)

    Reference: Zhai et al., Actions Speak Louder than Words, ICML 2024, arXiv 2402.17152, and its published program.
    """

    def __init__(
        self,
        inputs: Inputs,
        *,
        channels: tuple[HSTUChannel, ...],
        task_towers: tuple[TaskTower, ...],
        mlp: MLP | None = None,
        item_hidden_dim: int = 512,
        rngs: nnx.Rngs,
    ) -> None:
        names = [channel.name for channel in channels]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"HSTURanker.channels must be at least one, each with a name of its own, got {names}")
        optional = [group for channel in channels for group in channel.groups]
        optional += ["contextual", "candidate_timestamp"]
        inputs.check("HSTURanker", required=(*names, "candidate"), optional=optional)
        reads_times = any(channel.stu.num_time_buckets is not None or channel.time_periods for channel in channels)
        self._read_candidates(inputs, task_towers, mlp, reads_times=reads_times)
        self.channels = nnx.List(
            [ChannelLayers("HSTURanker", channel, inputs, self.candidates.dim, rngs=rngs) for channel in channels]
        )
        dim = sum(channel.stu.embedding_dim for channel in channels)
        self.item = TokenLayers(self.candidates.dim, item_hidden_dim, dim, rngs=rngs)
        self._make_towers(dim, task_towers, mlp, rngs=rngs)

    @property
    def why_no_states(self) -> str | None:
        return next(filter(None, (each.channel.stu.why_no_states for each in self.channels)), None)

    @property
    def why_no_append(self) -> str | None:
        """Why further elements cannot be appended to a state; None: they can."""
        return next(filter(None, (each.why_no_append for each in self.channels)), None)

    def __call__(self, acts: Arrays, numbers: Arrays) -> dict[str, jax.Array]:
        found, stamps = self.candidates(acts, numbers), self._times(numbers)
        users = [channel.rank(acts, numbers, found, stamps) for channel in self.channels]
        y = jnp.concatenate(users, axis=-1) * self.item(found.clean)
        return self._outputs(y.reshape(-1, y.shape[-1]), found)
