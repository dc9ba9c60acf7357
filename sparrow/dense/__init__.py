"""Dense optimizers: optax, built by name.

>>> from sparrow import dense
>>> tx, schedule = dense.build("adamw", learning_rate=0.001, weight_decay=0.01, clip_norm=1.0)

``dense.build`` takes one optimizer for all parameters, `build_parts` takes several, by patterns over parameter paths.
`StagedOptimizer` runs what they build on parameters spread over pipeline stages. ``@register_optimizer("mine")`` gives
an optimizer of your own a name.
"""

from sparrow.dense.build import build
from sparrow.dense.clipping import clip_by_global_norm, global_norm, squared_norm
from sparrow.dense.mars import Mars
from sparrow.dense.optimizers import SGD, Adadelta, Adafactor, Adagrad, Adam, AdamW, Lion, Muon, RMSprop
from sparrow.dense.parts import Part, build_parts, part
from sparrow.dense.paths import assign, path_names
from sparrow.dense.registry import OPTIMIZERS, DenseOptimizer, register_optimizer
from sparrow.dense.stages import StagedOptimizer
from sparrow.dense.whitening import Quad, Skew

names = OPTIMIZERS.names
make = OPTIMIZERS.make
to_dict = OPTIMIZERS.to_dict
from_dict = OPTIMIZERS.from_dict
to_json = OPTIMIZERS.to_json
from_json = OPTIMIZERS.from_json
to_yaml = OPTIMIZERS.to_yaml
from_yaml = OPTIMIZERS.from_yaml

__all__ = [
    "OPTIMIZERS",
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "DenseOptimizer",
    "Lion",
    "Mars",
    "Muon",
    "Part",
    "Quad",
    "RMSprop",
    "Skew",
    "StagedOptimizer",
    "build",
    "build_parts",
    "clip_by_global_norm",
    "from_dict",
    "from_json",
    "from_yaml",
    "global_norm",
    "make",
    "names",
    "part",
    "register_optimizer",
    "to_dict",
    "to_json",
    "to_yaml",
]


def __dir__() -> list[str]:
    return __all__
