"""Models for recommendation, as Flax NNX modules: dense layers over activations. Tables live in `sparrow.Embedder`.

=================  ==============================  ==========================================
model              reads the groups                outputs
=================  ==============================  ==========================================
`DeepFM`           wide, deep, optionally fm       logits
`DLRM`             sparse, optionally dense        logits
`WideAndDeep`      wide, deep                      logits
`MultiTower`       one per tower, named there      logits
`DSSM`             one per tower: user and item    query, item, and negatives where sampled
`MMoE`             one, of any name                logits by task
=================  ==============================  ==========================================

A model is built from `Inputs`, which holds the width of each feature and the groups of features, and is called
with the activations of a batch and its numeric features: ``model(acts, numbers)`` gives named outputs. `functional`
turns it into pure functions for `sparrow.Optimizer`. It computes in the dtype of its parameters and activations, and
gives float32.

Each model's options are also a record, that ``registry`` knows by name; `register_model` adds one's own class.

>>> from flax import nnx
>>> record = registry.from_dict({"name": "deepfm", "deep": {"hidden_units": [64, 32]}})
>>> inputs = Inputs(acts={"user": 8, "item": 8, "item_wide": 1},
...                 groups={"wide": ["item_wide"], "deep": ["user", "item"]})
>>> type(record.build(inputs, rngs=nnx.Rngs(0))).__name__
'DeepFM'
"""

from sparrow.models.activations import ACTIVATIONS
from sparrow.models.dlrm import DLRM
from sparrow.models.dssm import DSSM
from sparrow.models.functional import Functional, functional
from sparrow.models.inputs import Group, Inputs
from sparrow.models.interactions import factorization_machine, pairwise_dots
from sparrow.models.mlp import MLP
from sparrow.models.mmoe import MMoE
from sparrow.models.multi_tower import MultiTower
from sparrow.models.records import ModelRecord, register_model, registry
from sparrow.models.towers import TaskTower, Tower
from sparrow.models.wide_and_deep import DeepFM, WideAndDeep

__all__ = [
    "ACTIVATIONS",
    "DLRM",
    "DSSM",
    "MLP",
    "DeepFM",
    "Functional",
    "Group",
    "Inputs",
    "MMoE",
    "ModelRecord",
    "MultiTower",
    "TaskTower",
    "Tower",
    "WideAndDeep",
    "factorization_machine",
    "functional",
    "pairwise_dots",
    "register_model",
    "registry",
]
