"""The groups and options of the models that a frame is trained with."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from sparrow.config import WIDE, ConfigError
from sparrow.data import Feature
from sparrow.frames.columns import Reading
from sparrow.models import registry
from sparrow.registry import nearest

_MLP: Final = {"hidden_units": (64, 32)}
_SMALL: Final = {"hidden_units": (32,)}

_ONE_GROUP: Final[dict[str, dict[str, Any]]] = {
    "dcn_v1": {"deep": _MLP, "final": _SMALL},
    "dcn_v2": {"final": _MLP},
    "mask_net": {"mask_net_module": {"n_mask_blocks": 2, "hidden_dim": 32, "aggregation_dim": 32}},
}
_WIDE: Final[dict[str, dict[str, Any]]] = {
    "deepfm": {"deep": _MLP},
    "wide_and_deep": {"deep": _MLP},
    "xdeepfm": {"cin_layer_size": (16, 16), "deep": _MLP, "final": _SMALL},
}
_TOWERS: Final = ("dssm", "dssm_v2")
_TASKS: Final = ("mmoe",)
KNOWN: Final = (*_WIDE, "dlrm", *_ONE_GROUP, *_TASKS, *_TOWERS)
"""Models that need no options."""


_USER: Final = re.compile(
    r"(^|_)(u|user|customer|client|member|visitor|viewer|reader|buyer|player|session)(_?id)?$", re.IGNORECASE
)
"""The names of columns that hold a user."""


def user_of(features: Sequence[Feature], section: Mapping[str, Any]) -> str | None:
    """Return the column of the user, for two towers: the one whose name sounds like it; None: there is not one."""
    group = section["groups"].get("user", ())
    ids = [feature.one_id for feature in features if feature.name in group and feature.one_id]
    found = [column for column in ids if _USER.search(column)]
    return found[0] if len(found) == 1 else None


def items_of(features: Sequence[Feature], section: Mapping[str, Any]) -> int:
    """Return about the number of items, for two towers: rows of the item's largest table; 0: no feature is its id."""
    group = section["groups"].get("item", ())
    uses = [feature.table_use for feature in features if feature.name in group and feature.one_id]
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

    Args:
      model: its name, or a mapping with its name and options, which replace the defaults.
      features: all features.
      tasks: the names of the tasks.
      groups: the groups of features; None: as the model wants them.
      item: the features that describe an item, for two towers.
      classes: the number of classes of the target; 1: it has none.
      dropout: the share of units that the default layers leave out in training.
    """
    given = {"name": model} if isinstance(model, str) else dict(model)
    name = given.get("name")
    if not isinstance(name, str) or name not in registry:
        raise ConfigError(f"unknown model {name!r}: {nearest(str(name), registry.names())}")
    if name not in KNOWN and groups is None:
        raise ConfigError(f"model '{name}': give groups= as well, or choose another: {nearest(str(name), KNOWN)}")
    every = [feature.name for feature in features]
    sparse = [feature.name for feature in features if feature.is_sparse]
    dense = [name for name in every if name not in sparse]
    defaults: dict[str, Any] = {}
    made: dict[str, list[str]] = {}
    if name in _WIDE:
        defaults, made = _WIDE[name], {"wide": sparse, "deep": every}
    elif name == "dlrm":
        dim = next((feature.width for feature in features if feature.is_sparse), 16)
        bottom = {"dense_mlp": {"hidden_units": (32, dim)}} if dense else {}
        defaults = {"final": _MLP, "arch_with_sparse": True, **bottom}
        made = {"sparse": sparse, **({"dense": dense} if dense else {})}
    elif name in _ONE_GROUP:
        defaults, made = _ONE_GROUP[name], {"all": every}
    elif name in _TASKS:
        towers = [{"task": task, "mlp": _SMALL} for task in tasks]
        defaults, made = {"expert_mlp": _MLP, "num_experts": 4, "task_towers": towers}, {"all": every}
    elif name in _TOWERS:
        if groups is None and not item:
            raise ConfigError(f"model '{name}' has two towers: give item=, the columns that describe an item")
        defaults = {
            "user_tower": {"input": "user", "mlp": _SMALL},
            "item_tower": {"input": "item", "mlp": _SMALL},
            "output_dim": 16,
        }
        made = {"user": [name for name in every if name not in item], "item": list(item)}
    if classes > 1 and name in ("deepfm", "wide_and_deep"):
        defaults = {**defaults, "final": _SMALL, "num_classes": classes}  # one number for all classes changes nothing
    elif classes > 1:
        defaults = {**defaults, "num_classes": classes}
    if dropout:
        layers = {**_MLP, "dropout_ratio": dropout}
        defaults = {key: layers if value is _MLP else value for key, value in defaults.items()}
    chosen = made if groups is None else {key: list(names) for key, names in groups.items()}
    return {"architecture": {**defaults, **given}, "groups": chosen}
