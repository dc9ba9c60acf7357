"""HSTU as a ranker: the candidates of an example, one or several, share a pass over its history."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow.data import CANDIDATES
from sparrow.embedding import Rows
from sparrow.models.inputs import Arrays, Group, Inputs, Sequence, SequenceGroup
from sparrow.models.layers.mlp import MLP
from sparrow.models.layers.norms import LayerNorm, unit
from sparrow.models.layers.towers import TaskLogits, TaskTower, task_names
from sparrow.models.records import register_model
from sparrow.models.sequences.gated import HSTU
from sparrow.models.sequences.hstu_channel import ChannelLayers, HSTUChannel
from sparrow.models.sequences.layout import Tokens
from sparrow.models.sequences.tokens import TokenLayers, history_group, single_number


@dataclasses.dataclass(frozen=True)
class Candidates:
    """The features of candidates: sequences with an element for each of several, or single features of one."""

    group: Group | SequenceGroup

    @classmethod
    def of(cls, model: str, inputs: Inputs, group: str) -> Candidates:
        """Return the candidates of a group, which must hold sequences alone or single features alone."""
        if not any(name in inputs.sequences for name in inputs.groups[group]):
            return cls(inputs.group(group))
        found = inputs.sequence_group(group)
        if found.queries.names:
            raise ValueError(
                f"{model}: the group '{group}' must hold sequences alone, one element per candidate, or single "
                f"features alone; move '{found.queries.names[0]}' to the group 'contextual'"
            )
        return cls(found)

    @property
    def are_several(self) -> bool:
        return isinstance(self.group, SequenceGroup)

    @property
    def dim(self) -> int:
        """The number of values of one candidate."""
        return self.group.sequences.dim if isinstance(self.group, SequenceGroup) else self.group.dim

    def __call__(self, acts: Arrays, numbers: Arrays) -> Sequence:
        """``(batch, candidates, dim)``. Of single features, too, an example may hold several: a `Sequence` of each."""
        if isinstance(self.group, SequenceGroup):
            return self.group.sequence(acts, numbers)
        if isinstance({**numbers, **acts}[self.group.names[0]], Sequence):
            return SequenceGroup(self.group.name, self.group, Group(self.group.name, (), ())).sequence(acts, numbers)
        x = self.group.concat(acts, numbers)
        return Sequence(x[:, None], jnp.ones(x.shape[0], jnp.int32))

    def outputs(self, made: dict[str, jax.Array], found: Sequence) -> dict[str, jax.Array]:
        """Return outputs ``(batch * candidates, ...)`` by example, with their number where there may be several.

        Outputs are 0 behind the last candidate of an example.
        """
        if not self.are_several and found.values.shape[1] == 1:
            return made
        outputs, mask = {}, found.mask  # (batch, candidates)
        for task, values in made.items():
            there = mask.reshape(*mask.shape, *[1] * (values.ndim - 1))
            outputs[task] = jnp.where(there, values.reshape(*mask.shape, *values.shape[1:]), 0)
        return {**outputs, CANDIDATES: found.lengths}


class CandidateRanker(nnx.Module):
    """A ranker of the candidates of the group "candidate", for several tasks; a subclass makes the layers before.

    Attributes:
      candidates: the features of the candidates.
      stamps: their times, of the group "candidate_timestamp"; None: they are not read.
      mlp: the layers before the tasks; None: there are none.
    """

    candidate_group: ClassVar[str] = "candidate"

    def _read_candidates(
        self, inputs: Inputs, task_towers: tuple[TaskTower, ...], mlp: MLP | None, *, reads_times: bool
    ) -> None:
        model = type(self).__name__
        self.tasks = task_names(model, task_towers)
        self.candidates = Candidates.of(model, inputs, "candidate")
        self.stamps: Candidates | None = None
        if reads_times:
            if "candidate_timestamp" not in inputs.groups:
                raise ValueError(f"{model} needs the group 'candidate_timestamp', as its options read times")
            self.stamps = Candidates.of(model, inputs, "candidate_timestamp")
            if self.stamps.dim != 1:
                raise ValueError(f"{model}: the group 'candidate_timestamp' must hold one number, the time")
            if self.stamps.are_several != self.candidates.are_several:
                raise ValueError(
                    f"{model}: the groups 'candidate' and 'candidate_timestamp' must both hold sequences, or both "
                    "single features"
                )
        for layers in (mlp, *(tower.mlp for tower in task_towers)):
            if self.candidates.are_several and layers is not None and layers.use_bn:
                raise ValueError(
                    f"{model}: use_bn would count the padding of several candidates; use use_ln, or one candidate an "
                    "example"
                )

    def _make_towers(self, dim: int, task_towers: tuple[TaskTower, ...], mlp: MLP | None, *, rngs: nnx.Rngs) -> None:
        self.mlp = nnx.data(None) if mlp is None else mlp.build(dim, rngs=rngs)
        self.towers = TaskLogits(task_towers, dict.fromkeys(self.tasks, mlp.dim if mlp else dim), rngs=rngs)

    def _times(self, numbers: Arrays) -> jax.Array | None:
        """``(batch, candidates)`` float32: activations of fewer digits do not round the times."""
        return None if self.stamps is None else self.stamps({}, numbers).clean[..., 0].astype(jnp.float32)

    def _outputs(self, y: jax.Array, found: Sequence) -> dict[str, jax.Array]:
        """Map ``(batch * candidates, dim)`` to the logits of each task, as `Candidates.outputs` has them."""
        if self.mlp is not None:
            y = self.mlp(y)
        return self.candidates.outputs(self.towers(dict.fromkeys(self.tasks, y)), found)


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
        postprocessor: Literal["layernorm", "l2norm"] = "layernorm",
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
        candidates = found.rows._replace(values=self.linear(found.rows.values).astype(history.values.dtype))
        tokens = Tokens.of(history, most, times)._replace(
            candidates=candidates, most_candidates=found.values.shape[1], candidate_times=self._times(numbers)
        )
        if self.contextual is not None and self.contextual_linear is not None:
            made = self.contextual_linear(self.contextual.concat(acts, numbers))
            tokens = tokens._replace(context=made[:, None].astype(history.values.dtype))
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
