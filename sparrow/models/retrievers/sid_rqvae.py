"""Semantic ids by RQ-VAE: an encoder, residual codebooks and a decoder, trained together."""

from __future__ import annotations

import math
from typing import Any, Final, Literal

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow import fields
from sparrow.models.functional import extra_loss
from sparrow.models.inputs import Arrays, Group, Inputs
from sparrow.models.layers.mlp import MLP
from sparrow.models.layers.norms import unit
from sparrow.models.records import register_model
from sparrow.models.retrievers.kmeans import Fitted, checked_codebook, distances, residual_kmeans

Distance = Literal["l2", "l1", "cos"]

_FIRST_SCALE: Final = math.log(1 / 0.07)
_LARGEST_SCALE: Final = math.log(100)
_LOWEST: Final = -3.4e38


def sinkhorn(cost: jax.Array, iters: int, epsilon: float) -> jax.Array:
    """Return codes of rows that use all entries of a codebook about equally often.

    ``cost`` are the distances of all rows to all entries. Divided by their standard deviation, less their minimum, they
    become ``exp(-epsilon * cost)``, whose columns and rows are normalized in turn; a row's code is its largest entry.
    """
    cost = (cost - cost.mean()) / (cost.std() + 1e-12)
    rows, entries = cost.shape
    q = jnp.exp(-epsilon * (cost - cost.min()))
    q = q / (q.sum() + 1e-8)
    for _ in range(iters):
        q = q / (q.sum(axis=0, keepdims=True) + 1e-8) / entries
        q = q / (q.sum(axis=1, keepdims=True) + 1e-8) / rows
    return q.argmax(axis=1)


@register_model("sid_rqvae")
class SidRqvae(nnx.Module):
    """Residual quantization inside of an autoencoder: codes of vectors that a decoder can read.

    ::

        z      = linear(encoder MLP(x));  r_1 = z           divided by its norm with normalize_residuals, in each layer
        code_l = argmin_k |r_l - e_lk|²                     by `sinkhorn` in training; the largest cosine with "cosine"
        q_l    = e_1,code_1 + ... + e_l,code_l;  r_l+1 = r_l - e_l,code_l
        reconstruction  = linear(decoder MLP(z + stop_gradient(q_L - z)))
        loss/commitment = mean over layers of w1 d(z, stop_gradient(q_l)) + w2 d(stop_gradient(z), q_l)

    The task has one loss, ``reconstruction``, whose prediction are the codes. With ``pair`` each row has a second
    vector: of rows whose ``pair_flag`` is above 0.5 the two are a pair, which is not reconstructed but drawn together::

        loss/contrastive = mean of three cross entropies among pairs, in both directions, each with its learned scale:
          of the reconstructions a and b; of each and the other's x; of each and its own x

    >>> inputs = Inputs(acts={}, numbers={"vector": 8}, groups={"item": ["vector"]})
    >>> model = SidRqvae(inputs, codebook=(4, 4), embed_dim=2, hidden_dims=(8,), rngs=nnx.Rngs(0))
    >>> {name: array.shape for name, array in model({}, {"vector": jnp.ones((3, 8))}).items()}
    {'codes': (3, 2), 'reconstruction': (3, 8), 'target': (3, 8), 'loss/commitment': ()}

    Reference: Rajput et al., TIGER, 2023, arXiv 2305.05065; Lee et al., 2022, arXiv 2203.01941; the rotation trick:
    Fifty et al., 2024, arXiv 2410.06424.

    Attributes:
      codebook: the number of entries of each layer.
      embed_dim: the length of an entry.
      hidden_dims: the layers of the encoder, in reverse those of the decoder; empty: one of half the input's width.
      forward_mode: "ste", straight through; or "gumbel_softmax", which draws codes in training.
      normalize_residuals: whether the remainder is divided by its norm before each layer.
      distance_type: the distance to the entries.
      rotation_trick: whether gradients are turned from the quantized vector to the encoder's; with "ste".
      kmeans_init: whether the first entries are centroids of the first batch, which has as many rows at least.
      sinkhorn_iters: the turns of `sinkhorn`, the codes of training; 0: the nearest entries. Not with "gumbel_softmax".
      sinkhorn_epsilon: its sharpness.
      latent_weight: w1 and w2 of the commitment loss; None: without that loss.
      commitment_type: its distance d: mean squares, mean absolute differences, or 1 - cosine.
      pair: the group of the second vector, which the same encoder reads; None: rows are no pairs.
      pair_flag: the group of the flag, one number.
    """

    def __init__(
        self,
        inputs: Inputs,
        *,
        codebook: tuple[int, ...],
        embed_dim: int = 64,
        hidden_dims: tuple[int, ...] = (),
        forward_mode: Literal["ste", "gumbel_softmax"] = "ste",
        normalize_residuals: bool = False,
        distance_type: Literal["l2", "cosine"] = "l2",
        rotation_trick: bool = False,
        kmeans_init: bool = False,
        sinkhorn_iters: int = 5,
        sinkhorn_epsilon: float = 10.0,
        latent_weight: tuple[float, float] | None = (1.0, 0.5),
        commitment_type: Distance = "l2",
        pair: str | None = None,
        pair_flag: str | None = None,
        rngs: nnx.Rngs,
    ) -> None:
        self.codebook = checked_codebook("SidRqvae", codebook)
        fields.integer("SidRqvae.embed_dim", embed_dim)
        if (pair is None) != (pair_flag is None):
            raise ValueError("SidRqvae.pair and SidRqvae.pair_flag are groups that go together; give both or neither")
        others = () if pair is None or pair_flag is None else (pair, pair_flag)
        own = [name for name in inputs.groups if name not in others]
        if len(own) != 1:
            raise ValueError(f"SidRqvae reads one group of features besides pair and pair_flag, got {len(own)}: {own}")
        inputs.check("SidRqvae", required=(*own, *others))
        self.group: Group = inputs.group(own[0])
        self.pair: tuple[Group, ...] = tuple(inputs.group(name) for name in others)
        if self.pair and (self.pair[0].dim, self.pair[1].dim) != (self.group.dim, 1):
            raise ValueError(
                f"SidRqvae: the group '{pair}' must have the {self.group.dim} numbers of '{own[0]}', and '{pair_flag}' "
                f"one number; got {self.pair[0].dim} and {self.pair[1].dim}"
            )
        if forward_mode == "gumbel_softmax" and (sinkhorn_iters or rotation_trick):
            raise ValueError(
                "SidRqvae.forward_mode 'gumbel_softmax' goes alone: set sinkhorn_iters to 0, and no rotation_trick"
            )
        fields.integer("SidRqvae.sinkhorn_iters", sinkhorn_iters, at_least=0)
        fields.number("SidRqvae.sinkhorn_epsilon", sinkhorn_epsilon, above=0)
        hidden = tuple(hidden_dims) or (max(self.group.dim // 2, 1),)
        self.encoder = MLP(hidden).build(self.group.dim, rngs=rngs)
        self.encoded = nnx.Linear(hidden[-1], embed_dim, rngs=rngs)
        self.decoder = MLP(hidden[::-1]).build(embed_dim, rngs=rngs)
        self.decoded = nnx.Linear(hidden[0], self.group.dim, rngs=rngs)
        bound = math.sqrt(6 / embed_dim)
        sizes = [(size, embed_dim) for size in codebook]
        draw = rngs.params
        self.entries = nnx.List([nnx.Param(jax.random.uniform(draw(), s, minval=-bound, maxval=bound)) for s in sizes])
        # Parameters change by gradients alone: k-means of the first batch goes into these, which are added to them.
        self.starts = nnx.List([Fitted(jnp.zeros(size)) for size in sizes] if kmeans_init else [])
        self.is_started = Fitted(jnp.array(False))
        self.scales = nnx.List([nnx.Param(jnp.array(_FIRST_SCALE)) for _ in range(3 if self.pair else 0)])
        self.rngs: Any = rngs.dropout.fork() if forward_mode == "gumbel_softmax" else nnx.data(None)
        self.forward_mode, self.normalize, self.distance = forward_mode, normalize_residuals, distance_type
        self.rotation_trick, self.sinkhorn = rotation_trick, (sinkhorn_iters, sinkhorn_epsilon)
        self.latent_weight, self.commitment_type = latent_weight, commitment_type
        self.deterministic = False  # nnx.Module.eval sets it

    def __call__(self, acts: Arrays, numbers: Arrays) -> dict[str, jax.Array]:
        """``{"codes": (batch, layers), "reconstruction": (batch, dim), "target": (batch, dim)}``, and losses."""
        x = self.group.concat(acts, numbers).astype(jnp.float32)
        z, codes, latents, made = self._pass(x)
        outputs = {"codes": codes, "reconstruction": made, "target": x}
        if self.deterministic:
            return outputs
        if self.pair:
            other = self.pair[0].concat(acts, numbers).astype(jnp.float32)
            is_pair = self.pair[1].concat(acts, numbers)[:, 0] > 0.5
            other_z, _, other_latents, other_made = self._pass(other)
            z, latents = jnp.concatenate([z, other_z]), jnp.concatenate([latents, other_latents])
            single = 1 - is_pair.astype(jnp.float32)
            outputs["rows"] = single * len(x) / jnp.maximum(single.sum(), 1)
            outputs[extra_loss("contrastive")] = self._contrastive(made, other_made, x, other, is_pair)
        if self.latent_weight is not None:
            near, far = self.latent_weight
            still = jax.lax.stop_gradient
            outputs[extra_loss("commitment")] = near * self._apart(z, still(latents)) + far * self._apart(
                still(z), latents
            )
        return outputs

    def _pass(self, x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        """Return z, the codes, the sums of entries after each layer ``(batch, layers, dim)``, the reconstruction."""
        z = self.encoded(self.encoder(x)).astype(jnp.float32)
        tables = self._tables(z)
        draws = self.forward_mode == "gumbel_softmax" and not self.deterministic
        residual = z if draws else jax.lax.stop_gradient(z)
        codes, sums, total = [], [], jnp.zeros_like(z)
        for table in tables:
            residual = unit(residual) if self.normalize else residual
            chosen = self._chosen(residual, table)  # one-hot: its gradient is summed in one order on every device
            entry = jnp.matmul(chosen, table, precision="highest")
            codes.append(chosen.argmax(axis=1).astype(jnp.int32))
            total, residual = total + entry, residual - jax.lax.stop_gradient(entry)
            sums.append(total)
        if not self.deterministic and not draws:
            total = rotated(z, total) if self.rotation_trick else z + jax.lax.stop_gradient(total - z)
        made = self.decoded(self.decoder(total)).astype(jnp.float32)
        return z, jnp.stack(codes, axis=1), jnp.stack(sums, axis=1), made

    def _tables(self, z: jax.Array) -> list[jax.Array]:
        """Return the entries of each layer; the first batch of training sets where they start."""
        tables = [entries[...].astype(jnp.float32) for entries in self.entries]
        if not self.starts:
            return tables
        if not self.deterministic:
            if len(z) < max(self.codebook):
                raise ValueError(
                    f"SidRqvae.kmeans_init needs batches of at least {max(self.codebook)} rows, the largest codebook; "
                    f"got {len(z)}: enlarge train.batch_size, set data.drop_remainder, or leave it out"
                )
            held, rows = [start[...] for start in self.starts], jax.lax.stop_gradient(z)

            def first() -> list[jax.Array]:
                found = residual_kmeans(rows, jnp.ones(len(rows)), self.codebook, iterations=10, seed=123)
                return [centroids - table for centroids, table in zip(found, tables, strict=True)]

            starts = jax.lax.cond(self.is_started[...], lambda: held, first)
            for start, value in zip(self.starts, starts, strict=True):
                start[...] = jax.lax.stop_gradient(value)
            self.is_started[...] = jnp.array(True)
        return [table + start[...] for table, start in zip(tables, self.starts, strict=True)]

    def _chosen(self, residual: jax.Array, table: jax.Array) -> jax.Array:
        """Return one-hot codes, ``(batch, entries)``; drawn ones have the gradient of their softmax."""
        if self.distance == "cosine":
            far = -jnp.matmul(unit(residual), unit(table).T, precision="highest")
        else:
            far = jnp.maximum(distances(residual, table), 0)
        if self.forward_mode == "gumbel_softmax" and not self.deterministic:
            soft = jax.nn.softmax(-far + jax.random.gumbel(self.rngs(), far.shape))
            hard = jax.nn.one_hot(soft.argmax(axis=1), far.shape[1])
            return soft + jax.lax.stop_gradient(hard - soft)
        far = jax.lax.stop_gradient(far)
        codes = far.argmin(axis=1) if self.deterministic or not self.sinkhorn[0] else sinkhorn(far, *self.sinkhorn)
        return jax.nn.one_hot(codes, far.shape[1])

    def _apart(self, z: jax.Array, latents: jax.Array) -> jax.Array:
        """Return the mean distance of z to the sums of each layer."""
        if self.commitment_type == "cos":
            return 1 - (unit(z)[:, None] * unit(latents)).sum(axis=-1).mean()
        difference = z[:, None] - latents
        return jnp.abs(difference).mean() if self.commitment_type == "l1" else jnp.square(difference).mean()

    def _contrastive(
        self, made_a: jax.Array, made_b: jax.Array, a: jax.Array, b: jax.Array, is_pair: jax.Array
    ) -> jax.Array:
        made_a, made_b = unit(made_a), unit(made_b)
        scales = [jnp.exp(jnp.minimum(each[...].astype(jnp.float32), _LARGEST_SCALE)) for each in self.scales]
        pairs, total = jnp.maximum(is_pair.sum(), 1), jnp.zeros(())
        for scale, of_a, of_b in zip(scales, (made_b, b, a), (made_a, a, b), strict=True):
            for own, others in ((made_a, of_a), (made_b, of_b)):
                logits = scale * jnp.matmul(own, others.T, precision="highest")
                logits = jnp.where(is_pair[None], logits, _LOWEST)
                values = jax.nn.logsumexp(logits, axis=1) - jnp.diagonal(logits)
                total = total + jnp.where(is_pair, values, 0).sum() / (2 * pairs)
        return total / 3


def rotated(x: jax.Array, quantized: jax.Array) -> jax.Array:
    """Return ``quantized`` with the gradient of ``x`` turned and scaled as ``x`` is to become it (the rotation trick).

    >>> rotated(jnp.array([[2.0, 0.0]]), jnp.array([[0.0, 3.0]])).round(5).tolist()
    [[0.0, 3.0]]
    """
    q, held = jax.lax.stop_gradient(quantized), jax.lax.stop_gradient(x)
    long, short = (jnp.linalg.norm(each, axis=1, keepdims=True) for each in (q, held))
    to, of = q / (long + 1e-8), held / (short + 1e-8)
    between = unit(to + of)
    turned = x - 2 * (x * between).sum(axis=1, keepdims=True) * between + 2 * (x * of).sum(axis=1, keepdims=True) * to
    made: jax.Array = long / (short + 1e-8) * turned
    return made
