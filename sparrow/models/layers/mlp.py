"""`MLP`, the record of a stack of dense layers, and the layers themselves."""

from __future__ import annotations

import dataclasses

import jax
from flax import nnx

from sparrow.models.layers.activations import check_activation, make_activation
from sparrow.models.layers.norms import LayerNorm


@dataclasses.dataclass(frozen=True)
class MLP:
    """Dense layers, one after the other.

    ::

        x = dropout(activation(norm(x @ kernel + bias)))          for each of hidden_units

    >>> MLP(hidden_units=(64, 32), dropout_ratio=0.1).dropouts
    (0.1, 0.1)

    Attributes:
      hidden_units: the width of each layer.
      dropout_ratio: the share of units that a training step leaves out: one number, or one per layer.
      activation: by name, see ``sparrow.models.ACTIVATIONS``; "none" for none.
      use_bn: whether to normalize each unit over the batch. The bias is then left out: the norm has its own.
      bias: whether the layers add one.
      use_ln: whether to normalize each example over the units; not together with ``use_bn``.
    """

    hidden_units: tuple[int, ...]
    dropout_ratio: float | tuple[float, ...] = 0.0
    activation: str = "relu"
    use_bn: bool = False
    bias: bool = True
    use_ln: bool = False

    def __post_init__(self) -> None:
        units = tuple(self.hidden_units) if isinstance(self.hidden_units, list | tuple) else ()
        if not units or any(not isinstance(unit, int) or isinstance(unit, bool) or unit < 1 for unit in units):
            raise ValueError(f"MLP.hidden_units must be integers of at least 1, got {self.hidden_units!r}")
        object.__setattr__(self, "hidden_units", units)
        if isinstance(self.dropout_ratio, list):
            object.__setattr__(self, "dropout_ratio", tuple(self.dropout_ratio))
        ratios = self.dropout_ratio if isinstance(self.dropout_ratio, tuple) else (self.dropout_ratio,)
        if any(not isinstance(ratio, int | float) or not 0 <= ratio < 1 for ratio in ratios):
            raise ValueError(f"MLP.dropout_ratio must be at least 0 and below 1, got {self.dropout_ratio!r}")
        if len(self.dropouts) != len(units):
            raise ValueError(
                f"MLP.dropout_ratio must be one number or one for each of the {len(units)} layers, "
                f"got {self.dropout_ratio!r}"
            )
        check_activation(self.activation, "MLP.activation")
        if self.use_bn and self.use_ln:
            raise ValueError("MLP.use_bn and MLP.use_ln do not go together; choose one")

    @property
    def dropouts(self) -> tuple[float, ...]:
        if isinstance(self.dropout_ratio, tuple):
            return self.dropout_ratio
        return (self.dropout_ratio,) * len(self.hidden_units)

    @property
    def dim(self) -> int:
        return self.hidden_units[-1]

    def build(self, dim: int, *, linear_end: bool = False, rngs: nnx.Rngs) -> Layers:
        """Return the layers, for inputs of width ``dim``; with ``linear_end`` the last one is linear alone."""
        return Layers(self, dim, linear_end=linear_end, rngs=rngs)


class Layer(nnx.Module):
    """One layer of an `MLP`."""

    def __init__(self, mlp: MLP, index: int, dim: int, *, linear: bool = False, rngs: nnx.Rngs) -> None:
        units = mlp.hidden_units[index]
        if linear:
            mlp = dataclasses.replace(mlp, activation="none", use_bn=False, use_ln=False, dropout_ratio=0.0)
        self.linear = nnx.Linear(dim, units, use_bias=mlp.bias and not mlp.use_bn, rngs=rngs)
        self.norm: nnx.BatchNorm | LayerNorm | None = nnx.data(None)
        if mlp.use_bn:
            self.norm = nnx.BatchNorm(units, momentum=0.9, epsilon=1e-5, rngs=rngs)
        if mlp.use_ln:
            self.norm = LayerNorm(units, rngs=rngs)
        self.activation = make_activation(mlp.activation, units, rngs)
        self.dropout = nnx.Dropout(mlp.dropouts[index], rngs=rngs if mlp.dropouts[index] else None)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = self.linear(x)
        if self.norm is not None:
            x = self.norm(x).astype(x.dtype)  # statistics are float32, and would pull the rest of the model up
        x = self.activation(x)
        return self.dropout(x)


class Layers(nnx.Module):
    """The layers that an `MLP` describes.

    >>> import jax.numpy as jnp
    >>> layers = MLP((8, 4)).build(3, rngs=nnx.Rngs(0))
    >>> layers(jnp.ones((2, 3))).shape
    (2, 4)
    """

    def __init__(self, mlp: MLP, dim: int, *, linear_end: bool = False, rngs: nnx.Rngs) -> None:
        widths, end = (dim, *mlp.hidden_units[:-1]), len(mlp.hidden_units) - 1 if linear_end else None
        self.layers = nnx.List(
            [Layer(mlp, index, width, linear=index == end, rngs=rngs) for index, width in enumerate(widths)]
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.each(x)[-1]

    def each(self, x: jax.Array) -> list[jax.Array]:
        outputs = []
        for layer in self.layers:
            x = layer(x)
            outputs.append(x)
        return outputs
