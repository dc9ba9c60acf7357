"""Edits of a file before it is read: ``train_config.num_epochs=1``, as TorchEasyRec's command line has them.

A path is dotted. ``feature_configs[2]`` is one entry of a list, ``[1:3]`` and ``[:]`` are several, and
``[id_feature.feature_name=user]`` are those with a value; besides ``=`` there are ``>=``, ``<=``, ``>`` and ``<``.
"""

from __future__ import annotations

import dataclasses
import json
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from sparrow.config.torcheasyrec import text
from sparrow.config.torcheasyrec.messages import MESSAGES, FieldSpec
from sparrow.errors import ConfigError, shown
from sparrow.registry import nearest

ROOT: Final = "EasyRecConfig"
_STEP: Final = re.compile(r"(\w+)(?:\[([^\]]*)\])?(?:\.|$)", re.ASCII)
_OPERATORS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "=": operator.eq,
}


class Edit(NamedTuple):
    """A field and its new value, as text."""

    path: str
    value: str


def is_edit(override: str) -> bool:
    """Return whether an override on the command line is of a field of TorchEasyRec's.

    >>> is_edit("train_config.num_epochs=1"), is_edit("train.batch_size=8")
    (True, False)
    """
    return re.split(r"[.\[=]", override, maxsplit=1)[0].strip() in MESSAGES[ROOT]


def from_override(override: str) -> Edit:
    """Return the edit of an override ``path=value``; the path may hold ``=`` in brackets."""
    match = re.match(r"\s*((?:[^=\[]|\[[^\]]*\])+)=", override)
    if match is None:
        raise ConfigError(f"an override is written field.field=value, got {shown(override)}")
    return Edit(match.group(1).strip(), override[match.end() :].strip())


def from_json(written: str) -> list[Edit]:
    """Return the edits of a JSON object of paths and values, as ``--edit_config_json`` takes it.

    >>> from_json('{"train_config.num_epochs": 1}')
    [Edit(path='train_config.num_epochs', value='1')]
    """
    try:
        data = json.loads(written)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ConfigError(f"--edit_config_json is not JSON: {error}") from None
    if not isinstance(data, Mapping):
        raise ConfigError(f"--edit_config_json must be an object of paths and values, got {shown(data)}")
    made = []
    for paths, value in data.items():
        joined = value if isinstance(value, str) else json.dumps(value)
        several = paths.split(";")
        values = joined.split(";") if len(several) > 1 else [joined]
        if len(several) != len(values):
            raise ConfigError(f"--edit_config_json: {shown(paths)} has {len(several)} paths, and {shown(joined)} not")
        made += [Edit(path.strip(), part.strip()) for path, part in zip(several, values, strict=True)]
    return made


def edited(message: text.Message, edits: Iterable[Edit]) -> text.Message:
    """Return the file with the fields set, in order."""
    for edit in edits:
        steps = _STEP.findall(edit.path)
        if not steps or "".join(match.group() for match in _STEP.finditer(edit.path)) != edit.path:
            raise ConfigError(f"a field is written a.b, a[0].b or a[b=1].c; got {shown(edit.path)}")
        message = _set(message, ROOT, steps, edit)
    return message


def _set(message: text.Message, kind: str, steps: list[tuple[str, str]], edit: Edit) -> text.Message:
    """Return the message with the field that the steps lead to set."""
    (name, selector), *rest = steps
    specs = MESSAGES[kind]
    if name not in specs:
        raise ConfigError(f"{edit.path}: unknown field '{name}': {nearest(name, specs)}")
    spec = specs[name]
    if spec.kind == "refused":
        raise ConfigError(f"{edit.path}: not supported: {spec.of}")
    if selector or (rest and spec.repeated):
        return _set_some(message, spec, name, selector, rest, edit)
    old = [field for field in message.fields if field.name == name]
    # Another member of a choice gives way, as in a protocol buffer.
    kept = [
        field
        for field in message.fields
        if field.name != name and (spec.choice is None or specs.get(field.name, spec).choice != spec.choice)
    ]
    if not rest:
        return text.Message((*kept, text.Field(name, _values(spec, edit), 0, 0, is_list=spec.repeated)))
    if spec.kind != "message":
        raise ConfigError(f"{edit.path}: '{name}' holds no fields")
    inner = text.inner_fields(value for field in old for value in field.values)
    line = old[0].line if old else 0
    changed = _set(text.Message(inner), spec.of, rest, edit)
    return text.Message((*kept, text.Field(name, (changed,), line, 0)))


def _set_some(
    message: text.Message, spec: FieldSpec, name: str, selector: str, rest: list[tuple[str, str]], edit: Edit
) -> text.Message:
    """Return the message with some entries of a list changed."""
    if not spec.repeated or not selector:
        problem = "is not a list; remove []" if selector else "is a list; choose entries, such as [0] or [:]"
        raise ConfigError(f"{edit.path}: '{name}' {problem}")
    entries = [(field, value) for field in message.fields if field.name == name for value in field.values]
    places = _selected(selector, [value for _, value in entries], spec, edit)
    if not places:
        raise ConfigError(f"{edit.path}: no entry of '{name}' is selected by [{selector}]; there are {len(entries)}")
    fields = []
    for place, (field, value) in enumerate(entries):
        if place in places:
            if not rest:
                (value,) = _values(dataclasses.replace(spec, repeated=False), edit)
            elif isinstance(value, text.Message):
                value = _set(value, spec.of, rest, edit)
        fields.append(field._replace(values=(value,), is_list=False))
    return text.Message((*(field for field in message.fields if field.name != name), *fields))


def _selected(selector: str, values: list[text.Value], spec: FieldSpec, edit: Edit) -> set[int]:
    if re.fullmatch(r"\d+", selector):
        return {int(selector)} & set(range(len(values)))
    if match := re.fullmatch(r"(\d*):(\d*)", selector):
        start, stop = (int(part) if part else None for part in match.groups())
        return set(range(len(values))[start:stop])
    for sign, compare in _OPERATORS.items():
        path, found, wanted = selector.rpartition(sign)
        if found and spec.kind == "message":
            return {
                place
                for place, value in enumerate(values)
                if isinstance(value, text.Message) and _matches(value, spec.of, path.strip(), wanted.strip(), compare)
            }
    raise ConfigError(f"{edit.path}: [{selector}] selects no entry; write [0], [1:3], [:] or [field=value]")


def _matches(message: text.Message, kind: str, path: str, wanted: str, compare: Callable[[Any, Any], bool]) -> bool:
    """Return whether a field below a message compares with a value; one that is not given has its default."""
    found: Any = message
    spec: FieldSpec | None = None
    for name in path.split("."):
        known = MESSAGES.get(kind, {})  # a number holds no fields
        if (spec := known.get(name)) is None:
            raise ConfigError(f"[{path}]: unknown field '{name}': {nearest(name, known)}")
        values = [v for field in getattr(found, "fields", ()) if field.name == name for v in field.values]
        found, kind = (values[-1] if values else None), spec.of
    value: Any = getattr(found, "text", None) if found is not None or spec is None else spec.default
    if value is None:
        return False
    try:
        return compare(float(value), float(wanted))
    except ValueError:
        return compare(str(value), wanted.strip("'\""))


def _values(spec: FieldSpec, edit: Edit) -> tuple[text.Value, ...]:
    """Return the value of an edit in the form of a config file."""
    written = edit.value
    if spec.kind == "message":
        body = written.removeprefix("{").removesuffix("}") if written.startswith("{") else written
        return (text.parse(body, edit.path),)
    is_quoted = len(written) > 1 and written[0] == written[-1] and written[0] in "'\""
    if spec.kind == "string" and not is_quoted and not (spec.repeated and written.startswith("[")):
        return (text.Scalar("string", written),)
    (field,) = text.parse(f"value: {written}", edit.path).fields
    return field.values


def path_fields(source_text: str, source: str | None = None) -> list[str]:
    """Return the fields of a config that name input files: examples, and the tables of samplers.

    >>> path_fields('train_input_path: "" data_config { negative_sampler { input_path: "odps://items" } }')
    ['train_input_path', 'eval_input_path', 'data_config.negative_sampler.input_path']
    """
    found = ["train_input_path", "eval_input_path"]
    fields = text.parse(source_text, source).fields
    samplers = text.inner_fields(value for field in fields if field.name == "data_config" for value in field.values)
    for sampler in samplers:
        names = dict.fromkeys(own.name for own in text.inner_fields(sampler.values))
        found += [f"data_config.{sampler.name}.{name}" for name in names if name.endswith("input_path")]
    return found
