"""Embeddings that a model learns as functions of numbers, in front of any model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
from flax import nnx

from sparrow.data import AutoDis, MLPEmbedding, NumberEmbedding
from sparrow.models.inputs import Arrays, Inputs, Sequence

_NORMAL = nnx.initializers.normal(1.0)


class LinearNumbers(nnx.Module):
    """``x @ kernel``, see `sparrow.data.MLPEmbedding`.

    >>> import jax.numpy as jnp
    >>> LinearNumbers(1, 4, rngs=nnx.Rngs(0))(jnp.ones((2, 1))).shape
    (2, 4)
    """

    def __init__(self, dim: int, embedding_dim: int, *, rngs: nnx.Rngs) -> None:
        self.kernel = nnx.Param(_NORMAL(rngs.params(), (dim, embedding_dim)))

    def __call__(self, x: jax.Array) -> jax.Array:
        """Map ``(..., dim)`` to ``(..., embedding_dim)``, in the dtype of the parameters."""
        kernel = self.kernel[...]
        return (x @ kernel.astype(x.dtype)).astype(kernel.dtype)


class AutoDisNumbers(nnx.Module):
    """A soft choice among learned vectors, see `sparrow.data.AutoDis` for the equations.

    >>> import jax.numpy as jnp
    >>> AutoDisNumbers(AutoDis(num_channels=3), 4, rngs=nnx.Rngs(0))(jnp.ones((2, 1))).shape
    (2, 4)
    """

    def __init__(self, record: AutoDis, embedding_dim: int, *, rngs: nnx.Rngs) -> None:
        channels = record.num_channels
        self.temperature, self.keep = record.temperature, record.keep_prob
        self.first = nnx.Param(_NORMAL(rngs.params(), (1, channels)))
        self.second = nnx.Param(_NORMAL(rngs.params(), (channels, channels)))
        self.vectors = nnx.Param(_NORMAL(rngs.params(), (channels, embedding_dim)))

    def __call__(self, x: jax.Array) -> jax.Array:
        """Map ``(..., 1)`` to ``(..., embedding_dim)``, in the dtype of the parameters."""
        first, second, vectors = (weight[...] for weight in (self.first, self.second, self.vectors))
        h = jax.nn.leaky_relu(x @ first.astype(x.dtype))
        chosen = jax.nn.softmax((h @ second.astype(x.dtype) + self.keep * h) / self.temperature)
        return (chosen @ vectors.astype(x.dtype)).astype(vectors.dtype)


class NumberEmbeddings(nnx.Module):
    """A model some of whose numeric features have learned embeddings: it takes those as if they came from tables.

    >>> import jax.numpy as jnp
    >>> from sparrow.models import registry
    >>> inputs = Inputs(acts={"user": 4}, numbers={"price": 1}, groups={"all": ["user", "price"]})
    >>> record = registry.from_dict({"name": "dcn_v2", "final": {"hidden_units": [8]}})
    >>> build = lambda inputs, rngs: record.build(inputs, rngs=rngs)
    >>> model = NumberEmbeddings(build, inputs, {"price": (MLPEmbedding(), 4)}, rngs=nnx.Rngs(0))
    >>> model({"user": jnp.ones((2, 4))}, {"price": jnp.ones((2, 1))})["logits"].shape
    (2,)

    Args:
      build: makes the model, from its inputs and ``rngs``.
      inputs: all features.
      embeddings: by feature, the embedding and its dim.
    """

    def __init__(
        self,
        build: Callable[[Inputs, nnx.Rngs], nnx.Module],
        inputs: Inputs,
        embeddings: Mapping[str, tuple[NumberEmbedding, int]],
        *,
        rngs: nnx.Rngs,
    ) -> None:
        width = {**inputs.numbers, **inputs.sequences}
        self.layers = nnx.Dict(
            {name: _layer(record, width[name], dim, rngs) for name, (record, dim) in embeddings.items()}
        )
        dims = {name: dim for name, (_, dim) in embeddings.items()}
        numbers = {name: dim for name, dim in inputs.numbers.items() if name not in dims}
        sequences = {name: dims.get(name, dim) for name, dim in inputs.sequences.items()}
        acts = {**inputs.acts, **{name: dim for name, dim in dims.items() if name in inputs.numbers}}
        self.model = build(Inputs(acts, numbers, inputs.groups, sequences), rngs)

    def __call__(self, acts: Arrays, numbers: Arrays) -> dict[str, jax.Array]:
        made = {name: _embedded(layer, numbers[name]) for name, layer in self.layers.items()}
        rest = {name: array for name, array in numbers.items() if name not in made}
        outputs: dict[str, jax.Array] = self.model({**acts, **made}, rest)
        return outputs


def _layer(record: NumberEmbedding, width: int, dim: int, rngs: nnx.Rngs) -> nnx.Module:
    if isinstance(record, AutoDis):
        return AutoDisNumbers(record, dim, rngs=rngs)
    if isinstance(record, MLPEmbedding):
        return LinearNumbers(width, dim, rngs=rngs)
    raise ValueError(f"there are no layers for the embedding of numbers {record!r}; use mlp or autodis")


def _embedded(layer: Any, numbers: Any) -> Any:
    if isinstance(numbers, Sequence):
        return Sequence(layer(numbers.values), numbers.lengths)
    return layer(numbers)
