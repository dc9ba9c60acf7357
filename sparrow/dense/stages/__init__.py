"""Optimizers for pipeline parallelism: each stage updates its own parameters, on its own devices.

A pipeline spreads the parameters over groups of devices, its *stages*, and JAX refuses one computation over arrays on
different devices. `StagedOptimizer` runs any optax transformation there, and gives the numbers that it gives on one
device: the update is traced once for all parameters and cut into one compiled program per stage. What the stages must
exchange are scalars: squared norms for clipping, flags for finite checks. They are found in the trace.
"""

from sparrow.dense.stages.optimizer import StagedOptimizer, StagedState
