"""Every registered thing, with every field set to something other than its default, survives to_dict and from_dict."""

import collections.abc
import dataclasses
import json
import types
import typing
from typing import Any

import jax
import pytest

from sparrow import config, losses, metrics, rules, schedules
from sparrow.config.loading.json_schema import KINDS
from sparrow.data import AutoDis, Expr, IdFeature, Parquet
from sparrow.data.features.dynamic import DynamicRows
from sparrow.models import MLP, TaskTower, Tower
from sparrow.models.rankers.mask_net import MaskBlocks
from sparrow.registry import Registry, fields_of, registry_of
from tests.config.test_records import record_of

RECORDS = [(registry, name) for registry in KINDS for name in registry.names()]
every_record = pytest.mark.parametrize(("registry", "name"), RECORDS, ids=lambda x: getattr(x, "kind", x))

VALUES: dict[Any, Any] = {
    "scanned_layers": r"layers/.*",
    "params_partition_specs": {"w": None},
    "learning_rate": schedules.cosine(0.2, 0.0, steps=9),
    "dtype": "bfloat16",
    "num_classes": 3,
    "lr_style": "adam",
    "hidden_units": (8, 4),
    "momentum_dtype": "bfloat16",
    "mu_dtype": "bfloat16",
    "cache": 100,
}
"""By field: values that suit everywhere."""

_DYNAMIC = {"num_buckets": None, "hash_bucket_size": None, "vocabulary": None, "dynamic": DynamicRows(rows=7, admit=2)}
TOGETHER: dict[str, dict[str, Any]] = {
    "id": _DYNAMIC,
    "raw": {"embedding": AutoDis(num_channels=3), "embedding_dim": 4},
    "raw_sequence": {"boundaries": (1.0, 2.5), "embedding_dim": 4, "table": "ages"},
    "manual_steps": {"schedule_sizes": (2, 5), "learning_rates": (0.2, 0.1)},
    "csv": {"path": ("a.csv", "b.csv"), "columns": ("x", "y")},
    "parquet": {"path": ("a.parquet", "b.parquet")},
    "rowwise_adagrad": {"weight_decay": 0.1, "weight_decay_mode": "l2"},
    "bag_sequence": {"element": IdFeature("x", num_buckets=5, embedding_dim=3, pooling="mean")},
    "follow": {"path": None, "source": Parquet("other/*.parquet")},
    "kafka": {"format": "csv", "columns": ("a", "b"), "types": {"a": "int64"}},
}
"""By record: fields that only change together."""

RECORD_OF: dict[str, Any] = {
    "metric": metrics.NDCGAtK(top_k=3),
    "source": Parquet("other.parquet"),
    "computed column": Expr("a * 2"),
    "feature": IdFeature("y", num_buckets=5, embedding_dim=3, pooling="mean"),
    "embedding of numbers": AutoDis(num_channels=3),
}
"""By kind: a record inside another one."""


def other_value(hint: Any, default: Any, name: str) -> Any:
    """A value of the type ``hint`` that is not the default."""
    if name in VALUES and VALUES[name] != default:
        return VALUES[name]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        kept = sorted((a for a in arguments if a not in (type(None), jax.Array)), key=lambda a: a is str)
        scheduled = [a for a in kept if typing.get_origin(a) is collections.abc.Callable]
        other = schedules.linear(0.3, 0.1, steps=7) if scheduled else other_value(kept[0], default, name)
        return None if other == default and type(None) in arguments else other
    if origin is typing.Literal:
        return next((choice for choice in arguments if choice != default), default)
    if (registry := registry_of(hint)) is not None:
        return RECORD_OF[registry.kind]
    if dataclasses.is_dataclass(default):
        return changed(default)
    if isinstance(default, tuple) and default and dataclasses.is_dataclass(default[0]):
        return (changed(default[0]), *default[1:])
    if origin in (tuple, collections.abc.Sequence):
        items = arguments[:1] * 2 if len(arguments) == 1 or arguments[-1] is ... else arguments
        return tuple(other_value(item, None, name) for item in items)
    if origin is collections.abc.Mapping:
        return {"a": other_value(arguments[1], None, name)}
    if hint is bool:
        return not default
    if hint is int:
        return (default or 2) + 1
    if hint is float:
        return (default or 0.25) * 0.5
    if hint is str:
        return f"{default or name}"
    return {
        MLP: MLP((8, 4), dropout_ratio=(0.5, 0.1)),
        Tower: Tower("user", MLP((4,))),
        TaskTower: TaskTower("click"),
        DynamicRows: _DYNAMIC["dynamic"],
        MaskBlocks: MaskBlocks(2, aggregation_dim=4, hidden_dim=4),
    }[hint]


def changed(record: Any) -> Any:
    """The record with one field changed, the first that may be."""
    for field, of in fields_of(type(record)).items():
        try:
            other = dataclasses.replace(record, **{field: other_value(of.hint, getattr(record, field), field)})
        except (ValueError, TypeError, KeyError):
            continue
        if other != record:
            return other
    raise AssertionError(f"no field of {record!r} can be changed")


def variants(registry: Registry[Any], name: str) -> dict[str, Any]:
    """The record with each field changed by itself, by field, as far as the record allows it."""
    base = record_of(registry, name)
    made = {"": base}
    for field, of in fields_of(type(base)).items():
        value = other_value(of.hint, getattr(base, field), field)
        try:
            made[field] = dataclasses.replace(base, **{field: value})
        except (ValueError, TypeError):
            continue  # a field that depends on others
    changes = TOGETHER.get(name, {})
    together = dataclasses.replace(base, **changes)
    return {**made, **dict.fromkeys(changes, together)}


@every_record
def test_survives(registry, name):
    for field, record in variants(registry, name).items():
        assert registry.from_dict(registry.to_dict(record)) == record, field
        assert registry.from_json(registry.to_json(record)) == record, field
        assert registry.from_yaml(registry.to_yaml(record)) == record, field
        assert registry.read(json.loads(json.dumps(registry.to_dict(record)))) == record, field


def test_every_kind_of_field_was_tried():
    """A field that no variant changed, because it depends on others, is of a type that another one tried."""
    tried, left = set(), set()
    for registry, name in RECORDS:
        made = variants(registry, name)
        for field, of in fields_of(registry[name]).items():
            changed = field in made and getattr(made[field], field) != getattr(made[""], field)
            (tried if changed else left).add((str(of.hint), f"{registry.kind}.{name}.{field}"))
    types_left = {hint for hint, _ in left} - {hint for hint, _ in tried}
    assert not types_left, [place for hint, place in left if hint in types_left]


@pytest.mark.parametrize("name", rules.RULES.names())
def test_every_rule_with_schedules_for_all_its_numbers(name):
    rule = dataclasses.replace(rules.RULES[name](), **TOGETHER.get(name, {}))
    scheduled = [field for field, of in fields_of(type(rule)).items() if "Callable" in str(of.hint)]
    assert "learning_rate" in scheduled
    rate = schedules.linear(0.3, 0.1, steps=7)
    made = dataclasses.replace(rule, **dict.fromkeys(scheduled, rate))
    written = config.RULES.to_dict(made)
    assert written["learning_rate"] == {**schedules.to_dict(rate)}
    assert config.RULES.from_dict(written) == made
    assert config.RULES.from_dict(json.loads(json.dumps(written))) == made


def test_losses_and_metrics_inside_others():
    nested = metrics.Decayed(metrics.AUC(thresholds=50), decay_rate=0.5)
    assert metrics.registry.from_dict(metrics.registry.to_dict(nested)) == nested
    assert losses.registry.from_dict({"name": "l2"}) == losses.L2()
