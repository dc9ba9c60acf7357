"""The contents of TorchEasyRec's configs: each known message, field and default, read from ``messages.txt``."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any, Final, Literal

Kind = Literal["number", "integer", "flag", "string", "enum", "message", "refused"]
MAX_INTEGER: Final = 2**64 - 1
_KINDS: Final[Mapping[str, Kind]] = {
    "float": "number",
    "extended": "number",
    "int": "integer",
    "signed": "integer",
    "bool": "flag",
    "str": "string",
}
_FIELD: Final = re.compile(r"(\w+)(!?)(\*?)(?::(\w+))?(?:=(.+?))?(?:@(\w+))?")


@dataclasses.dataclass(frozen=True)
class FieldSpec:
    """The values that a field of a message may hold.

    Attributes:
      kind: the kind of a value; "refused": the field is known, and not supported.
      default: TorchEasyRec's value where the field is not given; None: it distinguishes fields that are not given.
      of: the message or the enum of a value; for a refused field, the reason.
      repeated: whether the field may have several values.
      required: whether TorchEasyRec needs the field.
      choice: fields of one message with the same choice exclude each other (a protobuf oneof).
      note: the reason why the value has no effect here, whatever it is; "": it has one.
      fixed: the reason why only the default is accepted; "": any value is.
      is_signed: whether an integer may be below 0.
      may_be_infinite: whether a number may be infinity.
    """

    kind: Kind
    default: Any = None
    of: str = ""
    repeated: bool = False
    required: bool = False
    choice: str | None = None
    note: str = ""
    fixed: str = ""
    is_signed: bool = False
    may_be_infinite: bool = False


Fields = Mapping[str, FieldSpec]
"""The fields of a message, by name."""


def _spec(written: str, enums: Mapping[str, tuple[str, ...]]) -> tuple[str, FieldSpec]:
    """Return the name and the entry of one field."""
    match = _FIELD.fullmatch(written)
    assert match is not None, written
    name, required, repeated, kind, default, choice = match.groups()
    value: Any = () if repeated else default
    if default is not None and kind not in enums:
        value = ast.literal_eval({"true": "True", "false": "False"}.get(default, default))
        kind = kind or type(value).__name__
    return name, FieldSpec(
        _KINDS.get(kind, "enum" if kind in enums else "message"),
        value,
        "" if kind in _KINDS else kind,
        repeated=bool(repeated),
        required=bool(required),
        choice=choice,
        is_signed=kind == "signed",
        may_be_infinite=kind == "extended",
    )


def _read(text: str) -> tuple[Mapping[str, tuple[str, ...]], Mapping[str, Fields]]:
    """Return the enums and the messages of the file, which describes itself."""
    enums: dict[str, tuple[str, ...]] = {}
    messages: dict[str, dict[str, FieldSpec]] = {}
    marks: dict[str, list[tuple[str, str]]] = {"no effect": [], "fixed": [], "refused": []}
    plain = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)
    entries = [entry.partition(":")[::2] for entry in re.split(r"\n+(?=\S)", plain.strip())]
    for head, body in entries:
        if head in marks:
            fields, _, why = body.rpartition("\n")
            marks[head] += [(field, why.strip()) for field in fields.split()]
    changes: dict[str, dict[str, Any]] = {field: {"note": why} for field, why in marks["no effect"]}
    changes |= {field: {"fixed": why} for field, why in marks["fixed"]}
    for head, body in entries:
        name, _, parents = head.partition(" < ")
        if head.startswith("enum "):
            enums[head.removeprefix("enum ")] = tuple(body.split())
        elif head not in marks:
            own = dict(_spec(field, enums) for field in body.split())
            own = {f: dataclasses.replace(spec, **changes.get(f"{name}.{f}", {})) for f, spec in own.items()}
            messages[name] = {f: spec for parent in parents.split() for f, spec in messages[parent].items()} | own
            refused = [(field.removeprefix(f"{name}."), why) for field, why in marks["refused"]]
            messages[name] |= {f: FieldSpec("refused", None, why) for f, why in refused if "." not in f}
    return enums, {name: fields for name, fields in messages.items() if not name.startswith("_")}


ENUMS, MESSAGES = _read(resources.files(__package__).joinpath("messages.txt").read_text(encoding="utf-8"))
