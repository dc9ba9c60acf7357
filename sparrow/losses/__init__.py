"""Losses for recommenders: one value per example, and `reduce` makes the mean.

========================  ==================================================================================
`binary_cross_entropy`    a yes-or-no label, with label smoothing
`binary_focal`            the same, with the weight on the examples the model gets wrong
`softmax_cross_entropy`   one class of many, with label smoothing
`l2`                      a number
`Reconstruction`          a vector, of a model of semantic ids
`jrc`                     a yes-or-no label: ranking within a session and calibration together
`bpr`                     pairs: the chosen item above the others
`gbce`                    the chosen item against sampled ones, each by itself, as in gSASRec
`in_batch_softmax`        two towers: the chosen item among all items of the batch
`sampled_softmax`         two towers: the chosen item among sampled ones
`reduce`                  the mean of the values, with sample weights
`combine`                 the sum over tasks, with task weights and task spaces (`TaskWeights`)
`pareto_weights`          weights of tasks whose gradients cancel as far as they can
========================  ==================================================================================

All are pure functions of arrays: they run under ``jax.jit`` and ``jax.grad``, and compute in float32 whatever the
precision of the logits. A loss never broadcasts: labels that do not fit the logits are an error.

Each loss is a record, such as ``BinaryCrossEntropy(label_smoothing=0.1)``: it holds the hyper-parameters and the
equation, and describes the prediction that its output stands for. ``registry`` knows it by the name of the function,
which calls it; `register_loss` adds yours.

>>> import jax.numpy as jnp
>>> logits, labels = jnp.array([0.2, 0.3]), jnp.array([0, 1])
>>> mean = reduce(binary_cross_entropy(logits, labels), weights=jnp.array([1.0, 2.0]))
>>> print(f"{mean:.5f}")
0.63562
>>> loss = registry.from_dict({"name": "binary_cross_entropy", "label_smoothing": 0.1})
>>> print(f"{reduce(loss(logits, labels)):.5f}")
0.67875
"""

from sparrow.losses.base import BinaryLoss, Loss, reduce, register_loss, registry
from sparrow.losses.calibration import Platt
from sparrow.losses.matching import InBatchSoftmax, SampledSoftmax, in_batch_softmax, sampled_softmax
from sparrow.losses.multitask import TaskWeights, combine, pareto_weights
from sparrow.losses.outputs import Positions, Towers
from sparrow.losses.pairwise import BPR, GBCE, bpr, gbce
from sparrow.losses.pointwise import (
    L2,
    BinaryCrossEntropy,
    BinaryFocal,
    Reconstruction,
    SoftmaxCrossEntropy,
    binary_cross_entropy,
    binary_focal,
    l2,
    softmax_cross_entropy,
)
from sparrow.losses.sessionwise import JRC, jrc

__all__ = [
    "BPR",
    "GBCE",
    "JRC",
    "L2",
    "BinaryCrossEntropy",
    "BinaryFocal",
    "BinaryLoss",
    "InBatchSoftmax",
    "Loss",
    "Reconstruction",
    "SampledSoftmax",
    "SoftmaxCrossEntropy",
    "TaskWeights",
    "binary_cross_entropy",
    "binary_focal",
    "bpr",
    "combine",
    "gbce",
    "in_batch_softmax",
    "jrc",
    "l2",
    "pareto_weights",
    "reduce",
    "register_loss",
    "registry",
    "sampled_softmax",
    "softmax_cross_entropy",
]


def __dir__() -> list[str]:
    return __all__
