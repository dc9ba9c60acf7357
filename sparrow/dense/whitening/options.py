"""The hyper-parameters that quad and skew share."""

from __future__ import annotations

import dataclasses
from numbers import Real
from typing import Any, Literal, get_args

import jax.numpy as jnp

from sparrow.dense.registry import DenseOptimizer
from sparrow.dense.whitening.spectral import Norm
from sparrow.fields import choice_of, integers_of, name_dtype, numbers_of


@dataclasses.dataclass(frozen=True)
class Whitening(DenseOptimizer):
    """Options of an optimizer that whitens gradients.

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
        seed: of the noise. Each parameter draws its own, by its path.
    """

    beta1: float = 0.95
    lr_style: Literal["adam"] | None = "adam"
    normalize_grads: bool = False
    max_size_dense: int = 16384
    block_size: int = 256
    preconditioner_lr: float = 0.7
    preconditioner_lr_floor: float = 0.4
    preconditioner_init_scale: float = 1.0
    betaL: float = 0.95
    noise_scale: float = 1e-9
    dtype: str = "float32"
    norm: Norm = "estimate"
    seed: int = 0

    def __post_init__(self) -> None:
        numbers_of(self, "beta1", "betaL", at_least=0, below=1)
        numbers_of(self, "preconditioner_lr", "preconditioner_init_scale", above=0)
        numbers_of(self, "preconditioner_lr_floor", "noise_scale", at_least=0)
        integers_of(self, "block_size", at_least=1)
        integers_of(self, "max_size_dense", "seed", at_least=0)
        choice_of(self, "lr_style", "adam", None)
        choice_of(self, "norm", *get_args(Norm))
        name_dtype(self, "dtype")
        choice_of(self, "dtype", "float32", "bfloat16")
        rate, floor = self.preconditioner_lr, self.preconditioner_lr_floor
        if isinstance(rate, Real) and isinstance(floor, Real) and rate < floor:
            raise ValueError(
                f"{type(self).__name__}.preconditioner_lr is {rate}, below preconditioner_lr_floor ({floor}), so it "
                "would have no effect; lower the floor too"
            )

    @property
    def array_dtype(self) -> Any:
        """``dtype`` as JAX knows it."""
        return jnp.dtype(self.dtype)
