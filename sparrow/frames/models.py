"""The groups, options and settings of the models that a frame is trained with.

`benchmarks/NOTES.md` has the figures that chose the settings. A weight decay is given for each occurrence of an id: the
rule adds it to gradients of means over a batch, so it is divided by the batch size. A table of few rows in small
batches then is held back as much as one in large batches.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np

from sparrow.config import WIDE, ConfigError
from sparrow.data import Feature
from sparrow.frames.columns import Reading
from sparrow.models import registry
from sparrow.registry import nearest

_MLP: Final = {"hidden_units": (64, 32)}
_SMALL: Final = {"hidden_units": (32,)}
TOWERS: Final = ("dssm", "dssm_v2")
"""Models of two towers that learn from a log of choices."""
HISTORIES: Final = ("sasrec", "hstu_match")
"""Models that learn from the order of a user's events."""
SEEN: Final = "seen"
"""The feature of the events before."""

_USER: Final = re.compile(
    r"(^|_)(u|user|customer|client|member|visitor|viewer|reader|buyer|player|session)(_?id)?$", re.IGNORECASE
)
"""The names of columns that hold a user."""


class Parts(NamedTuple):
    """The features of a model by use, the dim of its tables, its tasks, and the most events of a history."""

    every: Sequence[str]
    sparse: Sequence[str]
    dense: Sequence[str]
    dim: int
    tasks: Sequence[str]
    item: Sequence[str]
    length: int

    @property
    def of_user(self) -> list[str]:
        """The features that do not describe an item."""
        return [name for name in self.every if name not in self.item]

    @property
    def task_towers(self) -> list[dict[str, Any]]:
        return [{"task": task, "mlp": _SMALL} for task in self.tasks]


Made = tuple[dict[str, Any], dict[str, Sequence[str]]]


def _wide(**options: Any) -> Callable[[Parts], Made]:
    return lambda parts: (options, {"wide": parts.sparse, "deep": parts.every})


def _one(**options: Any) -> Callable[[Parts], Made]:
    return lambda parts: (options, {"all": parts.every})


def _dense_and_sparse(parts: Parts, bottom: str, **options: Any) -> Made:
    layers = {bottom: {"hidden_units": (32, parts.dim)}} if parts.dense else {}
    groups = {"sparse": parts.sparse, **({"dense": parts.dense} if parts.dense else {})}
    return {"final": _MLP, **options, **layers}, groups


def _wukong(parts: Parts) -> Made:
    layer = {"lcb_feature_num": 8, "fmb_feature_num": 8, "feature_num_mlp": _SMALL}
    return _dense_and_sparse(parts, "dense_mlp", wukong_layers=[layer, layer])


def _tasks(**options: Any) -> Callable[[Parts], Made]:
    return lambda parts: ({**options, "task_towers": parts.task_towers}, {"all": parts.every})


def _two_towers(parts: Parts) -> Made:
    """Return towers whose vector is the row of an id in its table, or a layer over several features."""
    alone = len(parts.of_user) == len(parts.item) == 1
    towers = {
        f"{name}_tower": {"input": name, **({} if len(held) == 1 else {"mlp": {"hidden_units": (2 * parts.dim,)}})}
        for name, held in (("user", parts.of_user), ("item", parts.item))
    }
    options = {**towers, "similarity": "cosine", **({} if alone else {"output_dim": parts.dim})}
    return options, {"user": parts.of_user, "item": parts.item}


def _multi_tower(parts: Parts) -> Made:
    towers = [{"input": name, "mlp": _MLP} for name in ("user", "item")]
    return {"towers": towers, "final": _SMALL}, {"user": parts.of_user, "item": parts.item}


def _sasrec(parts: Parts) -> Made:
    options = {"item_tower": {"input": "item"}, "max_length": parts.length, "negatives": "sampled"}
    return options, {"history": [SEEN], "item": parts.item}


def _hstu_match(parts: Parts) -> Made:
    sizes = {"embedding_dim": parts.dim, "num_heads": 1, "hidden_dim": parts.dim, "attention_dim": parts.dim}
    dropout = {"input_dropout_ratio": 0.2, "output_dropout_ratio": 0.2}
    layers = {**sizes, **dropout, "attn_num_layers": 2, "scaling_seqlen": parts.length}
    options = {"item_tower": {"input": "item"}, "history_input": "history", "negatives": "sampled"}
    return {"hstu": layers, "every_position": True, **options}, {"history": [SEEN], "item": parts.item}


_EXPERTS: Final = {"expert_num_per_task": 2, "task_expert_net": _MLP, "share_num": 2}
_RECIPES: Final[dict[str, Callable[[Parts], Made]]] = {
    "deepfm": _wide(deep=_MLP),
    "wide_and_deep": _wide(deep=_MLP),
    "xdeepfm": _wide(cin_layer_size=(16, 16), deep=_MLP, final=_SMALL),
    "dlrm": lambda parts: _dense_and_sparse(parts, "dense_mlp", arch_with_sparse=True),
    "dcn_v1": _one(deep=_MLP, final=_SMALL),
    "dcn_v2": _one(final=_MLP),
    "mask_net": _one(mask_net_module={"n_mask_blocks": 2, "hidden_dim": 32, "aggregation_dim": 32}),
    "wukong": _wukong,
    "multi_tower": _multi_tower,
    "mmoe": _tasks(expert_mlp=_MLP, num_experts=4),
    "ple": _tasks(extraction_networks=[_EXPERTS]),
    "dbmtl": _tasks(bottom_mlp=_MLP),
    **dict.fromkeys(TOWERS, _two_towers),
    "sasrec": _sasrec,
    "hstu_match": _hstu_match,
}
KNOWN: Final = tuple(_RECIPES)
"""Models that need no options."""


def user_of(features: Sequence[Feature], section: Mapping[str, Any]) -> str | None:
    """Return the column of the user, for two towers: the one whose name sounds like it; None: there is not one."""
    group = section["groups"].get("user", ())
    ids = [feature.one_id for feature in features if feature.name in group and feature.one_id]
    found = [column for column in ids if _USER.search(column)]
    return found[0] if len(found) == 1 else None


def items_of(features: Sequence[Feature], item: Sequence[str]) -> int:
    """Return about the number of items, for two towers: rows of the item's largest table; 0: no feature is its id."""
    uses = [feature.table_use for feature in features if feature.name in item and feature.one_id]
    return max((use.num_rows for use in uses if use is not None), default=0)


def has_wide_tables(section: Mapping[str, Any], features: Sequence[Feature]) -> bool:
    """Return whether the model has tables of its own for the linear part."""
    wide = getattr(registry[section["architecture"]["name"]].model, "wide_groups", ())
    names = {name for group in wide for name in section["groups"].get(group, ())}
    return any(feature.is_sparse and feature.name in names for feature in features)


def without_clashes(readings: Sequence[Reading]) -> tuple[Reading, ...]:
    """Return the readings with another name for each feature that is called as the wide table of another is."""
    taken = {reading.feature.name + WIDE for reading in readings if reading.feature and reading.feature.is_sparse}

    def renamed(reading: Reading) -> Reading:
        feature: Any = reading.feature
        if feature is None or feature.name not in taken or getattr(feature, "column", "") is not None:
            return reading
        return reading._replace(feature=replace(feature, name=f"{feature.name}_", column=reading.column))

    return tuple(map(renamed, readings))


def model_section(
    model: str | Mapping[str, Any],
    features: Sequence[Feature],
    tasks: Sequence[str],
    groups: Mapping[str, Sequence[str]] | None,
    item: Sequence[str],
    classes: int = 1,
    dropout: float = 0.0,
) -> dict[str, Any]:
    """Return the section ``model`` of a config.

    The options in ``model``, and ``groups`` where they are given, replace the defaults. ``item``: the features that
    describe an item, for two towers; ``classes``: those of the target, 1 where it has none; ``dropout``: the share of
    units that the default layers leave out in training.
    """
    given = {"name": model} if isinstance(model, str) else dict(model)
    name = given["name"]
    if name not in registry:
        raise ConfigError(f"unknown model {name!r}: {nearest(name, registry.names())}")
    if name not in KNOWN and groups is None:
        raise ConfigError(f"model '{name}': give groups= as well, or choose another: {nearest(str(name), KNOWN)}")
    if name in (*TOWERS, "multi_tower") and groups is None and not item:
        raise ConfigError(f"model '{name}' has two towers: give item=, the columns that describe an item")
    every = [feature.name for feature in features]
    sparse = [feature.name for feature in features if feature.is_sparse]
    dense = [name for name in every if name not in sparse]
    dim = next((feature.width for feature in features if feature.is_sparse), 16)
    length = next((feature.sequence_length or 0 for feature in features if feature.name == SEEN), 0)
    parts = Parts(every, sparse, dense, dim, tasks, list(item), length)
    defaults, made = _RECIPES[name](parts) if name in KNOWN else ({}, {})
    if classes > 1 and name in ("deepfm", "wide_and_deep"):
        defaults = {**defaults, "final": _SMALL, "num_classes": classes}  # one number for all classes changes nothing
    elif classes > 1:
        defaults = {**defaults, "num_classes": classes}
    if dropout:
        layers = {**_MLP, "dropout_ratio": dropout}
        defaults = {key: layers if value is _MLP else value for key, value in defaults.items()}
    chosen = {key: list(names) for key, names in (made if groups is None else groups).items()}
    return {"architecture": {**defaults, **given}, "groups": chosen}


class Settings(NamedTuple):
    """The settings of training for one kind of model.

    Attributes:
      embedding_dim: the dim of tables.
      dropout: the share of units that layers leave out in training.
      rule: the fields of the tables' rule, for a batch size.
      wide: the fields of the rule of wide tables, the same way; None: that of the others.
      most: the largest batch.
    """

    embedding_dim: int
    dropout: float
    rule: dict[str, Any]
    wide: dict[str, Any] | None = None
    most: int = 4096

    def train(self, batch_size: int, has_wide: bool) -> dict[str, Any]:
        """Return the fields of the section ``train`` that set the tables' rules."""
        made: dict[str, Any] = {"sparse_optimizer": _for_batches(self.rule, batch_size)}
        if has_wide and self.wide is not None:
            wide = {"tables": [f".*{WIDE}"], "optimizer": _for_batches(self.wide, batch_size)}
            made["table_optimizers"] = [wide]
        return made

    def batch_size(self, rows: int) -> int:
        """Return a power of two: about a hundredth of the rows, at least 32.

        >>> RANKING.batch_size(100_000), RANKING.batch_size(10), TWO_TOWERS.batch_size(10**8)
        (1024, 32, 1024)
        """
        return int(np.clip(2 ** round(np.log2(max(rows, 1) / 100)), 32, self.most))


def _for_batches(rule: dict[str, Any], batch_size: int) -> dict[str, Any]:
    """Return a rule whose weight decay is of one occurrence, for gradients of means over a batch.

    >>> _for_batches({"name": "rowwise_adagrad", "weight_decay": 0.3}, 128)["weight_decay"]
    0.0023
    """
    if "weight_decay" not in rule:
        return rule
    return {**rule, "weight_decay": float(f"{rule['weight_decay'] / batch_size:.2g}")}


_DECAYED: Final = {"name": "rowwise_adagrad", "weight_decay_mode": "l2"}
_RULES: Final = [_DECAYED | {"learning_rate": rate, "weight_decay": decay} for rate, decay in ((0.1, 0.3), (0.2, 0.05))]
RANKING: Final = Settings(8, 0.2, _RULES[0], _RULES[1])
"""Ids of a few rows are not memorized, and the linear part is learned before products of ids are."""
TWO_TOWERS: Final = Settings(64, 0.0, {"name": "adam", "learning_rate": 0.01}, most=1024)
"""The work of a batch grows with its square, and 1,023 negatives are enough."""
TEMPERATURE: Final = 0.2
"""The temperature of cosines: scores of at most 5 keep users and items of few rows from being memorized."""
NEXT_ITEM: Final = Settings(64, 0.0, {"name": "adam", "learning_rate": 0.002}, most=128)
"""An example is a complete history."""
PATIENCE: Final = 4
"""Evaluations without a gain that end training: interactions of ids often show after a few epochs without any."""
