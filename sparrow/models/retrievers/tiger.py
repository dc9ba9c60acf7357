"""TIGER: the codes of the next item, one after the other, from the codes of the items before it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow.models.inputs import Arrays, Group, Inputs
from sparrow.models.layers.mlp import MLP
from sparrow.models.records import register_model
from sparrow.models.retrievers.kmeans import checked_codebook
from sparrow.models.retrievers.sasrec import SelfAttention
from sparrow.models.sequences.tokens import history_group


@register_model("tiger", is_per_example=True)
class Tiger(nnx.Module):
    """Generative retrieval: a model of semantic ids, whose beam search gives items.

    ::

        x      = self-attention over the history, as in `SASRec`; an element is the codes of an item, side by side
        query  = norm(x) at the last element                                           zeros without a history
        code_l = linear(MLP([query, e(code 1), ..., e(code l - 1)]))                   logits over the codes of layer l

    The group ``history_input`` holds a sequence for each layer of codes; the group ``codes_input`` the codes of the
    item that came next, all but the last, in order: features that share the tables of the sequences. The tasks are
    ``code_1``, ``code_2``, ..., each with the loss ``softmax_cross_entropy`` and its code as the label.
    `sparrow.runs.Run.recommend` searches the codes that exist by beam.

    >>> from sparrow.models.inputs import Sequence
    >>> inputs = Inputs(acts={"code_1": 4}, sequences={"seen_1": 4, "seen_2": 4},
    ...                 groups={"history": ["seen_1", "seen_2"], "codes": ["code_1"]})
    >>> model = Tiger(inputs, codebook=(16, 8), max_length=5, rngs=nnx.Rngs(0))
    >>> seen = Sequence(jnp.ones((2, 5, 4)), jnp.array([5, 0]))
    >>> made = model({"code_1": jnp.ones((2, 4)), "seen_1": seen, "seen_2": seen}, {})
    >>> {name: array.shape for name, array in made.items()}
    {'code_1': (2, 16), 'code_2': (2, 8), 'query': (2, 8)}

    Reference: Rajput et al., Recommender Systems with Generative Retrieval, 2023, arXiv 2305.05065, which has a
    decoder of attention in the place of the layers over the query and the codes before.

    Attributes:
      codebook: the number of codes of each layer.
      max_length: the number of positions, at least the max_length of the sequences.
      codes_input: the group of the next item's codes.
      dim: the length of the states; None: that of an element.
      decoder: the layers of each code; None: one of the width of the states.
    """

    def __init__(
        self,
        inputs: Inputs,
        *,
        codebook: tuple[int, ...],
        max_length: int,
        history_input: str = "history",
        codes_input: str = "codes",
        dim: int | None = None,
        num_layers: int = 2,
        num_heads: int = 1,
        dropout_ratio: float = 0.2,
        decoder: MLP | None = None,
        rngs: nnx.Rngs,
    ) -> None:
        codebook = checked_codebook("Tiger", codebook)
        if len(codebook) < 2:
            raise ValueError(f"Tiger.codebook must have two layers or more, got {list(codebook)}")
        inputs.check("Tiger", required=(history_input, codes_input))
        self.group = history_group("Tiger", inputs, history_input)
        self.codes: Group = inputs.embedded(codes_input)
        if len(self.codes.names) != len(codebook) - 1:
            raise ValueError(
                f"Tiger: the group '{codes_input}' must hold the {len(codebook) - 1} first codes of the next item, of "
                f"{len(codebook)} layers; got {len(self.codes.names)} features"
            )
        self.attention = SelfAttention(
            "Tiger", self.group.sequences.dim, max_length, dim, num_layers, num_heads, dropout_ratio, rngs=rngs
        )
        width = self.attention.dim
        layers = decoder or MLP((width,))
        widths = [width + sum(self.codes.dims[:layer]) for layer in range(len(codebook))]
        self.decoders = nnx.List([layers.build(each, rngs=rngs) for each in widths])
        self.heads = nnx.List([nnx.Linear(layers.dim, size, rngs=rngs) for size in codebook])

    def __call__(self, acts: Arrays, numbers: Arrays) -> dict[str, jax.Array]:
        """``{"code_1": (batch, codes), ..., "query": (batch, dim)}``, float32."""
        query = self._state(acts, numbers)
        known = [acts[name] for name in self.codes.names]
        made = {f"code_{layer + 1}": self.logits(query, known[:layer]) for layer in range(len(self.heads))}
        return {**made, "query": query.astype(jnp.float32)}

    def query(self, acts: Arrays, numbers: Arrays) -> jax.Array:
        """Return the states of users, ``(batch, dim)``. float32."""
        return self._state(acts, numbers).astype(jnp.float32)

    def _state(self, acts: Arrays, numbers: Arrays) -> jax.Array:
        x, layout, _ = self.attention(self.group.sequence(acts, numbers))
        return self.attention.normalized(layout.newest(x)).astype(x.dtype)

    def logits(self, query: jax.Array, known: list[jax.Array]) -> jax.Array:
        """Return the logits of the next code, ``(batch, codes)``, from the rows of the codes before it. float32."""
        layer = len(known)
        x = jnp.concatenate([query, *(each.astype(query.dtype) for each in known)], axis=1)
        return self.heads[layer](self.decoders[layer](x)).astype(jnp.float32)
