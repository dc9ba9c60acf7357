"""The hyper-parameters that quad and skew share."""

from __future__ import annotations

import dataclasses
from numbers import Real
from typing import Any, Literal, get_args

import jax.numpy as jnp

from sparrow.dense.registry import DenseOptimizer
from sparrow.dense.whitening.factors import Norm
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
        seed: the seed of the noise. Each parameter draws its own, by its path.
        scanned_layers: which parameters are stacks of layers (``nn.scan``): the first axis counts them, and each layer
            is whitened as if it were a parameter of its own. Patterns over parameter paths, a tree of booleans, or a
            function from parameters to such a tree.
        pipeline_axis_name: the axis of a mesh over which the blocks of every parameter, and so their factors, are
            spread. ``init`` and ``update`` then run inside ``with jax.set_mesh(mesh):``.
        pipeline_axis_size: devices along that axis; empty blocks fill each parameter up to a multiple of it.
        params_partition_specs: a tree of ``PartitionSpec`` (None: as it comes), by which momentum and updates lie on
            the mesh of ``jax.set_mesh``.
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
    scanned_layers: Any = None
    pipeline_axis_name: str | None = None
    pipeline_axis_size: int = 1
    params_partition_specs: Any = None

    def __post_init__(self) -> None:
        numbers_of(self, "beta1", "betaL", at_least=0, below=1)
        numbers_of(self, "preconditioner_lr", "preconditioner_init_scale", above=0)
        numbers_of(self, "preconditioner_lr_floor", "noise_scale", at_least=0)
        integers_of(self, "block_size", "pipeline_axis_size", at_least=1)
        integers_of(self, "max_size_dense", "seed", at_least=0)
        choice_of(self, "lr_style", "adam", None)
        choice_of(self, "norm", *get_args(Norm))
        name_dtype(self, "dtype")
        choice_of(self, "dtype", "float32", "bfloat16")
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
        """``dtype`` as JAX knows it."""
        return jnp.dtype(self.dtype)
