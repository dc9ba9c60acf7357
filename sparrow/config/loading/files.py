"""Configs in files, texts and plain values: YAML, JSON, Python, TorchEasyRec's text format; overrides of fields."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from sparrow.config.sections.config import Config
from sparrow.data import source_of
from sparrow.errors import ConfigError, Problem, dotted, shown
from sparrow.errors import Path as FieldPath
from sparrow.files import AnyPath, at, run_file, text_of
from sparrow.registry import dump_yaml, freeze, load_yaml, nearest, yaml_classes
from sparrow.registry import written as plain

SUFFIXES: Final = (".yaml", ".yml", ".json", ".py", ".config")
DATA_SUFFIXES: Final = (".csv", ".tsv", ".parquet")
MAX_VALUES: Final = 200_000
"""More than any config holds."""


def load(path: str | AnyPath, overrides: Iterable[str] = (), note: Callable[[str], None] = lambda line: None) -> Config:
    """Read a config file by its suffix: .yaml, .yml, .json, .py (which defines ``config``) or .config (TorchEasyRec).

    ``overrides`` are strings such as ``train.batch_size=4096``; for a config of TorchEasyRec also fields of its own,
    such as ``train_config.num_epochs=1``, whose notes on fields without effect go to ``note``. Raises `ConfigError`,
    with one line for each problem.
    """
    path = at(path)
    if path.suffix not in SUFFIXES:
        hint = f"; `sparrow init {path} first.yaml` writes a config for data" if path.suffix in DATA_SUFFIXES else ""
        raise ConfigError(f"unknown ending '{path.suffix}': {nearest(path.suffix, SUFFIXES)}{hint}", str(path))
    if path.suffix == ".py":
        return _from_python(run_file(str(path)), str(path), overrides)
    return loads(text_of(path, ConfigError), path.suffix.removeprefix("."), str(path), overrides, note)


def path_fields(path: str | Path) -> list[str]:
    """Return the fields of a config of TorchEasyRec that name input files."""
    from sparrow.config.torcheasyrec import path_fields

    return path_fields(text_of(at(path), ConfigError), str(path))


def import_report(path: str | Path, overrides: Iterable[str] = ()) -> tuple[list[str], ConfigError | None]:
    """Return a line for each field of a config of TorchEasyRec, and its problems, if any."""
    from sparrow.config.torcheasyrec import from_override, is_edit, read_config

    imported = read_config(text_of(at(path), ConfigError), str(path), map(from_override, filter(is_edit, overrides)))
    return [str(outcome) for outcome in imported.outcomes], imported.error


def loads(
    text: str,
    form: str = "yaml",
    source: str | None = None,
    overrides: Iterable[str] = (),
    note: Callable[[str], None] = lambda line: None,
) -> Config:
    """Read a config from a string in the format ``yaml`` (or ``yml``), ``json`` or ``config`` (TorchEasyRec).

    ``overrides`` and ``note`` are as in `load`.

    >>> loads("train: {batch_size: many}", overrides=["train.steps=10"])
    Traceback (most recent call last):
    sparrow.errors.ConfigError: line 1: train.sparse_optimizer: is required
    line 1: train.dense_optimizer: is required
    line 1: train.batch_size: must be an integer, got 'many'
    line 1: tasks: is required
    """
    if form == "config":
        from sparrow.config.torcheasyrec import from_override, is_edit, read_config

        written = list(overrides)
        imported = read_config(text, source, map(from_override, filter(is_edit, written)))
        if imported.config is None:
            raise imported.error or ConfigError("cannot be imported", source)
        for outcome in imported.outcomes:
            if outcome.is_note:
                note(f"{source or ''}: {outcome}".removeprefix(": "))
        ours = [override for override in written if not is_edit(override)]
        return from_mapping(plain(imported.config), source, ours) if ours else imported.config
    if form == "json":
        return from_mapping(_read_json(text, source), source, overrides)
    if form in ("yaml", "yml"):
        data, lines = _read_yaml(text, source)
        return from_mapping(data, source, overrides, lines)
    raise ConfigError(f"unknown format '{form}': {nearest(form, ('yaml', 'json', 'config'))}", source)


def from_mapping(
    data: Any, source: str | None = None, overrides: Iterable[str] = (), lines: Mapping[FieldPath, int] | None = None
) -> Config:
    """Return the config that ``data`` describes. ``lines`` holds the lines of its values in the file."""
    if not isinstance(data, Mapping):
        raise ConfigError(f"a config is a mapping of sections, got {shown(data)}", source)
    overridden: list[FieldPath] = []
    try:
        fields = freeze(data)
        for text in overrides:
            overridden.append(parse_override(text)[0])
            fields = override(fields, text)
        return Config(**freeze(with_table_vocabularies(fields)))
    except ConfigError as error:
        known = lines or {}
        raise ConfigError([_located(problem, known, overridden) for problem in error.problems], source) from None
    except RecursionError:
        raise ConfigError("is nested too deeply", source) from None


def dumps(config: Config, form: str = "yaml", defaults: bool = False) -> str:
    """Return the config as a string that `loads` reads back to an equal one.

    Fields that have their default value are left out, unless ``defaults``.
    """
    data = plain(config, defaults)
    if form == "json":
        return json.dumps(data, indent=2, ensure_ascii=False) + "\n"
    if form == "yaml":
        return dump_yaml(data)
    raise ConfigError(f"unknown format '{form}': {nearest(form, ('yaml', 'json'))}")


def _from_python(names: Mapping[str, Any], source: str, overrides: Iterable[str]) -> Config:
    config = names.get("config")
    if isinstance(config, Config):
        return from_mapping(plain(config), source, overrides) if overrides else config
    if not isinstance(config, Mapping):
        raise ConfigError(f"must define 'config', a Config or a dict; got {shown(config)}", source)
    return from_mapping(config, source, overrides)


def _read_json(text: str, source: str | None) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        data = dict(pairs)
        if len(data) < len(pairs):
            twice = next(key for key, _ in pairs if sum(key == other for other, _ in pairs) > 1)
            raise ConfigError(f"the field '{twice}' is given twice in one mapping", source)
        return data

    try:
        return json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise ConfigError(
            [Problem((), f"is not JSON: {error.msg} (column {error.colno})", error.lineno)], source
        ) from None
    except RecursionError:
        raise ConfigError("is nested too deeply", source) from None
    except ConfigError:
        raise
    except ValueError as error:  # a number with too many digits
        raise ConfigError(f"is not JSON: {error}", source) from None


def _read_yaml(text: str, source: str | None) -> tuple[Any, dict[FieldPath, int]]:
    """Return the values, and the line of each."""
    import yaml

    lines: dict[FieldPath, int] = {}
    try:
        loader = yaml_classes()[0](text)
        root = loader.get_single_node()
        if root is None:
            return None, lines
        _walk(root, (), lines, source)
        return loader.construct_document(root), lines
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = " ".join(part for part in (error.context, error.problem) if part)
        raise ConfigError([Problem((), f"is not YAML: {what}", mark.line + 1 if mark else None)], source) from None
    except yaml.YAMLError as error:
        raise ConfigError(f"is not YAML: {str(error).splitlines()[0]}", source) from None
    except ConfigError:
        raise
    except RecursionError:
        raise ConfigError("is nested too deeply", source) from None
    except (ValueError, TypeError, OverflowError, KeyError, IndexError, AttributeError) as error:
        # PyYAML's own constructors, on a value such as the date 2020-99-99.
        raise ConfigError(f"is not YAML: {error}", source) from None


def _walk(node: Any, path: FieldPath, lines: dict[FieldPath, int], source: str | None) -> None:
    """Note the line of every value; a field that is given twice is an error."""
    import yaml

    if len(lines) > MAX_VALUES:  # a few aliases of aliases can stand for billions of values
        raise ConfigError(f"holds more than {MAX_VALUES} values", source)
    lines[path] = node.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _walk(item, (*path, index), lines, source)
    elif isinstance(node, yaml.MappingNode):
        for key, item in node.value:
            below = (*path, str(key.value))
            if below in lines:
                line = key.start_mark.line + 1
                raise ConfigError([Problem(below, f"is given twice, first on line {lines[below]}", line)], source)
            _walk(item, below, lines, source)
            lines[below] = key.start_mark.line + 1


def _located(problem: Problem, lines: Mapping[FieldPath, int], overridden: Iterable[FieldPath]) -> Problem:
    """Return the problem with the line of its field, or of the nearest enclosing one; overrides have no line."""
    path = problem.path
    if problem.line or any(path[: len(over)] == over for over in overridden):
        return problem
    while path and path not in lines:
        path = path[:-1]
    return Problem(problem.path, problem.message, lines.get(path))


def evaluated_on(config: Config, data: Any) -> Config:
    """Return the config with other data to evaluate on, as `sparrow.data.source_of` takes it.

    Files are read with the options of ``data.evaluate``, else of ``data.train``, where these read such files.
    """
    section = config.data
    if section is None:
        raise ConfigError("is required", at=("data",))
    source = source_of(data, section.evaluate, section.train)
    return config.model_copy(update={"data": section.model_copy(update={"evaluate": source})})


_STEP: Final = re.compile(r"([A-Za-z_][\w-]*)|\[(\d{1,9})\]", re.ASCII)


def override(data: Mapping[str, Any], text: str) -> dict[str, Any]:
    """Return ``data`` with one field set; the value is read as YAML.

    A mapping that is not there yet is made; a place in a list must be there. ``null`` sets None.

    >>> override({"train": {"steps": 10}}, "train.dense_optimizer.learning_rate=1e-3")
    {'train': {'steps': 10, 'dense_optimizer': {'learning_rate': 0.001}}}
    >>> override({"losses": ("l2",)}, "losses[1]=jrc")
    Traceback (most recent call last):
    sparrow.errors.ConfigError: losses[1]: there is no such index, the length of the list is 1
    """
    path, value = parse_override(text)
    return dict(_set(data, path, value, ()))


def parse_override(text: str) -> tuple[FieldPath, Any]:
    """Return the field and the value of an override."""
    where, equals, value = text.partition("=")
    path = _path(where.strip())
    if not equals or path is None:
        raise ConfigError(f"an override is written field.field=value or field[0].field=value, got {shown(text)}")
    import yaml

    try:
        return path, load_yaml(value)
    except RecursionError:
        raise ConfigError("the override is nested too deeply", at=path) from None
    except (yaml.YAMLError, ValueError, TypeError, OverflowError, KeyError, IndexError, AttributeError):
        raise ConfigError(f"the override's value is not YAML: {shown(value)}", at=path) from None


def _path(text: str) -> FieldPath | None:
    """``tasks.click.losses[0]`` as keys and positions; None where it is not written so."""
    path: list[str | int] = []
    for part in text.split("."):
        steps = list(_STEP.finditer(part))
        if "".join(step.group() for step in steps) != part or not steps or steps[0].group(1) is None:
            return None
        if any(step.group(1) for step in steps[1:]):
            return None
        path += [step.group(1) or int(step.group(2)) for step in steps]
    return tuple(path)


def _set(node: Any, path: FieldPath, value: Any, done: FieldPath) -> Any:
    if not path:
        return value
    key, rest = path[0], path[1:]
    here = (*done, key)
    if isinstance(key, int):
        if not isinstance(node, list | tuple):
            raise ConfigError(f"is not a list, so {dotted(here)} cannot be set", at=done)
        if key >= len(node):
            raise ConfigError(f"there is no such index, the length of the list is {len(node)}", at=here)
        return (*node[:key], _set(node[key], rest, value, here), *node[key + 1 :])
    if isinstance(node, str):
        node = {"name": node}  # a record that is written by its name alone
    if node is None:
        node = {}
    if not isinstance(node, Mapping):
        raise ConfigError(f"is {shown(node)}, so {dotted(here)} cannot be set", at=done)
    return {**node, key: _set(node.get(key), rest, value, here)}


DYNAMIC: Final = "dynamic"
KINDS: Final = ("id", "sequence")
MAPPINGS: Final = ("num_buckets", "hash_bucket_size", "vocabulary", DYNAMIC)


def with_table_vocabularies(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a config's fields with the vocabularies of tables given to their features; other fields are not checked.

    >>> feature = {"kind": "id", "name": "user", "embedding_dim": 4}
    >>> made = with_table_vocabularies({"data": {"features": [feature]},
    ...                                 "model": {"tables": [{"tables": ["user"], "dynamic": {"rows": 9}}]}})
    >>> made["data"]["features"][0]["dynamic"], made["model"]["tables"]
    ({'rows': 9}, [])
    """
    model, data = fields.get("model"), fields.get("data")
    entries = _list(model, "tables")
    if not any(isinstance(entry, Mapping) and entry.get(DYNAMIC) is not None for entry in entries):
        return fields
    features = [dict(each) if isinstance(each, Mapping) else each for each in _list(data, "features")]
    left = []
    for number, entry in enumerate(entries):
        if not isinstance(entry, Mapping) or entry.get(DYNAMIC) is None:
            left.append(entry)
            continue
        where = ("model", "tables", number, DYNAMIC)
        found = [each for each in features if isinstance(each, dict) and _reads(each, entry.get("tables", ()))]
        if not found:
            raise ConfigError("no id or sequence feature reads one of these tables", at=where)
        for each in found:
            if own := [field for field in MAPPINGS if each.get(field) is not None]:
                text = f"the feature '{each.get('name')}' of this table has {own[0]} of its own; remove one of them"
                raise ConfigError(text, at=where)
            each[DYNAMIC] = entry[DYNAMIC]
        others = {field: value for field, value in entry.items() if field != DYNAMIC}
        if others.keys() != {"tables"}:
            left.append(others)
    assert isinstance(model, Mapping)
    assert isinstance(data, Mapping)
    return {**fields, "model": {**model, "tables": left}, "data": {**data, "features": features}}


def _list(section: Any, field: str) -> Sequence[Any]:
    given = section.get(field) if isinstance(section, Mapping) else None
    return given if isinstance(given, list | tuple) else ()


def _reads(feature: Mapping[str, Any], patterns: Any) -> bool:
    name = feature.get("table") or feature.get("name")
    if feature.get("kind") not in KINDS or not isinstance(name, str):
        return False
    given: Iterable[Any] = [patterns] if isinstance(patterns, str) else patterns
    try:
        return any(isinstance(pattern, str) and re.fullmatch(pattern, name) for pattern in given)
    except (re.error, TypeError):  # reported where the entry is checked
        return False
