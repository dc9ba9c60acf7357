"""Quad and skew: the options that they share, and how a factor moves."""

from __future__ import annotations

import abc
import dataclasses
from numbers import Real
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax

from sparrow.dense.registry import DenseOptimizer, register_optimizer
from sparrow.dense.whitening.factors import Norm, divide_or_zero, matmul, spectral_norm
from sparrow.dense.whitening.transform import scale_by_whitening
from sparrow.fields import Count, CountOrZero, NotNegative, Positive, Share, name_dtype

_MAX_ANGLE = 1 / 8


@dataclasses.dataclass(frozen=True)
class Whitening(DenseOptimizer, abc.ABC):
    """An optimizer that whitens gradients; a subclass defines how a factor moves.

    Attributes:
        beta1: decay of the momentum that is whitened.
        lr_style: "adam" divides the update by 5, so that learning rates that suit Adam suit here; None does not.
        normalize_grads: divide each parameter's momentum by its norm before anything else.
        max_size_dense: a side longer than this gets a diagonal factor instead of a matrix.
        block_size: sides with matrices are cut into blocks of this size, each with its own factors.
        preconditioner_lr: how far the factors move, at first; it falls as ``1 / sqrt(1 + step / 10000)``.
        preconditioner_lr_floor: the lower bound of that rate.
        preconditioner_init_scale: the factors start at this multiple of the identity.
        betaL: decay of the bound on the factors' curvature; 0.999 suits very sparse gradients.
        noise_scale: standard deviation of the noise added to what the factors see. It keeps them bounded where
            the gradient is always almost zero.
        dtype: "float32" or "bfloat16", of factors, momentum and the operands of matrix products.
            Counts, norms and sums are float32 with either.
        norm: "estimate" spectral norms by power iteration, or compute them "exact" (slow; for tests).
        seed: the seed of the noise. Each parameter draws its own, by its path.
        scanned_layers: the parameters that are stacks of layers (``nn.scan``), whose first axis counts them; each layer
            is whitened as a parameter of its own. Patterns over parameter paths, a tree of booleans, or a function
            from parameters to such a tree.
        pipeline_axis_name: the axis of a mesh over which the blocks of every parameter, and so their factors, are
            spread. ``init`` and ``update`` then run inside ``with jax.set_mesh(mesh):``.
        pipeline_axis_size: devices along that axis; empty blocks fill each parameter up to a multiple of it.
        params_partition_specs: a tree of ``PartitionSpec`` (None: as it comes), by which momentum and updates lie on
            the mesh of ``jax.set_mesh``.
    """

    beta1: Share = 0.95
    lr_style: Literal["adam"] | None = "adam"
    normalize_grads: bool = False
    max_size_dense: CountOrZero = 16384
    block_size: Count = 256
    preconditioner_lr: Positive = 0.7
    preconditioner_lr_floor: NotNegative = 0.4
    preconditioner_init_scale: Positive = 1.0
    betaL: Share = 0.95
    noise_scale: NotNegative = 1e-9
    dtype: str = "float32"
    norm: Norm = "estimate"
    seed: CountOrZero = 0
    scanned_layers: Any = None
    pipeline_axis_name: str | None = None
    pipeline_axis_size: Count = 1
    params_partition_specs: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        name_dtype(self, "dtype", "float32", "bfloat16")
        if self.pipeline_axis_name is None and self.pipeline_axis_size != 1:
            raise ValueError(
                f"{type(self).__name__}.pipeline_axis_size is {self.pipeline_axis_size}, but there is no "
                "pipeline_axis_name; give both or neither"
            )
        rate, floor = self.preconditioner_lr, self.preconditioner_lr_floor
        if isinstance(rate, Real) and isinstance(floor, Real) and rate < floor:
            raise ValueError(
                f"{type(self).__name__}.preconditioner_lr is {rate}, below preconditioner_lr_floor ({floor}), so it "
                "would have no effect; lower the floor too"
            )

    @property
    def array_dtype(self) -> Any:
        return jnp.dtype(self.dtype)

    @abc.abstractmethod
    def moved(self, factor: jax.Array, excess: jax.Array, rate: jax.Array) -> jax.Array:
        """Return ``Q`` after a step, from ``Q``, the excess ``E = T - s I``, both (blocks, n, n), and ``eta / L``."""

    @abc.abstractmethod
    def moved_diagonal(self, factor: jax.Array, excess: jax.Array, rate: jax.Array) -> jax.Array:
        """Return the same of a diagonal factor, from the diagonals of ``Q`` and ``E``, both (blocks, n)."""

    def direction(self) -> optax.GradientTransformation:
        return scale_by_whitening(self)


@register_optimizer("quad")
@dataclasses.dataclass(frozen=True)
class Quad(Whitening):
    """Kronecker-factored whitening (PSGD) whose factors move by a quadratic form.

    For each parameter, reshaped to blocks ``G`` of ``m x n`` with factors ``Ql, Qr`` (identity at first) and
    bounds ``Ll, Lr`` (zero at first), at step ``t``::

        mu  = beta1 mu + (1 - beta1) grad;   G = mu / (1 - beta1^t)
        eta = max(preconditioner_lr / sqrt(1 + t / 10000), preconditioner_lr_floor)
        A   = Qlᵀ Ql (G + noise) Qrᵀ Qr
        left side:  T = A Aᵀ, s = n;     right side: T = Aᵀ A, s = m
        L   = max(betaL L + (1 - betaL) (|T| + s), |T| + s)
        Q   = (I - z E) Q (I - z E),     E = T - s I,   z = eta / (2 L)
        U   = Qlᵀ Ql G Qrᵀ Qr            with the new factors
        direction = U min(1, 1.1 / rms(U)) / 5

    The division by 5 is ``lr_style="adam"``. A diagonal factor (``max_size_dense``, vectors) keeps only the
    diagonal of ``E``. Every 100 steps the two factors are given the same largest entry. Factors do not grow while
    the gradient is zero, nor beyond an amplification of 1e12. There is no weight decay of its own;
    `dense.build` adds it.

    >>> tx = Quad(block_size=16).build(optax.constant_schedule(0.1))
    >>> params = jnp.array([[1.0, -2.0], [3.0, -1.0], [0.5, 1.0]])
    >>> state, update = tx.init(params), jax.jit(tx.update)
    >>> for _ in range(300):
    ...     updates, state = update(2 * params, state)
    ...     params = optax.apply_updates(params, updates)
    >>> bool(jnp.abs(params).max() < 0.1)
    True

    References:
        Xi-Lin Li, `Preconditioned stochastic gradient descent <https://arxiv.org/abs/1512.04202>`_ and
        `Stochastic Hessian fittings with Lie groups <https://arxiv.org/abs/2402.11858>`_.
    """

    def moved(self, factor: jax.Array, excess: jax.Array, rate: jax.Array) -> jax.Array:
        """``(I - z E) Q (I - z E)`` with ``z = rate / 2``, made exactly symmetric."""
        z, dtype = rate / 2, self.array_dtype
        half = factor - z * matmul(excess, factor, dtype)
        both = half - z * matmul(half, excess, dtype)
        return (both + both.mT) / 2

    def moved_diagonal(self, factor: jax.Array, excess: jax.Array, rate: jax.Array) -> jax.Array:
        """``q (1 - z e)²`` with ``z = rate / 2``."""
        return factor * jnp.square(1 - rate / 2 * excess)


def procrustes_step(factor: jax.Array, norm: Norm, dtype: Any) -> jax.Array:
    """Rotates each ``Q`` of (blocks, n, n) one step towards its symmetric, positive form.

    ``R = Qᵀ - Q`` generates the rotation that raises the trace of ``Q`` fastest. To second order in the angle::

        Q + a (R Q + a/2 R R Q),   a = min(1/8 / |R|, -tr(R Q) / tr(R R Q))

    where the second term of the minimum, the top of the parabola, counts only if the parabola has a top.
    A symmetric ``Q`` does not move.
    """
    skew = factor.mT - factor
    skew = divide_or_zero(skew, jnp.max(jnp.abs(skew), axis=(1, 2), keepdims=True))
    first = matmul(skew, factor, dtype)
    second = matmul(skew, first, dtype)
    slope, curvature = (jnp.trace(matrix, axis1=1, axis2=2) for matrix in (first, second))
    angle = divide_or_zero(jnp.full_like(slope, _MAX_ANGLE), spectral_norm(skew, norm, dtype))
    top = divide_or_zero(-slope, curvature)
    angle = jnp.where(curvature < 0, jnp.minimum(angle, top), angle)
    angle = jnp.where(slope > 0, angle, 0.0)[:, None, None]
    return factor + angle * (first + angle / 2 * second)


@register_optimizer("skew")
@dataclasses.dataclass(frozen=True)
class Skew(Whitening):
    """Kronecker-factored whitening (PSGD) whose factors move from one side and are rotated back to symmetric.

    As `Quad` in everything but the move of a factor::

        Q = (I - z E) Q,   z = eta / L;   then one Procrustes step, see `procrustes_step`

    One matrix product less for each factor, at the price of a factor that is only nearly symmetric.

    >>> tx = Skew(block_size=16).build(optax.constant_schedule(0.1))
    >>> params = jnp.array([[1.0, -2.0], [3.0, -1.0], [0.5, 1.0]])
    >>> state, update = tx.init(params), jax.jit(tx.update)
    >>> for _ in range(300):
    ...     updates, state = update(2 * params, state)
    ...     params = optax.apply_updates(params, updates)
    >>> bool(jnp.abs(params).max() < 0.1)
    True

    References:
        Xi-Lin Li, `Stochastic Hessian fittings with Lie groups <https://arxiv.org/abs/2402.11858>`_.
    """

    def moved(self, factor: jax.Array, excess: jax.Array, rate: jax.Array) -> jax.Array:
        """``(I - z E) Q`` with ``z = rate``, then a Procrustes step."""
        dtype = self.array_dtype
        return procrustes_step(factor - rate * matmul(excess, factor, dtype), self.norm, dtype)

    def moved_diagonal(self, factor: jax.Array, excess: jax.Array, rate: jax.Array) -> jax.Array:
        """``q (1 - z e)`` with ``z = rate``."""
        return factor * (1 - rate * excess)
