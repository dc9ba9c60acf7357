"""Dense optimizers by name.

A dense optimizer is a frozen dataclass: its fields are the hyper-parameters, all but the learning rate, and
one method builds the transformation. `dense.build` adds the rest: learning rate, weight decay, clipping,
accumulation.

Most optimizers write `direction`, the thing that the learning rate multiplies:

>>> import dataclasses, optax
>>> @dataclasses.dataclass(frozen=True)
... class SignSGD(DenseOptimizer):
...     def direction(self):
...         return optax.scale_by_sign()
>>> tx = SignSGD().build(optax.constant_schedule(0.1))
>>> float(tx.update(3.0, tx.init(1.0))[0])
-0.1...

An optimizer whose learning rate does not come last (momentum over already scaled steps, for example) writes
`build` instead. ``@register_optimizer("sign_sgd")`` above the dataclass gives it a name in configs.
"""

from __future__ import annotations

from typing import Final

import optax

from sparrow import fields
from sparrow.registry import Registry

DESCRIPTIONS: Final = {
    "adam_beta1": "Adam's beta1, for parameters other than hidden matrices.",
    "adam_beta2": "Adam's beta2, for parameters other than hidden matrices.",
    "adam_eps_root": "Adam's eps_root, for parameters other than hidden matrices.",
    "adam_rate_scale": "Adam's rate as a multiple of Muon's.",
    "adaptive": "Whether to scale the direction by its inner product with the momentum.",
    "alpha": "The decay of the running mean of squared gradients.",
    "amsgrad": "Whether the second moment never decreases.",
    "beta": "The decay of the momentum.",
    "beta1": "The decay of the running mean of gradients.",
    "beta2": "The decay of the running mean of squared gradients.",
    "centered": "Whether to subtract the squared mean of gradients from the mean of their squares.",
    "clipping_threshold": "The largest root mean square of an update; None for no limit.",
    "consistent_rms": "The root mean square of an update, so that Muon works at Adam's rates; 0.2 is usual.",
    "dampening": "The share of a new gradient that the momentum leaves out.",
    "decay_offset": "The step from which the decay counts, when training goes on from another run.",
    "decay_rate": "The exponent of the second moment's decay.",
    "embeddings": "Patterns of the paths of embeddings, which Adam trains; paths with embed in them, unless given.",
    "eps": "A small number in the denominator.",
    "eps_root": "A small number under the root.",
    "factored": "Whether matrices keep their second moment as one row and one column.",
    "form": 'The form of the equations: "torch" or "optax".',
    "initial_accumulator": "The accumulator before the first step.",
    "min_dim_size_to_factor": "The smallest side of a matrix whose second moment is factored.",
    "momentum": "The decay of the momentum; 0 keeps none.",
    "momentum_dtype": "The type in which the momentum is stored.",
    "mu_dtype": "The type in which the first moment is stored, such as bfloat16.",
    "multiply_by_parameter_scale": "Whether the rate is relative to the parameter's root mean square.",
    "nesterov": "Whether to look one step ahead along the momentum.",
    "ns_coeffs": "The coefficients of the Newton-Schulz polynomial.",
    "ns_steps": "The number of Newton-Schulz iterations.",
    "preconditioning": 'The norm by which the momentum is divided first: "frobenius", "spectral", "aol" or "schatten".',
    "rho": "The decay of the running means.",
}


class DenseOptimizer:
    """Base of the records; subclasses are frozen dataclasses that write `direction` or `build`.

    Rules that every optimizer keeps: state keeps its shapes and dtypes from step to step and is a pytree of arrays
    made by ``jax.tree.map`` over the parameters (so that ``optax.tree.map_params`` knows it); an all-zero gradient
    gives finite updates; there is no weight decay of its own. `dense.build` adds weight decay, and casts updates to
    the gradients' dtypes. Numbers are checked by the types of the fields, such as `sparrow.fields.Share`.
    """

    def __post_init__(self) -> None:
        fields.check(self)

    def direction(self) -> optax.GradientTransformation:
        """From gradients to the direction that ``-learning_rate`` multiplies."""
        raise NotImplementedError(f"{type(self).__name__} must define direction() or build()")

    def build(self, learning_rate: optax.Schedule) -> optax.GradientTransformation:
        """From gradients to what is added to the parameters: ``-learning_rate(step) * direction``."""
        return optax.chain(self.direction(), optax.scale_by_learning_rate(learning_rate))


OPTIMIZERS: Registry[DenseOptimizer] = Registry("optimizer", DenseOptimizer, descriptions=DESCRIPTIONS)
register_optimizer = OPTIMIZERS.register
