"""Models for recommendation, as Flax NNX modules: dense layers over activations. Tables live in `sparrow.Embedder`.

==================  =========================================  ===============================================
model               reads the groups                           outputs
==================  =========================================  ===============================================
`DeepFM`            wide, deep, optionally fm                  logits
`XDeepFM`           wide, deep                                 logits
`WideAndDeep`       wide, deep                                 logits
`DLRM`              sparse, optionally dense                   logits
`Wukong`            sparse, optionally dense                   logits
`DCNv1`, `DCNv2`    one, of any name                           logits
`MaskNet`           one, of any name                           logits
`MultiTower`        one per tower, named there                 logits
`RocketLaunching`   one, of any name                           light and booster, as two tasks
`MMoE`, `PLE`       one, of any name                           logits by task
`DBMTL`             one, of any name                           logits by task
`PEPNet`            all, optionally domain, uia, domain_index  logits by task
`DSSM`, `DSSMv2`    one per tower: user and item               query, item, and negatives where sampled
`DAT`               two per tower                              query, item, and negatives where sampled
`MultiTowerDIN`     one per tower, named there                 logits
`TDM`               one with a history, and others             logits
`DlrmHSTU`          uih, candidate, and optional ones          logits by task, the number of candidates
`HSTURanker`        one per channel, candidate, and others     logits by task, the number of candidates
`MIND`              user, history and item, named there        query, item, interests, negatives where sampled
`HSTUMatch`         history and item, named there              query, item, and negatives where sampled
`HSTURetriever`     history and item, named there, and others  query, item, and negatives where sampled
`SASRec`            history and item, named there              query, item, and negatives where sampled
`Tiger`             history and codes, named there             logits by code, query
`SidRqkmeans`       one, of any name                           codes, reconstruction, target
`SidRqvae`          one, and a pair's, named there             codes, reconstruction, target
==================  =========================================  ===============================================

A model is built from `Inputs`, which holds the width of each feature and the groups of features, and is called
with the activations of a batch and its numeric features: ``model(acts, numbers)`` gives named outputs. A history in
order is a `Sequence` among them; `sparrow.models.sequences` has the encoders. `functional`
turns it into pure functions for `sparrow.Optimizer`. It computes in the dtype of its parameters and activations, and
gives float32.

Each model's options are also a record, that ``registry`` knows by name; `register_model` adds a class of yours.

>>> from flax import nnx
>>> record = registry.from_dict({"name": "deepfm", "deep": {"hidden_units": [64, 32]}})
>>> inputs = Inputs(acts={"user": 8, "item": 8, "item_wide": 1},
...                 groups={"wide": ["item_wide"], "deep": ["user", "item"]})
>>> type(record.build(inputs, rngs=nnx.Rngs(0))).__name__
'DeepFM'
"""

from sparrow.models.complete import Complete, Encoded, NumberEmbeddings, VariationalDropout
from sparrow.models.functional import Functional, extra_loss, extra_losses, functional
from sparrow.models.inputs import Inputs, Sequence
from sparrow.models.layers.mlp import ACTIVATIONS, MLP
from sparrow.models.layers.towers import TaskTower, Tower
from sparrow.models.rankers.dcn import DCNv1, DCNv2
from sparrow.models.rankers.dlrm import DLRM, Wukong, WukongLayer, pairwise_dots
from sparrow.models.rankers.experts import DBMTL, PLE, BayesTaskTower, ExtractionNetwork, MMoE
from sparrow.models.rankers.hstu_rankers import DlrmHSTU, HSTURanker
from sparrow.models.rankers.mask_net import MaskBlocks, MaskNet
from sparrow.models.rankers.multi_tower import TDM, DINTower, MultiTower, MultiTowerDIN
from sparrow.models.rankers.pepnet import PEPNet
from sparrow.models.rankers.rocket_launching import RocketLaunching
from sparrow.models.rankers.wide_and_deep import DeepFM, WideAndDeep, XDeepFM, factorization_machine
from sparrow.models.records import ModelRecord, register_model, registry
from sparrow.models.retrievers.hstu_retrievers import HSTUMatch, HSTURetriever
from sparrow.models.retrievers.kmeans import SidRqkmeans
from sparrow.models.retrievers.mind import MIND, Capsules, MINDUserTower
from sparrow.models.retrievers.sasrec import SASRec, Tiger
from sparrow.models.retrievers.sid_rqvae import SidRqvae
from sparrow.models.retrievers.two_towers import DAT, DSSM, DSSMv2
from sparrow.models.sequences.gated import HSTU, STU
from sparrow.models.sequences.hstu_channel import HSTUChannel, TimePeriod
from sparrow.models.sequences.states import Known, flat_states, recorded, states_of_flat
from sparrow.models.sequences.tokens import Actions, Content

__all__ = [
    "DAT",
    "DBMTL",
    "DLRM",
    "DSSM",
    "HSTU",
    "MIND",
    "MLP",
    "PLE",
    "STU",
    "TDM",
    "Actions",
    "BayesTaskTower",
    "Capsules",
    "Complete",
    "Content",
    "DCNv1",
    "DCNv2",
    "DINTower",
    "DSSMv2",
    "DeepFM",
    "DlrmHSTU",
    "Encoded",
    "ExtractionNetwork",
    "HSTUChannel",
    "HSTUMatch",
    "HSTURanker",
    "HSTURetriever",
    "Inputs",
    "MINDUserTower",
    "MMoE",
    "MaskBlocks",
    "MaskNet",
    "MultiTower",
    "MultiTowerDIN",
    "NumberEmbeddings",
    "PEPNet",
    "RocketLaunching",
    "SASRec",
    "Sequence",
    "SidRqkmeans",
    "SidRqvae",
    "TaskTower",
    "Tiger",
    "Tower",
    "VariationalDropout",
    "WideAndDeep",
    "Wukong",
    "WukongLayer",
    "XDeepFM",
    "extra_loss",
    "extra_losses",
    "factorization_machine",
    "functional",
    "pairwise_dots",
    "register_model",
    "registry",
]


def __dir__() -> list[str]:
    return __all__
