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

import optax

from sparrow.dense.descriptions import DESCRIPTIONS
from sparrow.registry import Registry


class DenseOptimizer:
    """Base of the records; subclasses are frozen dataclasses that write `direction` or `build`.

    Rules that every optimizer keeps: state keeps its shapes and dtypes from step to step and is a pytree of arrays
    made by ``jax.tree.map`` over the parameters (so that ``optax.tree.map_params`` knows it); an all-zero gradient
    gives finite updates; there is no weight decay of its own. `dense.build` adds weight decay, and casts updates to
    the gradients' dtypes.
    """

    def direction(self) -> optax.GradientTransformation:
        """From gradients to the direction that ``-learning_rate`` multiplies."""
        raise NotImplementedError(f"{type(self).__name__} must define direction() or build()")

    def build(self, learning_rate: optax.Schedule) -> optax.GradientTransformation:
        """From gradients to what is added to the parameters: ``-learning_rate(step) * direction``."""
        return optax.chain(self.direction(), optax.scale_by_learning_rate(learning_rate))


OPTIMIZERS: Registry[DenseOptimizer] = Registry("optimizer", DenseOptimizer, descriptions=DESCRIPTIONS)
register_optimizer = OPTIMIZERS.register
