"""The optimizers that are optax's, or PyTorch's form of them: which equation, with which hyper-parameters.

None of them decays weights by itself: `dense.build` adds ``weight_decay`` and ``l2`` to any of them.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal

import jax
import optax

from sparrow.dense.paths import Patterns, check_patterns, matching
from sparrow.dense.registry import DenseOptimizer, register_optimizer
from sparrow.dense.scaling import dampened_trace, scale_by_adagrad, scale_by_amsgrad, scale_by_deviation
from sparrow.fields import Bounds, Count, CountOrZero, NotNegative, Positive, Share, is_zero, name_dtype


@register_optimizer("sgd")
@dataclasses.dataclass(frozen=True)
class SGD(DenseOptimizer):
    """``trace' = momentum * trace + (1 - dampening) * g``; the direction is ``trace'``, or ``g`` without momentum.

    With ``nesterov`` the direction is ``g + momentum * trace'``. The first gradient comes in undampened, as in
    PyTorch; ``nesterov`` needs a momentum and no dampening.

    Sutskever et al., On the importance of initialization and momentum in deep learning, ICML 2013.
    """

    momentum: NotNegative = 0.0
    dampening: Annotated[float, Bounds(at_least=0, at_most=1)] = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if is_zero(self.momentum) and (self.nesterov or not is_zero(self.dampening)):
            raise ValueError("SGD.nesterov and SGD.dampening need a momentum above 0, got momentum=0")
        if self.nesterov and not is_zero(self.dampening):
            raise ValueError(f"SGD.nesterov needs dampening=0, got dampening={self.dampening!r}")

    def direction(self) -> optax.GradientTransformation:
        if is_zero(self.momentum):
            return optax.identity()
        if is_zero(self.dampening):
            return optax.trace(self.momentum, self.nesterov)
        return dampened_trace(self.momentum, self.dampening)


@register_optimizer("adagrad")
@dataclasses.dataclass(frozen=True)
class Adagrad(DenseOptimizer):
    """``accumulator' = accumulator + g**2``; the direction is ``g / (sqrt(accumulator') + eps)``.

    PyTorch's form; optax's own has eps inside the root. Duchi, Hazan, Singer, JMLR 12, 2011.
    """

    initial_accumulator: NotNegative = 0.0
    eps: NotNegative = 1e-10

    def direction(self) -> optax.GradientTransformation:
        return scale_by_adagrad(self.initial_accumulator, self.eps)


@register_optimizer("adam")
@dataclasses.dataclass(frozen=True)
class Adam(DenseOptimizer):
    """Adam, its step counted from 1. ::

        mu'       = beta1 * mu + (1 - beta1) * g
        nu'       = beta2 * nu + (1 - beta2) * g**2
        direction = mu' / (1 - beta1**t) / (sqrt(nu' / (1 - beta2**t) + eps_root) + eps)

    ``amsgrad`` puts the running maximum of the raw ``nu'`` in its place, as PyTorch does (optax's takes the maximum
    after bias correction). ``nesterov`` is NAdam. ``mu_dtype`` stores ``mu`` in another type, such as "bfloat16".

    Kingma & Ba, https://arxiv.org/abs/1412.6980; Reddi et al., https://arxiv.org/abs/1904.09237
    """

    beta1: Share = 0.9
    beta2: Share = 0.999
    eps: NotNegative = 1e-8
    eps_root: NotNegative = 0.0
    amsgrad: bool = False
    nesterov: bool = False
    mu_dtype: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        name_dtype(self, "mu_dtype")
        if self.amsgrad and self.nesterov:
            raise ValueError(f"{type(self).__name__} has no form with both amsgrad and nesterov; choose one")

    def direction(self) -> optax.GradientTransformation:
        if self.amsgrad:
            return scale_by_amsgrad(self.beta1, self.beta2, self.eps, self.eps_root, self.mu_dtype)
        return optax.scale_by_adam(
            self.beta1, self.beta2, self.eps, self.eps_root, self.mu_dtype, nesterov=self.nesterov
        )


@register_optimizer("adamw")
@dataclasses.dataclass(frozen=True)
class AdamW(Adam):
    """`Adam` under its other name: ``weight_decay`` is decoupled for every optimizer here, and 0 unless given.

    Loshchilov & Hutter, Decoupled Weight Decay Regularization, https://arxiv.org/abs/1711.05101
    """


@register_optimizer("adadelta")
@dataclasses.dataclass(frozen=True)
class Adadelta(DenseOptimizer):
    """Adadelta, eps inside the roots as in the paper. ::

        square'   = rho * square + (1 - rho) * g**2
        direction = g * sqrt(step + eps) / sqrt(square' + eps)
        step'     = rho * step + (1 - rho) * direction**2

    Zeiler, ADADELTA: An Adaptive Learning Rate Method, https://arxiv.org/abs/1212.5701
    """

    rho: Share = 0.9
    eps: Positive = 1e-6

    def direction(self) -> optax.GradientTransformation:
        return optax.scale_by_adadelta(self.rho, self.eps)


@register_optimizer("rmsprop")
@dataclasses.dataclass(frozen=True)
class RMSprop(DenseOptimizer):
    """``square' = alpha * square + (1 - alpha) * g**2``; the direction is ``g / (sqrt(square') + eps)``.

    ``centered`` subtracts the square of the gradient's running mean from ``square'``. Momentum is a trace of the
    directions, ``trace' = momentum * trace + direction``. Two forms that differ in two places:

    ========  ===================  ============================================
    form      eps                  momentum
    ========  ===================  ============================================
    "torch"   outside the root     of the directions; the rate comes after it
    "optax"   inside the root      of the steps: the rate comes before it
    ========  ===================  ============================================

    Hinton, lecture 6e of Neural networks for machine learning, 2012.
    """

    alpha: Share = 0.99
    eps: NotNegative = 1e-8
    momentum: NotNegative = 0.0
    centered: bool = False
    nesterov: bool = False
    initial_accumulator: NotNegative = 0.0
    form: Literal["torch", "optax"] = "torch"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nesterov and is_zero(self.momentum):
            raise ValueError("RMSprop.nesterov needs a momentum above 0, got momentum=0")

    def build(self, learning_rate: optax.Schedule) -> optax.GradientTransformation:
        in_root = self.form == "optax"
        if self.centered:
            scale = scale_by_deviation(self.alpha, self.eps, self.initial_accumulator, eps_in_root=in_root)
        else:
            scale = optax.scale_by_rms(self.alpha, self.eps, self.initial_accumulator, in_root)
        rate = optax.scale_by_learning_rate(learning_rate)
        if is_zero(self.momentum):
            return optax.chain(scale, rate)
        trace = optax.trace(self.momentum, self.nesterov)
        return optax.chain(scale, rate, trace) if in_root else optax.chain(scale, trace, rate)


@register_optimizer("adafactor")
@dataclasses.dataclass(frozen=True)
class Adafactor(DenseOptimizer):
    """``optax.adafactor``: Adam's second moment, for a matrix kept as one row and one column.

    Both sides of a matrix must have ``min_dim_size_to_factor`` for that. With ``multiply_by_parameter_scale`` the rate
    is relative to the parameter's root mean square. ``momentum`` 0 keeps no first moment.

    Optax's ``weight_decay_rate`` is not multiplied by the learning rate; here ``weight_decay`` of `dense.build` is, as
    for every optimizer. For a constant rate: ``weight_decay = weight_decay_rate / learning_rate``.

    Shazeer & Stern, https://arxiv.org/abs/1804.04235
    """

    min_dim_size_to_factor: Count = 128
    decay_rate: Annotated[float, Bounds(above=0, below=1)] = 0.8
    decay_offset: CountOrZero = 0
    multiply_by_parameter_scale: bool = True
    clipping_threshold: Positive | None = 1.0
    momentum: Share = 0.0
    momentum_dtype: str = "float32"
    eps: Positive = 1e-30
    factored: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        name_dtype(self, "momentum_dtype")

    def build(self, learning_rate: optax.Schedule) -> optax.GradientTransformation:
        return optax.adafactor(
            learning_rate,
            min_dim_size_to_factor=self.min_dim_size_to_factor,
            decay_rate=self.decay_rate,
            decay_offset=self.decay_offset,
            multiply_by_parameter_scale=self.multiply_by_parameter_scale,
            clipping_threshold=self.clipping_threshold,
            momentum=None if is_zero(self.momentum) else self.momentum,
            dtype_momentum=self.momentum_dtype,
            eps=self.eps,
            factored=self.factored,
        )


@register_optimizer("lion")
@dataclasses.dataclass(frozen=True)
class Lion(DenseOptimizer):
    """``direction = sign(beta1 * mu + (1 - beta1) * g)``; ``mu' = beta2 * mu + (1 - beta2) * g``.

    ``optax.lion`` decays weights by 1e-3 by default; this does not.

    Chen et al., Symbolic Discovery of Optimization Algorithms, https://arxiv.org/abs/2302.06675
    """

    beta1: Share = 0.9
    beta2: Share = 0.99
    mu_dtype: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        name_dtype(self, "mu_dtype")

    def direction(self) -> optax.GradientTransformation:
        return optax.scale_by_lion(self.beta1, self.beta2, self.mu_dtype)


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

    beta: Share = 0.95
    nesterov: bool = True
    ns_coeffs: tuple[float, float, float] = (3.4445, -4.775, 2.0315)
    ns_steps: Count = 5
    eps: NotNegative = 1e-8
    adaptive: bool = False
    preconditioning: Literal["frobenius", "spectral", "aol", "schatten"] = "frobenius"
    consistent_rms: Positive | None = None
    mu_dtype: str | None = None
    adam_beta1: Share = 0.9
    adam_beta2: Share = 0.999
    adam_eps_root: NotNegative = 0.0
    adam_rate_scale: NotNegative = 1.0
    embeddings: Patterns | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
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
