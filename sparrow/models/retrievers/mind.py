"""MIND: a user has several vectors, one for each interest in the history."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow import fields
from sparrow.kernels import masked_softmax
from sparrow.models.inputs import Arrays, Group, Inputs, Sequence
from sparrow.models.layers.mlp import MLP, Activation, identity
from sparrow.models.layers.norms import unit
from sparrow.models.layers.towers import Tower
from sparrow.models.records import register_model
from sparrow.models.retrievers.two_towers import Negatives, Similarity, TwoTowers, candidates, check_towers
from sparrow.models.sequences.layout import elements_of
from sparrow.models.sequences.tokens import history_group


@dataclasses.dataclass(frozen=True)
class Capsules:
    """Behavior-to-interest routing.

    ::

        e_l  = S x_l                                                    S: (dim, high_dim), learned
        b_lk = routing_logits_stddev * n_lk                             n: normal, the same in every call
        num_iters times, the last one with gradients, e a constant in the others:
            w_lk = softmax over k of routing_logits_scale * b_lk        over the capsules of the example
            u_k  = squash(Σ_l w_lk e_l)                                 over the elements that are there
            b_lk = b_lk + <u_k, e_l / |e_l|>
        squash(z) = (|z|² / (1 + |z|²))^squash_pow * z / |z|

    An example of length n has ``max(1, min(max_k, log2 n))`` capsules, rounded up; the others are zeros.

    Reference: Li et al., Multi-Interest Network with Dynamic Routing, 2019, arXiv 1904.08030.

    Attributes:
      high_dim: the length of an interest.
      max_seq_len: the largest number of elements, from the first on.
      max_k: the largest number of interests.
      num_iters: the number of routing steps.
      routing_logits_scale: the factor of the logits in the softmax.
      routing_logits_stddev: the standard deviation of the first logits.
      squash_pow: the power of the squashing factor.
      const_caps_num: whether every example has ``max_k`` interests.
      routing_init_method: "normal", or "zeros", which leaves all interests alike.
    """

    high_dim: fields.Count
    max_seq_len: fields.Count
    max_k: fields.Count = 5
    num_iters: fields.Count = 3
    routing_logits_scale: fields.Positive = 20.0
    routing_logits_stddev: fields.Positive = 1.0
    squash_pow: fields.Positive = 1.0
    const_caps_num: bool = False
    routing_init_method: Literal["normal", "zeros"] = "normal"

    def __post_init__(self) -> None:
        fields.check(self)

    def build(self, dim: int, *, rngs: nnx.Rngs) -> CapsuleLayer:
        return CapsuleLayer(self, dim, rngs=rngs)

    def first_logits(self) -> jax.Array:
        """Return the logits before the first step, ``(max_seq_len, max_k)``."""
        shape = (self.max_seq_len, self.max_k)
        if self.routing_init_method == "zeros":
            return jnp.zeros(shape)
        return self.routing_logits_stddev * jax.random.normal(jax.random.key(0), shape)


class CapsuleLayer(nnx.Module):
    """The layer that `Capsules` describes.

    >>> capsules = Capsules(high_dim=4, max_seq_len=5, max_k=2).build(3, rngs=nnx.Rngs(0))
    >>> interests, there = capsules(Sequence(jnp.ones((2, 5, 3)), jnp.array([5, 0])))
    >>> interests.shape, there.tolist()
    ((2, 2, 4), [[True, True], [True, False]])
    """

    def __init__(self, capsules: Capsules, dim: int, *, rngs: nnx.Rngs) -> None:
        self.capsules = capsules
        self.bilinear = nnx.Linear(dim, capsules.high_dim, use_bias=False, rngs=rngs)

    def __call__(self, sequence: Sequence, layers: Activation = identity) -> tuple[jax.Array, jax.Array]:
        """Return the interests, ``(batch, max_k, high_dim)``, and which of them are there, ``(batch, max_k)``.

        ``layers`` are applied to the elements before.
        """
        capsules = self.capsules
        x, layout = elements_of(sequence, capsules.max_seq_len)
        low = self.bilinear(layers(x))  # (tokens, high_dim)
        constant = jax.lax.stop_gradient(low)
        direction = unit(constant.astype(jnp.float32)).astype(low.dtype)
        count = jnp.full(layout.history.shape, float(capsules.max_k))
        if not capsules.const_caps_num:
            length = jnp.maximum(layout.history, 1).astype(jnp.float32)
            count = jnp.clip(jnp.log2(length), 1, capsules.max_k)
        there = jnp.arange(capsules.max_k) < count[:, None]
        shape = (-1, capsules.max_k, capsules.high_dim)
        (place,) = layout.of_tokens(x)
        logits = capsules.first_logits().at[place].get(mode="clip")  # (tokens, max_k)
        part = layout.spread(x, there.astype(jnp.float32)) > 0
        for step in range(1, capsules.num_iters + 1):
            weights = masked_softmax(capsules.routing_logits_scale * logits, part)
            last = step == capsules.num_iters
            each = weights.astype(low.dtype)[:, :, None] * (low if last else constant)[:, None]
            total = layout.summed(each.reshape(x.shape[0], -1)).reshape(shape)
            interests = squash(total.astype(jnp.float32), capsules.squash_pow).astype(low.dtype)
            if not last:
                own = layout.spread(x, interests.reshape(interests.shape[0], -1)).reshape(shape)
                logits = logits + jnp.einsum("tkh,th->tk", own, direction).astype(jnp.float32)
        return jnp.where(there[..., None], interests, 0), there


def squash(z: jax.Array, power: float) -> jax.Array:
    """Return ``(|z|² / (1 + |z|²))^power * z / |z|``; zeros stay zeros.

    >>> squash(jnp.array([[3.0, 4.0], [0.0, 0.0]]), 1.0)
    Array([[0.576..., 0.769...],
           [0.       , 0.       ]], dtype=float32)
    """
    squares = jnp.square(z).sum(axis=-1, keepdims=True)
    safe = jnp.where(squares > 0, squares, 1.0)
    return jnp.where(squares > 0, (safe / (1 + safe)) ** power * unit(z), 0.0)


@dataclasses.dataclass(frozen=True)
class MINDUserTower:
    """The layers of `MIND` over the user.

    Attributes:
      input: the group of the user's single features.
      history_input: the group of the history.
      user_mlp: the layers over the user's features; the last one is linear.
      capsule_config: the routing from the history to interests.
      concat_mlp: the layers over the user and one interest.
      hist_seq_mlp: layers over each element of the history, without bias, the last one linear; None for none.
    """

    input: str
    history_input: str
    user_mlp: MLP
    capsule_config: Capsules
    concat_mlp: MLP
    hist_seq_mlp: MLP | None = None


@register_model("mind")
class MIND(TwoTowers):
    """Multi-interest network with dynamic routing: the nearest items of each interest are the candidates.

    ::

        user        = user MLP(its group)
        capsule_k   = routing of history MLP(history)                    see `Capsules`
        interest_k  = linear(concat MLP([user, capsule_k]))               divided by its norm with similarity "cosine"
        item        = linear(item tower(its group))                      the same
        query       = Σ_k softmax(simi_pow * <interest_k, item>)_k * interest_k          item: the one chosen

    The outputs are those of `DSSM`, and "interests", ``(batch, max_k, dim)``, which an online service looks up: the
    query is of training and evaluation, where the item is known. Interests that a short history does not have are
    zeros. Without output_dim the linear layers are left out, and the widths must agree.

    >>> inputs = Inputs(acts={"user": 8, "item": 8}, sequences={"clicks": 4},
    ...                 groups={"user": ["user"], "history": ["clicks"], "item": ["item"]})
    >>> tower = MINDUserTower("user", "history", MLP((8,)), Capsules(high_dim=4, max_seq_len=5, max_k=2), MLP((8,)))
    >>> model = MIND(inputs, user_tower=tower, item_tower=Tower("item", MLP((8,))), output_dim=4, rngs=nnx.Rngs(0))
    >>> acts = {"user": jnp.ones((2, 8)), "item": jnp.ones((2, 8)),
    ...         "clicks": Sequence(jnp.ones((2, 5, 4)), jnp.array([5, 0]))}
    >>> {name: array.shape for name, array in model(acts, {}).items()}
    {'query': (2, 4), 'item': (2, 4), 'interests': (2, 2, 4)}

    Reference: Li et al., 2019, arXiv 1904.08030.
    """

    query_reads_item = True
    """The weights of a user's interests depend on the item."""

    def __init__(
        self,
        inputs: Inputs,
        *,
        user_tower: MINDUserTower,
        item_tower: Tower,
        output_dim: int | None = None,
        simi_pow: float = 10.0,
        similarity: Similarity = "cosine",
        negatives: Negatives = "in_batch",
        rngs: nnx.Rngs,
    ) -> None:
        check_towers("MIND", user_tower.input, item_tower.input, similarity, negatives)
        inputs.check("MIND", required=(user_tower.input, user_tower.history_input, item_tower.input))
        fields.number("MIND.simi_pow", simi_pow, at_least=0)
        self.user: Group = inputs.group(user_tower.input)
        self.history = history_group("MIND", inputs, user_tower.history_input)
        capsules, dim = user_tower.capsule_config, self.history.sequences.dim
        self.user_mlp = user_tower.user_mlp.build(self.user.dim, linear_end=True, rngs=rngs)
        layers: Activation = identity
        if user_tower.hist_seq_mlp is not None:
            mlp = dataclasses.replace(user_tower.hist_seq_mlp, bias=False)
            layers, dim = mlp.build(dim, linear_end=True, rngs=rngs), mlp.dim
        self.history_mlp = layers
        self.capsules = capsules.build(dim, rngs=rngs)
        self.concat_mlp = user_tower.concat_mlp.build(user_tower.user_mlp.dim + capsules.high_dim, rngs=rngs)
        self.simi_pow, width = simi_pow, user_tower.concat_mlp.dim
        options: Any = (output_dim, similarity, negatives)
        self._make_item_tower(inputs, item_tower, width, *options, user_bias=False, rngs=rngs)

    def __call__(self, acts: Arrays, numbers: Arrays) -> dict[str, jax.Array]:
        """``{"query": (batch, dim), "item": (items, dim), "interests": (batch, max_k, dim)}``, and "negatives"."""
        interests, there = self.interests(acts, numbers)
        items = self.item(acts, numbers)
        scores = (interests * items[: interests.shape[0], None]).sum(axis=2)
        weights = masked_softmax(self.simi_pow * scores, there)
        query = (weights[..., None] * interests).sum(axis=1)
        return {**candidates("MIND", query, items, self.negatives), "interests": interests}

    def interests(self, acts: Arrays, numbers: Arrays) -> tuple[jax.Array, jax.Array]:
        """Return the users' vectors, ``(batch, max_k, dim)``, float32, and which of them are there."""
        capsules, there = self.capsules(self.history.sequence(acts, numbers), self.history_mlp)
        user = self.user_mlp(self.user.concat(acts, numbers))
        users = jnp.broadcast_to(user[:, None], (*capsules.shape[:2], user.shape[1]))
        both = jnp.concatenate([users, capsules], axis=2)
        return jnp.where(there[..., None], self.user_output(self.concat_mlp(both)), 0), there
