"""Wide & Deep, DeepFM and xDeepFM: a wide part of single ids or of interactions beside a deep network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow import fields
from sparrow.models.inputs import Arrays, Group, Inputs
from sparrow.models.layers.mlp import MLP
from sparrow.models.layers.towers import Logits
from sparrow.models.records import register_model


def factorization_machine(vectors: jax.Array) -> jax.Array:
    """Return the sum over all pairs of features of the element-wise product, in linear time.

    ::

        out = ((Σ_i v_i)² - Σ_i v_i²) / 2 = Σ_{i<j} v_i * v_j

    Args:
      vectors: ``(batch, features, dim)``.

    Returns:
      ``(batch, dim)``, float32: the two sums nearly cancel, and lower precision would keep little of the difference.

    >>> factorization_machine(jnp.array([[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]]))
    Array([[23., 44.]], dtype=float32)

    Reference: Rendle, Factorization Machines, ICDM 2010.
    """
    vectors = vectors.astype(jnp.float32)
    return 0.5 * (jnp.square(vectors.sum(axis=1)) - jnp.square(vectors).sum(axis=1))


class BesideDeep(nnx.Module):
    """The base of `WideAndDeep` and `DeepFM`: a linear model and other interactions beside a deep network."""

    wide_groups: ClassVar[tuple[str, ...]] = ("wide",)

    def _make(
        self, inputs: Inputs, deep: MLP, final: MLP | None, num_classes: int, width: int, *, rngs: nnx.Rngs
    ) -> None:
        """Make the layers; ``width`` is that of the linear model and the interactions together."""
        if num_classes > 1 and final is None:
            # One number added to the logits of all classes is nothing to a softmax.
            given = f"{type(self).__name__} with num_classes={num_classes}"
            raise ValueError(f"{given} needs final, or its wide part would have no effect")
        self.wide: Group = inputs.embedded("wide")
        self.group: Group = inputs.group("deep")
        self.deep = deep.build(self.group.dim, rngs=rngs)
        self.has_final = final is not None
        self.logits = Logits(deep.dim + (width if final else 0), final, num_classes, rngs=rngs)

    def _outputs(self, acts: Arrays, numbers: Arrays, *interactions: jax.Array) -> dict[str, jax.Array]:
        # Float32: many small terms, and one of the terms of the logit itself.
        wide = self.wide.concat(acts, {}).astype(jnp.float32).sum(axis=1, keepdims=True)
        deep = self.deep(self.group.concat(acts, numbers))
        if self.has_final:
            return {"logits": self.logits(*(part.astype(deep.dtype) for part in (wide, *interactions)), deep)}
        beside = sum((part.sum(axis=1) for part in (wide, *interactions)), start=jnp.zeros(()))
        return {"logits": beside + self.logits(deep)}


@register_model("wide_and_deep", is_per_example=True)
class WideAndDeep(BesideDeep):
    """A linear model over single ids, and a network over their embeddings.

    ::

        wide   = Σ of all activations of the group "wide"
        deep   = deep MLP(features of the group "deep", side by side)
        logits = linear(final MLP([wide, deep]))        with final
        logits = wide + linear(deep)                    without

    The group "wide" wants tables of its own, usually of dim 1: the weights of the linear model.

    >>> inputs = Inputs(acts={"item": 8, "item_wide": 1}, numbers={"age": 1},
    ...                 groups={"wide": ["item_wide"], "deep": ["item", "age"]})
    >>> model = WideAndDeep(inputs, deep=MLP((16,)), rngs=nnx.Rngs(0))
    >>> acts, numbers = {"item": jnp.ones((4, 8)), "item_wide": jnp.ones((4, 1))}, {"age": jnp.ones((4, 1))}
    >>> model(acts, numbers)["logits"].shape
    (4,)

    Reference: Cheng et al., 2016, arXiv 1606.07792.
    """

    def __init__(
        self, inputs: Inputs, *, deep: MLP, final: MLP | None = None, num_classes: int = 1, rngs: nnx.Rngs
    ) -> None:
        inputs.check("WideAndDeep", required=("wide", "deep"))
        self._make(inputs, deep, final, num_classes, 1, rngs=rngs)

    def __call__(self, acts: Arrays, numbers: Arrays) -> dict[str, jax.Array]:
        return self._outputs(acts, numbers)


@register_model("deepfm", is_per_example=True)
class DeepFM(BesideDeep):
    """A linear model over single ids, a factorization machine and a network over their embeddings.

    ::

        wide   = Σ of all activations of the group "wide"
        fm     = ((Σ_i v_i)² - Σ_i v_i²) / 2            over the vectors of the group "fm"
        deep   = deep MLP(features of the group "deep", side by side)
        logits = linear(final MLP([wide, fm, deep]))    with final
        logits = wide + Σ fm + linear(deep)             without

    The group "wide" wants tables of its own, usually of dim 1: the weights of the linear model. Without a group "fm"
    the factorization machine is over the embeddings of the group "deep", which then have one dim; plain numbers of that
    group reach the network alone.

    >>> inputs = Inputs(acts={"user": 8, "item": 8, "item_wide": 1}, numbers={"age": 1},
    ...                 groups={"wide": ["item_wide"], "fm": ["user", "item"], "deep": ["user", "item", "age"]})
    >>> model = DeepFM(inputs, deep=MLP((16,)), final=MLP((8,)), rngs=nnx.Rngs(0))
    >>> acts = {"user": jnp.ones((4, 8)), "item": jnp.ones((4, 8)), "item_wide": jnp.ones((4, 1))}
    >>> model(acts, {"age": jnp.ones((4, 1))})["logits"].shape
    (4,)

    Reference: Guo et al., 2017, arXiv 1703.04247.
    """

    def __init__(
        self, inputs: Inputs, *, deep: MLP, final: MLP | None = None, num_classes: int = 1, rngs: nnx.Rngs
    ) -> None:
        inputs.check("DeepFM", required=("wide", "deep"), optional=("fm",))
        has_fm = "fm" in inputs.groups
        self.fm: Group = inputs.vectors("fm") if has_fm else inputs.vectors("deep", beside_numbers=True)
        self._make(inputs, deep, final, num_classes, 1 + self.fm.dims[0], rngs=rngs)

    def __call__(self, acts: Arrays, numbers: Arrays) -> dict[str, jax.Array]:
        return self._outputs(acts, numbers, factorization_machine(self.fm.stack(acts)))


class CIN(nnx.Module):
    """Compressed interaction network: products of vectors, element by element, compressed at each order.

    ::

        x^k_h = Σ_{i,j} w^k_{hij} (x^{k-1}_i * x^0_j) + b^k_h           vectors of one dim, h of cin_layer_size[k]
        out   = [Σ_d x^k_h[d]  for all k and h]

    >>> CIN(3, (4, 2), rngs=nnx.Rngs(0))(jnp.ones((5, 3, 8))).shape
    (5, 6)

    Reference: Lian et al., 2018, arXiv 1803.05170, section 3.
    """

    def __init__(self, features: int, layer_sizes: Sequence[int], *, rngs: nnx.Rngs) -> None:
        if not layer_sizes:
            raise ValueError("cin_layer_size must be a list of at least one size, got none")
        for size in layer_sizes:
            fields.integer("cin_layer_size", size)
        before = (features, *layer_sizes[:-1])
        self.layers = nnx.List(
            [nnx.Linear(rows * features, size, rngs=rngs) for rows, size in zip(before, layer_sizes, strict=True)]
        )
        self.dim = sum(layer_sizes)

    def __call__(self, vectors: jax.Array) -> jax.Array:
        first = jnp.swapaxes(vectors, 1, 2)  # (batch, dim, features): the features are contracted, the dims are kept
        x, parts = first, []
        for layer in self.layers:
            products = x[..., :, None] * first[..., None, :]
            x = layer(products.reshape(*products.shape[:2], -1))
            parts.append(x.astype(jnp.float32).sum(axis=1).astype(x.dtype))
        return jnp.concatenate(parts, axis=1)


@register_model("xdeepfm", is_per_example=True)
class XDeepFM(nnx.Module):
    """Explicit interactions of vectors of bounded order, and a network over the embeddings.

    ::

        cin    = CIN(vectors of the group "wide")                   see `CIN`
        deep   = deep MLP(features of the group "deep", side by side)
        logits = linear(final MLP([cin, deep]))

    The group "wide" has tables of its own, whose dim is the option wide_dim of a config.

    >>> inputs = Inputs(acts={"user": 8, "user_wide": 4, "item_wide": 4},
    ...                 groups={"wide": ["user_wide", "item_wide"], "deep": ["user"]})
    >>> model = XDeepFM(inputs, cin_layer_size=(3, 2), deep=MLP((16,)), final=MLP((8,)), rngs=nnx.Rngs(0))
    >>> acts = {"user": jnp.ones((4, 8)), "user_wide": jnp.ones((4, 4)), "item_wide": jnp.ones((4, 4))}
    >>> model(acts, {})["logits"].shape
    (4,)

    Reference: Lian et al., 2018, arXiv 1803.05170.

    Attributes:
      cin_layer_size: the number of vectors that each layer of the CIN keeps.
    """

    wide_groups: ClassVar[tuple[str, ...]] = ("wide",)

    def __init__(
        self,
        inputs: Inputs,
        *,
        cin_layer_size: tuple[int, ...],
        deep: MLP,
        final: MLP,
        num_classes: int = 1,
        rngs: nnx.Rngs,
    ) -> None:
        inputs.check("XDeepFM", required=("wide", "deep"))
        self.wide: Group = inputs.vectors("wide")
        self.group: Group = inputs.group("deep")
        self.cin = CIN(len(self.wide.names), cin_layer_size, rngs=rngs)
        self.deep = deep.build(self.group.dim, rngs=rngs)
        self.logits = Logits(self.cin.dim + deep.dim, final, num_classes, rngs=rngs)

    def __call__(self, acts: Arrays, numbers: Arrays) -> dict[str, jax.Array]:
        deep = self.deep(self.group.concat(acts, numbers))
        return {"logits": self.logits(self.cin(self.wide.stack(acts)), deep)}
