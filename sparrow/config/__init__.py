"""Configs: the complete description of a training run, checked before anything runs.

>>> from sparrow import config
>>> text = '''
... train:
...   sparse_optimizer: {name: rowwise_adagrad, learning_rate: 0.05}
...   dense_optimizer: {optimizer: adam, learning_rate: 1e-3}
...   batch_size: 4096
...   epochs: 1
... tasks:
...   click: {label: clicked, losses: [binary_cross_entropy], metrics: [auc]}
... '''
>>> loaded = config.loads(text, overrides=["train.dense_optimizer.learning_rate=0.01"])
>>> loaded.train.dense_optimizer.learning_rate
0.01
>>> config.loads(config.dumps(loaded)) == loaded
True
>>> config.loads(text, overrides=["train.batch_siz=1"])
Traceback (most recent call last):
sparrow.errors.ConfigError: train.batch_siz: unknown field: did you mean 'batch_size'? ...

`load` reads a file: YAML, JSON, Python, or a config of TorchEasyRec. `json_schema` is for editors. `assemble`,
`train_pipeline`, `evaluate_pipeline`, `table_rules`, `dense_optimizer` and `optimizer` build what the config describes,
`sparrow.tasks` its losses and metrics; `epochs_in_steps` gives the length of an epoch to schedules that count epochs.
"""

from typing import TYPE_CHECKING, Any

from sparrow.config.building.assemble import WIDE, Assembly, assemble, evaluate_pipeline, need, train_pipeline
from sparrow.config.building.auto_vocabularies import fill_vocabularies
from sparrow.config.building.optimizers import counts_epochs, dense_optimizer, epochs_in_steps, optimizer, table_rules
from sparrow.config.building.two_towers import (
    candidate_notes,
    catalog_items,
    catalog_of,
    catalog_user,
    item_column,
    item_counts,
    item_features,
    user_column,
)
from sparrow.config.loading.files import (
    dumps,
    evaluated_on,
    from_mapping,
    import_report,
    load,
    loads,
    override,
    path_fields,
    plain,
)
from sparrow.config.loading.json_schema import json_schema
from sparrow.config.sections.config import Config
from sparrow.config.sections.data import Data, Negatives
from sparrow.config.sections.model import Model, TableOptions
from sparrow.config.sections.tasks import MetricUse, Task
from sparrow.config.sections.train import (
    Catalog,
    Checkpoint,
    Deltas,
    DenseOptimizer,
    DensePart,
    EarlyStopping,
    Evaluate,
    Export,
    StartFrom,
    TableOptimizer,
    Train,
)
from sparrow.errors import ConfigError, Problem, problems_of
from sparrow.rules import RULES, register_rule

if TYPE_CHECKING:
    from sparrow.config.torcheasyrec import from_json, import_config

__all__ = [
    "Assembly",
    "Catalog",
    "Checkpoint",
    "Config",
    "ConfigError",
    "Data",
    "Deltas",
    "DenseOptimizer",
    "DensePart",
    "EarlyStopping",
    "Evaluate",
    "Export",
    "MetricUse",
    "Model",
    "Negatives",
    "Problem",
    "StartFrom",
    "TableOptimizer",
    "TableOptions",
    "Task",
    "Train",
    "assemble",
    "dense_optimizer",
    "dumps",
    "epochs_in_steps",
    "evaluate_pipeline",
    "from_json",
    "from_mapping",
    "import_config",
    "json_schema",
    "load",
    "loads",
    "optimizer",
    "override",
    "table_rules",
    "train_pipeline",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    """Return the functions for configs of TorchEasyRec, imported when they are first used: few runs need them."""
    if name in ("from_json", "import_config"):
        from sparrow.config import torcheasyrec

        return getattr(torcheasyrec, name)
    raise AttributeError(f"module 'sparrow.config' has no attribute '{name}'")
