"""Pages of the documentation site that are made from the code: config fields, commands, the Python reference."""

from __future__ import annotations

import argparse
import inspect
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from sparrow.cli.parsing import make_parser
from sparrow.config.loading.json_schema import json_schema

sys.path.insert(0, str(Path(__file__).parent))
from site_docstrings import markdown
from site_names import ROOMS, described, listed, module_of

EXAMPLES = Path(__file__).parents[1] / "examples"
EXAMPLES_PAGE = "reference/examples.md"
KINDS = {
    "source": "Sources (`data.train`, `data.evaluate`)",
    "feature": "Features (`data.features`)",
    "model": "Models (`model.architecture`)",
    "encoder": "Encoders of sequences",
    "initializer": "Initializers of tables",
    "loss": "Losses (`tasks.*.losses`)",
    "metric": "Metrics (`tasks.*.metrics`)",
    "rule": "Rules of tables (`train.sparse_optimizer`)",
    "optimizer": "Dense optimizers (`train.dense_optimizer`)",
    "schedule": "Schedules (any `learning_rate`)",
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages; mkdocs calls this."""
    pages = {"reference/config.md": fields_page(), "reference/commands.md": commands_page()}
    pages[EXAMPLES_PAGE] = examples_page()
    pages |= {f"reference/python/{room}.md": python_page(room) for room in ROOMS}
    for path, content in pages.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(text: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Link the name of each example to its text; mkdocs calls this."""
    top = "../" * page.file.src_uri.count("/")

    def linked(match: re.Match[str]) -> str:
        return f"[{match[0]}]({top}{EXAMPLES_PAGE}#{slug(match[1])})"

    parts = re.split(r"(?ms)(^```.*?^```$)", text)  # prose, and blocks of code at odd places
    parts[::2] = [re.sub(r"`(?:python )?examples/([\w.]+\.(?:py|yaml))`", linked, part) for part in parts[::2]]
    return "".join(parts)


def examples_page() -> str:
    """Return all examples, each whole."""
    parts = ["# Examples", "Complete programs and configs. Each is run by the tests."]
    for path in sorted(EXAMPLES.iterdir()):
        if path.suffix in (".py", ".yaml"):
            kind = "py" if path.suffix == ".py" else "yaml"
            parts += [f"## {path.name} {{: #{slug(path.name)} }}", f"```{kind}\n{path.read_text().rstrip()}\n```"]
    return "\n\n".join(parts)


# --- fields of configs ------------------------------------------------------------------------------------------------


def fields_page() -> str:
    """Return the reference of all fields, from the schema."""
    schema = json_schema()
    definitions = schema["$defs"]
    parts = ["# Config fields", "Made from the same records that read a config. A field without a default is required."]
    parts += ["## The sections", *table(schema)]
    for name, definition in sorted(inner(definitions).items()):
        parts += [f"## {name}", definition.get("description", ""), *table(definition)]
    kinds = [*KINDS, *(name for name in definitions if "anyOf" in definitions[name] and name not in KINDS)]
    for kind in kinds:
        if kind not in definitions or kind == "MetricUse":
            continue
        parts.append(f"## {KINDS.get(kind, kind.capitalize())} {{: #{slug(kind)} }}")
        for form in definitions[kind]["anyOf"]:
            if "properties" in form:
                (key,) = [field["const"] for field in form["properties"].values() if "const" in field]
                parts += [f"### `{key}` {{: #{slug(kind)}-{key} }}", form.get("description", ""), *table(form)]
    return "\n\n".join(parts)


def inner(node: Any) -> dict[str, dict[str, Any]]:
    """Return sections, and records without a registered name, by their titles."""
    if isinstance(node, list):
        node = dict(enumerate(node))
    if not isinstance(node, dict):
        return {}
    found = {title: made for part in node.values() for title, made in inner(part).items()}
    is_record = node.get("type") == "object" and "properties" in node
    is_named = is_record and any("const" in field for field in node["properties"].values())
    return found | {node["title"]: node} if is_record and not is_named else found


def table(definition: dict[str, Any]) -> Iterator[str]:
    """Yield a table of the fields of one section or record."""
    rows = ["| field | type | default | |", "|---|---|---|---|"]
    required = definition.get("required", [])
    for name, field in definition["properties"].items():
        if "const" in field:
            continue
        default = "required" if name in required else f"`{json.dumps(field.get('default'))}`"
        default = "" if len(default) > 60 else default
        rows.append(
            f"| `{name}` | {shown(kind_of(field))} | {shown(default)} | {shown(field.get('description', ''))} |"
        )
    if len(rows) > 2:
        yield "\n".join(rows)


def kind_of(field: dict[str, Any]) -> str:
    """Return the type of a field, in words."""
    if "$ref" in field:
        name = {"MetricUse": "metric"}.get(held := field["$ref"].rpartition("/")[2], held)
        return f"[{name}](#{slug(name)})"
    if "anyOf" in field:
        return " or ".join(dict.fromkeys(kind_of(member) for member in field["anyOf"]))
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if field.get("type") == "array":
        return f"list of {kind_of(field.get('items') or {})}"
    if "properties" in field:
        return f"[{field['title']}](#{slug(field['title'])})"
    return str(field.get("type", "any"))


def slug(name: str) -> str:
    """Return the anchor of a section or a kind of record."""
    return name.lower().replace(" ", "-")


def shown(text: str) -> str:
    """Return text that a cell of a table may hold."""
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


# --- commands ---------------------------------------------------------------------------------------------------------


def commands_page() -> str:
    """Return the help of every command."""
    parts = ["# Commands"]
    for name, command in subcommands(make_parser()).items():
        parts += [f"## sparrow {name}", f"```text\n{command.format_help()}\n```"]
    return "\n\n".join(parts)


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the commands, by name."""
    (choices,) = (action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return dict(choices)


# --- Python -----------------------------------------------------------------------------------------------------------


def python_page(room: str) -> str:
    """Return the reference of all public names of a room."""
    module = module_of(room)
    parts = [f"# {module.__name__ if room == 'sparrow' else f'sparrow.{room}'}"]
    parts.append(markdown(inspect.cleandoc(module.__doc__ or "")))
    rows = [f"| `{name}` | {shown(line)} |" for name, line in listed(room).items()]
    parts += ["\n".join(["| name | |", "|---|---|", *rows])] if rows else []
    # a shorter name of the same class, such as schedules.cosine, is on the page once
    once = {f"{value.__module__}.{value.__qualname__}": None for value in described(room).values()}
    parts += [f"::: {path}" for path in once]
    return "\n\n".join(parts)
