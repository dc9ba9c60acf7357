"""`MLP`, the record of a stack of dense layers, the layers themselves, and their activations by name."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Final

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow.models.layers.norms import LayerNorm
from sparrow.registry import nearest

Activation = Callable[[jax.Array], jax.Array]


def identity(x: jax.Array) -> jax.Array:
    """``x`` itself: no activation."""
    return x


@jax.custom_vjp
def relu(x: jax.Array) -> jax.Array:
    """``max(x, 0)``, whose gradient reads the result alone.

    ``jax.nn.relu`` keeps ``x`` for its gradient, so that a GPU writes ``x`` and the result, in two kernels. Without it,
    XLA lets the matrix product before it add the bias, take the maximum, and write the result once.
    """
    return jnp.maximum(x, 0)


def _relu_forward(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    # Behind the barrier, XLA cannot see that the result is positive where x is, and go back to x.
    y: jax.Array = jax.lax.optimization_barrier(jnp.maximum(x, 0))  # type: ignore[no-untyped-call]
    return y, y


relu.defvjp(_relu_forward, lambda y, grad: (jnp.where(y > 0, grad, 0),))


def gelu(x: jax.Array) -> jax.Array:
    """``x * Φ(x)``, exactly; ``jax.nn.gelu`` approximates Φ by default."""
    return jax.nn.gelu(x, approximate=False)


FUNCTIONS: Final[dict[str, Activation]] = {
    "none": identity,
    "relu": relu,
    "relu6": jax.nn.relu6,
    "leaky_relu": jax.nn.leaky_relu,
    "elu": jax.nn.elu,
    "selu": jax.nn.selu,
    "gelu": gelu,
    "silu": jax.nn.silu,
    "mish": jax.nn.mish,
    "softplus": jax.nn.softplus,
    "sigmoid": jax.nn.sigmoid,
    "tanh": jnp.tanh,
}
LEARNED: Final = ("dice", "prelu")
ACTIVATIONS: Final = (*FUNCTIONS, *LEARNED)


class Dice(nnx.Module):
    """A smooth PReLU whose corner follows the data.

    ::

        p = sigmoid(batch normalization of x, without scale and shift)
        y = p * x + (1 - p) * alpha * x                     alpha: one per unit, learned, from 0

    >>> Dice(2, rngs=nnx.Rngs(0))(jnp.array([[0.0, 1.0], [0.0, 3.0]]))
    Array([[0.        , 0.268...],
           [0.        , 2.193...]], dtype=float32)

    Reference: Zhou et al., Deep Interest Network, 2018, arXiv 1706.06978.
    """

    def __init__(self, dim: int, *, rngs: nnx.Rngs) -> None:
        self.norm = nnx.BatchNorm(dim, momentum=0.9, use_scale=False, use_bias=False, rngs=rngs)
        self.alpha = nnx.Param(jnp.zeros(dim))

    def __call__(self, x: jax.Array) -> jax.Array:
        p = jax.nn.sigmoid(self.norm(x)).astype(x.dtype)
        return p * x + (1 - p) * self.alpha[...] * x


def make_activation(name: str, dim: int, rngs: nnx.Rngs) -> Activation:
    """Return the activation ``name`` for ``dim`` units: a function, or a module where it has parameters."""
    if name == "dice":
        return Dice(dim, rngs=rngs)
    if name == "prelu":
        return nnx.PReLU(negative_slope_init=0.25)
    return FUNCTIONS[name]


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
      activation: the name of a function, see ``sparrow.models.ACTIVATIONS``; "none" for none.
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
        if self.activation not in ACTIVATIONS:
            wanted = nearest(str(self.activation), ACTIVATIONS)
            raise ValueError(f"MLP.activation: unknown activation '{self.activation}': {wanted}")
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


def optional_layers(mlp: MLP | None, dim: int, *, rngs: nnx.Rngs) -> tuple[Activation, int]:
    """Return the layers and the width of their output; None: `identity` and ``dim``."""
    return (identity, dim) if mlp is None else (mlp.build(dim, rngs=rngs), mlp.dim)


class Layer(nnx.Module):
    """One layer of an `MLP`."""

    def __init__(self, mlp: MLP, index: int, dim: int, *, linear: bool = False, rngs: nnx.Rngs) -> None:
        units = mlp.hidden_units[index]
        if linear:
            mlp = dataclasses.replace(mlp, activation="none", use_bn=False, use_ln=False, dropout_ratio=0.0)
        self.linear = nnx.Linear(dim, units, use_bias=mlp.bias and not mlp.use_bn, rngs=rngs)
        own = nnx.BatchNorm(units, momentum=0.9, epsilon=1e-5, rngs=rngs) if mlp.use_bn else identity
        self.norm: Activation = LayerNorm(units, rngs=rngs) if mlp.use_ln else own
        self.activation = make_activation(mlp.activation, units, rngs)
        self.dropout = nnx.Dropout(mlp.dropouts[index], rngs=rngs if mlp.dropouts[index] else None)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = self.linear(x)
        x = self.norm(x).astype(x.dtype)  # statistics are float32, and would pull the rest of the model up
        return self.dropout(self.activation(x))


class Layers(nnx.Module):
    """The layers that an `MLP` describes.

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
        return list(itertools.accumulate(self.layers, lambda x, layer: layer(x), initial=x))[1:]
