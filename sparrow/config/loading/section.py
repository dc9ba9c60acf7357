"""`Section`: the base of all parts of a config, whose errors are one sentence each: field, problem, values allowed.

Records inside a config are fields of its sections: rules, schedules, optimizers, losses, metrics and the like. The
types of a record's fields decide how they are read, in `sparrow.registry`; pydantic, which reads the sections, asks
there.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, Self

import pydantic
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import core_schema

from sparrow.data import Feature, Label, Source
from sparrow.dense import DenseOptimizer
from sparrow.embedding import Initializer
from sparrow.errors import ConfigError, Path, Problem, shown
from sparrow.losses import Loss
from sparrow.metrics import Metric
from sparrow.models import ModelRecord
from sparrow.models.sequences import EncoderRecord as Encoder
from sparrow.optimizer import LossScale
from sparrow.registry import freeze, nearest, read, schema
from sparrow.rules import Rule

STRICT: Final = ConfigDict(
    extra="forbid", strict=True, frozen=True, allow_inf_nan=False, arbitrary_types_allowed=True, protected_namespaces=()
)
"""Unknown fields are refused, and nothing is converted in silence: "3" is not a number, 1 is not true."""


@dataclasses.dataclass(frozen=True)
class ReadAs:
    """The type of a section's field that `sparrow.registry.read` reads.

    A record is written as a mapping with a ``name``, or as its name alone where the defaults will do. From Python a
    record may stand there itself, also one without a name (an optax schedule, a table in memory): such a config runs,
    and cannot be written.

    Attributes:
      hint: the type.
      switch: whether ``true`` stands for the defaults of the dataclass ``hint``, ``false`` and nothing for None.
    """

    hint: Any
    switch: bool = False

    def read(self, value: Any) -> Any:
        """Return the object that ``value`` describes; an object is returned unchanged."""
        if self.switch and (value is None or isinstance(value, bool)):
            return self.hint() if value else None
        try:
            return read(self.hint, freeze(value))
        except ConfigError as error:
            if self.switch and not any(problem.path for problem in error.problems):
                raise ConfigError(f"must be a mapping of fields, true or false, got {shown(value)}") from None
            raise

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> dict[str, Any]:
        made = schema(self.hint)
        return {"anyOf": [{"type": "boolean"}, {"type": "null"}, made]} if self.switch else made


RuleRecord = Annotated[Rule, ReadAs(Rule)]
OptimizerRecord = Annotated[DenseOptimizer, ReadAs(DenseOptimizer)]
LossRecord = Annotated[Loss, ReadAs(Loss)]
MetricRecord = Annotated[Metric[Any], ReadAs(Metric[Any])]
LearningRate = Annotated[float | Callable[[Any], Any], ReadAs(float | Callable[[Any], Any])]
FeatureRecord = Annotated[Feature, ReadAs(Feature)]
SourceRecord = Annotated[Source, ReadAs(Source)]
ArchitectureRecord = Annotated[ModelRecord, ReadAs(ModelRecord)]
EncoderRecord = Annotated[Encoder, ReadAs(Encoder)]
InitializerRecord = Annotated[Initializer, ReadAs(Initializer)]
LabelRecord = Annotated[Label, ReadAs(Label)]
LossScaleRecord = Annotated[LossScale | None, ReadAs(LossScale, switch=True)]


class Section(BaseModel):
    """A part of a config: typed fields, unknown ones refused, never changed once made.

    Problems raise a `ConfigError` with one line each, from Python as from a file.
    """

    model_config = STRICT

    def __init__(self, **fields: Any) -> None:
        fields = freeze(fields)
        try:
            super().__init__(**fields)
        except pydantic.ValidationError as error:
            raise ConfigError(problems(error, fields, type(self).model_fields)) from None

    @pydantic.model_validator(mode="after")
    def _checked(self) -> Self:
        self._check()
        return self

    def _check(self) -> None:
        """Raise ValueError where the fields do not fit together."""


_SENTENCES: Final[Mapping[str, str]] = {
    "int_type": "must be an integer",
    "int_from_float": "must be an integer",
    "int_parsing_size": "must be an integer of reasonable size",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "string_type": "must be a text",
    "string_too_short": "must not be empty",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "is_instance_of": "must be a list",
    "dict_type": "must be a mapping of names to values",
    "mapping_type": "must be a mapping of names to values",
    "model_type": "must be a mapping of names to values",
    "none_required": "must be left out",
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le}",
    "literal_error": "must be {expected}",
}

_NOTHING: Final = object()


def problems(error: ValidationError, data: Mapping[str, Any], names: Iterable[str]) -> list[Problem]:
    """Return the problems of a model that was given ``data`` and has the fields ``names``.

    Where a value may be of several types, pydantic has one error for each; they become one problem.
    """
    by_type: dict[Path, list[str]] = {}
    result: list[Problem] = []
    for item in error.errors(include_url=False):
        path = _resolve(item["loc"], data, keep_last=item["type"] == "missing")
        cause = item.get("ctx", {}).get("error")
        if isinstance(cause, ConfigError):
            result += [problem.under(path) for problem in cause.problems]
            continue
        if item["type"] == "missing":
            result.append(Problem(path, "is required"))
        elif item["type"] == "extra_forbidden":
            result.append(Problem(path, f"unknown field: {nearest(str(item['loc'][-1]), names)}"))
        elif item["type"] == "too_short":
            # Entries that are wrong do not count for pydantic, and are problems of their own.
            if not _inside_at(data, path):
                result.append(Problem(path, "must not be empty"))
        elif cause is not None:  # a check of ours, whose sentence is complete
            result.append(Problem(path, str(cause)))
        elif (sentence := _sentence(item["type"], item)) not in by_type.setdefault(path, []):
            by_type[path].append(sentence)
    # A problem of one type, or within a value of it, says more than that the value is of no other type.
    outer = {path[:end] for path in by_type for end in range(len(path))}
    outer |= {problem.path[: end + 1] for problem in result for end in range(len(problem.path))}
    for path, sentences in by_type.items():
        if path not in outer:
            result.append(Problem(path, " or ".join(sentences) + _given(path, data)))
    return result


def _sentence(kind: str, item: Any) -> str:
    context = item.get("ctx", {})
    if kind in _SENTENCES:
        return _SENTENCES[kind].format(**context)
    message = str(item["msg"])
    return message[:1].lower() + message[1:]


def _given(path: Path, data: Any) -> str:
    """Return the tail of the sentence: the value, where there is one and it is not the complete config."""
    value = _inside_at(data, path)
    return f", got {shown(value)}" if path and value is not _NOTHING else ""


def _inside_at(data: Any, path: Path) -> Any:
    return functools.reduce(_inside, path, data)


def _resolve(loc: Sequence[str | int], data: Any, keep_last: bool) -> Path:
    """Pydantic's location without the tags that it adds for the members of a union."""
    path: list[str | int] = []
    value = data
    for position, key in enumerate(loc):
        below = _inside(value, key)
        if below is not _NOTHING:
            value = below
        elif not (keep_last and position == len(loc) - 1):
            continue
        path.append(key)
    return tuple(path)


def _inside(value: Any, key: str | int) -> Any:
    if isinstance(value, Mapping):
        return value.get(key, _NOTHING)
    if isinstance(value, tuple | list) and isinstance(key, int) and key < len(value):
        return value[key]
    return _NOTHING
