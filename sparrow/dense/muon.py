"""Muon for hidden matrices, Adam for everything else."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import optax

from sparrow.dense.paths import Patterns, check_patterns, matching
from sparrow.dense.registry import DenseOptimizer, register_optimizer
from sparrow.fields import choice_of, integers_of, name_dtype, numbers_of

EMBEDDINGS = r"(?i).*embed.*"
"""Default of `Muon.embeddings`: paths with "embed" in them, in any case."""


@register_optimizer("muon")
@dataclasses.dataclass(frozen=True)
class Muon(DenseOptimizer):
    """The momentum of a matrix, orthogonalized by Newton-Schulz iterations (``optax.contrib.muon``). ::

        mu'       = beta * mu + (1 - beta) * g                            (Nesterov: looks one step ahead)
        X         = mu' / |mu'|;   ns_steps times:  A = X Xᵀ,  X = a X + (b A + c A²) X,   (a, b, c) = ns_coeffs
        direction = sqrt(max(1, columns / rows)) * X

    Only hidden matrices go that way: parameters of two dimensions, both above 1, that are not embeddings. Everything
    else (embeddings, vectors, scalars, tensors) goes to Adam, with ``adam_beta1``, ``adam_beta2``, ``eps`` and a rate
    of ``adam_rate_scale`` times Muon's. Embeddings are the parameters whose path an ``embeddings`` pattern fully
    matches; without patterns, those with "embed" in their path. ``embeddings=()`` means that there are none.

    ``consistent_rms`` (0.2 is usual) scales by ``sqrt(max(rows, columns)) * consistent_rms`` in place of the factor
    above, so that Muon works at Adam's rates.

    Jordan, https://kellerjordan.github.io/posts/muon/, 2024; Liu et al., https://arxiv.org/abs/2502.16982
    """

    beta: float = 0.95
    nesterov: bool = True
    ns_coeffs: tuple[float, float, float] = (3.4445, -4.775, 2.0315)
    ns_steps: int = 5
    eps: float = 1e-8
    adaptive: bool = False
    preconditioning: str = "frobenius"
    consistent_rms: float | None = None
    mu_dtype: str | None = None
    adam_beta1: float = 0.9
    adam_beta2: float = 0.999
    adam_eps_root: float = 0.0
    adam_rate_scale: float = 1.0
    embeddings: Patterns | None = None

    def __post_init__(self) -> None:
        numbers_of(self, "beta", "adam_beta1", "adam_beta2", at_least=0, below=1)
        numbers_of(self, "eps", "adam_eps_root", "adam_rate_scale", at_least=0)
        integers_of(self, "ns_steps", at_least=1)
        choice_of(self, "preconditioning", "frobenius", "spectral", "aol", "schatten")
        if self.consistent_rms is not None:
            numbers_of(self, "consistent_rms", above=0)
        if not isinstance(self.embeddings, str | None):
            object.__setattr__(self, "embeddings", tuple(self.embeddings))
        object.__setattr__(self, "ns_coeffs", tuple(self.ns_coeffs))
        name_dtype(self, "mu_dtype")

    def build(self, learning_rate: optax.Schedule) -> optax.GradientTransformation:
        is_embedding = matching(EMBEDDINGS if self.embeddings is None else self.embeddings)

        def dimension_numbers(tree: Any) -> Any:
            def numbers(leaf: Any, embedding: bool) -> optax.contrib.MuonDimensionNumbers | None:
                hidden = leaf.ndim == 2 and min(leaf.shape) > 1 and not embedding
                return optax.contrib.MuonDimensionNumbers() if hidden else None

            return jax.tree.map(numbers, tree, is_embedding(tree))

        tx = optax.contrib.muon(
            learning_rate,
            ns_coeffs=self.ns_coeffs,
            ns_steps=self.ns_steps,
            beta=self.beta,
            eps=self.eps,
            mu_dtype=self.mu_dtype,
            nesterov=self.nesterov,
            adaptive=self.adaptive,
            preconditioning=self.preconditioning,
            adam_b1=self.adam_beta1,
            adam_b2=self.adam_beta2,
            adam_eps_root=self.adam_eps_root,
            adam_learning_rate=lambda step: self.adam_rate_scale * learning_rate(step),
            muon_weight_dimension_numbers=dimension_numbers,
            consistent_rms=self.consistent_rms,
        )

        def init(params: Any) -> Any:
            if self.embeddings is not None:
                check_patterns([self.embeddings], params)
            return tx.init(params)

        return optax.GradientTransformationExtraArgs(init, tx.update)
