"""The Embedder as a Flax NNX layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
from flax import nnx

from sparrow.embedding.embedder import Embedder, EmbeddingState
from sparrow.embedding.packing import PackedBatch
from sparrow.embedding.specs import FeatureSpec


class Tables(nnx.Variable[EmbeddingState]):
    """Holds tables, slots and step. Not an ``nnx.Param``: dense optimizers and ``nnx.grad`` pass it by."""


class Embed(nnx.Module):
    """Tables inside an NNX model. The layer looks up; the model and ``nnx.grad`` see activations only.

    One training step, with activations and dense parameters differentiated together::

        acts = model.embed(batch)
        grads, act_grads = nnx.grad(loss_fn, argnums=(0, 1))(model, acts, ...)
        optimizer.update(model, grads)
        model.embed.update(batch, act_grads)

    >>> import sparrow as sp
    >>> table = sp.TableSpec(name="items", vocabulary_size=10, embedding_dim=4, optimizer=sp.rules.SGD(0.1))
    >>> embed = Embed([sp.FeatureSpec(name="item", table_spec=table)], rngs=nnx.Rngs(0))
    >>> embed(embed.pack({"item": [1, 2]}))["item"].shape
    (2, 4)
    """

    def __init__(self, features: Sequence[FeatureSpec] | Embedder, *, rngs: nnx.Rngs, backend: str = "auto") -> None:
        """``features`` or a ready Embedder; the tables are drawn from ``rngs.params()``."""
        self.embedder = features if isinstance(features, Embedder) else Embedder(features, backend)
        self.state = Tables(self.embedder.init(rngs.params()))

    def pack(self, inputs: Mapping[str, Any], **options: Any) -> PackedBatch:
        """As `Embedder.pack`, on the host."""
        return self.embedder.pack(inputs, **options)

    def __call__(self, batch: PackedBatch) -> dict[str, jax.Array]:
        """Activations by feature."""
        return self.embedder.lookup(self.state.get_value(), batch)

    def update(self, batch: PackedBatch, act_grads: Mapping[str, jax.Array]) -> None:
        """One optimizer step of the tables, from the gradients of the activations."""
        self.state.set_value(self.embedder.update(self.state.get_value(), batch, act_grads))

    def table(self, name: str) -> jax.Array:
        """The logical table."""
        return self.embedder.table(self.state.get_value(), name)
