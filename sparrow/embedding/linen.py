"""The Embedder as a Flax Linen layer."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import jax
from flax import linen as nn

from sparrow.embedding.embedder import Embedder
from sparrow.embedding.packing import PackedBatch
from sparrow.embedding.specs import FeatureSpec

_embedder = functools.lru_cache(maxsize=None)(Embedder)  # a Linen module is made anew at every call

COLLECTION = "embeddings"
"""The variable collection that holds tables, slots and step, apart from "params"."""


class Embed(nn.Module):
    """Tables inside a Linen model, in the collection ``"embeddings"``. Gradients are taken at the activations.

    >>> import sparrow as sp
    >>> table = sp.TableSpec(name="items", vocabulary_size=10, embedding_dim=4, optimizer=sp.rules.SGD(0.1))
    >>> embed = Embed((sp.FeatureSpec(name="item", table_spec=table),))
    >>> batch = embed.embedder.pack({"item": [1, 2]})
    >>> variables = embed.init(jax.random.key(0), batch)
    >>> acts = embed.apply(variables, batch)
    >>> _, variables = embed.apply(variables, batch, acts, method="update", mutable=["embeddings"])
    >>> int(variables["embeddings"]["state"].step)
    1
    """

    features: tuple[FeatureSpec, ...]
    backend: str = "auto"

    @property
    def embedder(self) -> Embedder:
        """The Embedder behind the layer, to pack batches and view tables."""
        return _embedder(self.features, self.backend)

    def setup(self) -> None:
        """Creates the tables."""
        embedder = self.embedder
        self.state = self.variable(COLLECTION, "state", lambda: embedder.init(self.make_rng("params")))

    def __call__(self, batch: PackedBatch) -> dict[str, jax.Array]:
        """Activations by feature."""
        return self.embedder.lookup(self.state.value, batch)

    def update(self, batch: PackedBatch, act_grads: Mapping[str, Any]) -> None:
        """One optimizer step of the tables; apply it with ``method="update", mutable=["embeddings"]``."""
        self.state.value = self.embedder.update(self.state.value, batch, act_grads)
