"""HSTU as a ranker with networks of its own for tokens, one or several histories, and several tasks."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow.models.inputs import Arrays, Inputs
from sparrow.models.layers.candidates import CandidateRanker
from sparrow.models.layers.mlp import MLP
from sparrow.models.layers.towers import TaskTower
from sparrow.models.records import register_model
from sparrow.models.sequences.hstu_channel import ChannelLayers, HSTUChannel
from sparrow.models.sequences.tokens import TokenLayers


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
