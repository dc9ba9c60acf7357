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

import jax
import pydantic
from pydantic import BaseModel, ConfigDict
from pydantic_core import core_schema

from sparrow.config.loading.plain import freeze
from sparrow.config.loading.problems import problems
from sparrow.config.loading.registries import (
    BASES,
    FEATURES,
    INITIALIZERS,
    LOSSES,
    METRICS,
    MODELS,
    OPTIMIZERS,
    SCHEDULES,
    SOURCES,
    is_record,
    key_of,
)
from sparrow.data import Feature, Label, Source
from sparrow.dense import DenseOptimizer
from sparrow.embedding import Initializer
from sparrow.errors import ConfigError, Problem, shown
from sparrow.losses import Loss
from sparrow.metrics import Metric
from sparrow.models import ModelRecord
from sparrow.optimizer import LossScale
from sparrow.registry import Registry, nearest
from sparrow.rules import RULES, Rule

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

PLACEHOLDER: Final = "x-sparrow-record"
"""Stands for the kind of a record in a JSON schema, until `json_schema` writes all kinds down once."""


@dataclasses.dataclass(frozen=True)
class RecordField:
    """The type of a field that holds a record of ``registry``.

    A record is written as a mapping with a ``name``, or as its name alone where the defaults will do. With
    ``or_number`` a plain number is taken too, as for a learning rate. From Python a record may stand there itself, also
    one without a name (an optax schedule, a table in memory): such a config runs, and cannot be written.
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
        if is_record(self.registry, value):
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


RuleRecord = Annotated[Rule, RecordField(RULES)]
OptimizerRecord = Annotated[DenseOptimizer, RecordField(OPTIMIZERS)]
LossRecord = Annotated[Loss, RecordField(LOSSES)]
MetricRecord = Annotated[Metric[Any], RecordField(METRICS)]
LearningRate = Annotated[float | Callable[[Any], Any], RecordField(SCHEDULES, or_number=True)]
FeatureRecord = Annotated[Feature, RecordField(FEATURES)]
SourceRecord = Annotated[Source, RecordField(SOURCES)]
ArchitectureRecord = Annotated[ModelRecord, RecordField(MODELS)]
InitializerRecord = Annotated[Initializer, RecordField(INITIALIZERS)]
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
        # A file holds no arrays: they are for hyper-parameters that are learned, in Python.
        return typing.Union[tuple(field_type(argument) for argument in arguments if argument is not jax.Array)]  # noqa: UP007
    if origin is tuple:
        return tuple[tuple(item if item is ... else field_type(item) for item in arguments)]  # type: ignore[misc]
    cls = origin or hint
    if not isinstance(cls, type):
        return hint
    for base, registry in BASES:
        if issubclass(cls, base):
            return Annotated[Any, RecordField(registry)]
    return Annotated[Any, DataclassField(cls)] if dataclasses.is_dataclass(cls) else hint
