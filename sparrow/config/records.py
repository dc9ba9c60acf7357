"""Records inside a config: rules, schedules, optimizers, losses, metrics and the like, each a dataclass with a name.

The dataclass is the only source of truth: the fields that a config may give, their types and their defaults are read
off it, also for the JSON schema.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import pydantic
from pydantic import BaseModel, ConfigDict
from pydantic_core import core_schema

from sparrow.config.errors import ConfigError, Problem, shown
from sparrow.config.problems import problems
from sparrow.config.rules import RULES
from sparrow.data.features import Feature
from sparrow.data.features import registry as FEATURES
from sparrow.data.labels import Label
from sparrow.data.sources import Source
from sparrow.data.sources import registry as SOURCES
from sparrow.dense import OPTIMIZERS, DenseOptimizer
from sparrow.losses import Loss
from sparrow.losses import registry as LOSSES
from sparrow.metrics import Metric
from sparrow.metrics import registry as METRICS
from sparrow.models import ModelRecord
from sparrow.models import registry as MODELS
from sparrow.registry import Registry, nearest
from sparrow.rules import Rule
from sparrow.schedules import SCHEDULES
from sparrow.training import LossScale

STRICT: Final = ConfigDict(
    extra="forbid",
    strict=True,
    frozen=True,
    allow_inf_nan=False,
    arbitrary_types_allowed=True,
    protected_namespaces=(),
    use_attribute_docstrings=True,
)
"""Unknown fields are refused, and nothing is converted in silence: "3" is not a number, 1 is not true."""

REGISTRIES: Final[tuple[Registry[Any], ...]] = (
    RULES,
    SCHEDULES,
    OPTIMIZERS,
    LOSSES,
    METRICS,
    FEATURES,
    SOURCES,
    MODELS,
)
PLACEHOLDER: Final = "x-sparrow-record"
"""Stands for the kind of a record in a JSON schema, until `sparrow.config.json_schema` writes all kinds down once."""


def key_of(registry: Registry[Any]) -> str:
    """The field that says which record it is: a feature has a ``kind``, for its ``name`` is its own."""
    return "kind" if registry is FEATURES else "name"


@dataclasses.dataclass(frozen=True)
class RecordField:
    """The type of a field that holds a record of ``registry``.

    A record is written as a mapping with a ``name``, or as its name alone where the defaults will do. With
    ``or_number`` a plain number is taken too, as for a learning rate.
    """

    registry: Registry[Any]
    or_number: bool = False

    def read(self, value: Any) -> Any:
        """The record that ``value`` describes; a record is taken as it is."""
        if self.or_number and isinstance(value, int | float) and not isinstance(value, bool):
            return _finite(value)
        key = key_of(self.registry)
        if isinstance(value, str) and not self.or_number:
            value = {key: value}
        if isinstance(value, Mapping):
            return _from_mapping(self.registry, freeze(value))
        if any(type(value) is self.registry[name] for name in self.registry.names()):
            return value
        alone = "a number" if self.or_number else f"the name of a {self.registry.kind}"
        raise ConfigError(f"must be {alone}, or a {self.registry.kind} as a mapping with a '{key}', got {shown(value)}")

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        record = {PLACEHOLDER: self.registry.kind}
        return {"anyOf": [{"type": "number"}, record]} if self.or_number else record


@dataclasses.dataclass(frozen=True)
class DataclassField:
    """The type of a field that holds one dataclass, written as a mapping of its fields.

    Where it is ``optional``, ``true`` stands for the defaults and ``false`` for none.
    """

    cls: type[Any]
    optional: bool = False

    def read(self, value: Any) -> Any:
        """The object that ``value`` describes; an object is taken as it is."""
        if isinstance(value, Mapping):
            return _make(self.cls, freeze(value), {})
        if isinstance(value, self.cls):
            return value
        if self.optional and (value is None or isinstance(value, bool)):
            return self.cls() if value else None
        switch = ", true or false" * self.optional
        raise ConfigError(f"must be a mapping of fields{switch}, got {shown(value)}")

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        mapping = inlined(model_of(self.cls).model_json_schema())
        return {"anyOf": [{"type": "boolean"}, {"type": "null"}, mapping]} if self.optional else mapping


_BASES: Final[tuple[tuple[type[Any], Registry[Any]], ...]] = (
    (Metric, METRICS),
    (Loss, LOSSES),
    (Rule, RULES),
    (DenseOptimizer, OPTIMIZERS),
    (Feature, FEATURES),
    (Source, SOURCES),
    (ModelRecord, MODELS),
)
RuleRecord = Annotated[Rule, RecordField(RULES)]
OptimizerRecord = Annotated[DenseOptimizer, RecordField(OPTIMIZERS)]
LossRecord = Annotated[Loss, RecordField(LOSSES)]
MetricRecord = Annotated[Metric[Any], RecordField(METRICS)]
LearningRate = Annotated[float | Callable[[Any], Any], RecordField(SCHEDULES, or_number=True)]
FeatureRecord = Annotated[Feature, RecordField(FEATURES)]
SourceRecord = Annotated[Source, RecordField(SOURCES)]
ArchitectureRecord = Annotated[ModelRecord, RecordField(MODELS)]
LabelRecord = Annotated[Label, DataclassField(Label)]
LossScaleRecord = Annotated[LossScale | None, DataclassField(LossScale, optional=True)]


def inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """A JSON schema of a record, to stand inside another: records never need definitions of their own."""
    if "$defs" in schema:
        raise TypeError(f"the record {schema.get('title')} holds a type that has no place in a JSON schema")
    return schema


def _finite(value: float) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ConfigError(f"must be a finite number, got {shown(value)}")
    return number


def _from_mapping(registry: Registry[Any], value: Mapping[str, Any]) -> Any:
    key = key_of(registry)
    name = value.get(key)
    if not isinstance(name, str):
        raise ConfigError(f"a {registry.kind} needs a '{key}'. Valid names: {', '.join(registry.names())}")
    if name not in registry:
        raise ConfigError([Problem((key,), f"unknown {registry.kind} {name!r}: {nearest(name, registry.names())}")])
    return _make(registry[name], {field: item for field, item in value.items() if field != key}, {key: name})


def _make(cls: type[Any], fields: Mapping[str, Any], extra: Mapping[str, Any]) -> Any:
    model = model_of(cls)
    try:
        checked = model.model_validate(dict(fields))
    except pydantic.ValidationError as error:
        raise ConfigError(problems(error, fields, [*extra, *model.model_fields])) from None
    try:
        return cls(**{key: getattr(checked, key) for key in checked.model_fields_set})
    except ConfigError:
        raise
    except (ValueError, TypeError) as error:  # what the record itself says of its values
        raise ConfigError(str(error)) from None


def model_of(cls: type[Any]) -> type[BaseModel]:
    """The pydantic model of a dataclass: the same fields, types and defaults."""
    if cls not in _MODELS:
        _MODELS[cls] = _model_of(cls)
    return _MODELS[cls]


_MODELS: Final[dict[type[Any], type[BaseModel]]] = {}


def _model_of(cls: type[Any]) -> type[BaseModel]:
    hints = typing.get_type_hints(cls)
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        if not field.init:
            continue
        default: Any = ...
        if field.default is not dataclasses.MISSING:
            default = field.default
        elif field.default_factory is not dataclasses.MISSING:
            default = pydantic.Field(default_factory=field.default_factory)
        fields[field.name] = (field_type(hints[field.name]), default)
    # A record may not be checked before it is built: only what a config gives is.
    config = ConfigDict(**STRICT, title=cls.__name__)
    model: type[BaseModel] = pydantic.create_model(cls.__name__, __config__=config, **fields)
    return model


def field_type(hint: Any) -> Any:
    """A dataclass field's type as configs read it: functions are schedules, and records are mappings."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        if any(typing.get_origin(argument) is collections.abc.Callable for argument in arguments):
            return LearningRate | None if type(None) in arguments else LearningRate
        return typing.Union[tuple(map(field_type, arguments))]  # noqa: UP007
    if origin is tuple:
        return tuple[tuple(item if item is ... else field_type(item) for item in arguments)]  # type: ignore[misc]
    cls = origin or hint
    if not isinstance(cls, type):
        return hint
    for base, registry in _BASES:
        if issubclass(cls, base):
            return Annotated[Any, RecordField(registry)]
    return Annotated[Any, DataclassField(cls)] if dataclasses.is_dataclass(cls) else hint


def freeze(value: Any, path: tuple[str | int, ...] = ()) -> Any:
    """The value with tuples for lists and plain dicts for mappings, whose keys must be texts."""
    if isinstance(value, list | tuple):
        return tuple(freeze(item, (*path, index)) for index, item in enumerate(value))
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise ConfigError([Problem(path, f"a field's name must be a text, got {shown(key)}; put it in quotes")])
        return {key: freeze(item, (*path, key)) for key, item in value.items()}
    return value


def plain(value: Any, defaults: bool = False, where: str = "config") -> Any:
    """A section, a record or a value as mappings, lists, texts and numbers: what a file holds.

    Fields that have their default value are left out, unless ``defaults``; a record of defaults alone is its name.
    """
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    if isinstance(value, BaseModel):
        kept = [
            name
            for name, field in type(value).model_fields.items()
            if defaults or field.is_required() or getattr(value, name) != field.get_default(call_default_factory=True)
        ]
        fields = {name: plain(getattr(value, name), defaults, f"{where}.{name}") for name in kept}
        return value.written(fields) if hasattr(value, "written") else fields
    if isinstance(value, Mapping):
        return {str(key): plain(item, defaults, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, defaults, where) for item in value]
    for registry in REGISTRIES:
        for name in registry.names():
            if type(value) is registry[name]:
                fields = _plain_fields(value, defaults, where)
                return {key_of(registry): name, **fields} if fields else name
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain_fields(value, defaults, where) or (True if isinstance(value, LossScale) else {})
    raise ConfigError(f"{where} is {shown(value)}, which has no name that a config could hold; register it")


def _plain_fields(record: Any, defaults: bool, where: str) -> dict[str, Any]:
    fields = {}
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        if field.init and (defaults or value != default):
            fields[field.name] = plain(value, defaults, f"{where}.{field.name}")
    return fields
