"""How the table of TorchEasyRec's messages is written: one line per field."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, Literal

Kind = Literal["number", "whole", "flag", "text", "enum", "message", "refused"]
MAX_WHOLE: Final = 2**64 - 1


@dataclasses.dataclass(frozen=True)
class FieldSpec:
    """What a field of a message may hold.

    Attributes:
      kind: what a value is; "refused": the field is known, and not supported.
      default: what TorchEasyRec takes where the field is not given; None: it can tell that it was not.
      of: the message or the enum that a value is of; of a refused field, why it is refused.
      repeated: whether there may be several.
      required: whether TorchEasyRec cannot do without.
      choice: fields of one message with the same choice exclude each other (a protobuf oneof).
    """

    kind: Kind
    default: Any = None
    of: str = ""
    repeated: bool = False
    required: bool = False
    choice: str | None = None


Fields = Mapping[str, FieldSpec]
"""The fields of a message, by name."""


def number(default: float | None = None) -> FieldSpec:
    """Return a floating-point number."""
    return FieldSpec("number", default)


def whole(default: int | None = None) -> FieldSpec:
    """Return an integer of at least 0."""
    return FieldSpec("whole", default)


def flag(default: bool | None = None) -> FieldSpec:
    """Return True or false."""
    return FieldSpec("flag", default)


def text(default: str | None = None) -> FieldSpec:
    """Return a quoted text."""
    return FieldSpec("text", default)


def enum(name: str, default: str | None = None) -> FieldSpec:
    """One of the words of the enum ``name``."""
    return FieldSpec("enum", default, name)


def message(name: str, choice: str | None = None) -> FieldSpec:
    """Fields between braces."""
    return FieldSpec("message", None, name, choice=choice)


def refused(why: str) -> FieldSpec:
    """Return a field of TorchEasyRec that is not supported, and what to do."""
    return FieldSpec("refused", None, why)


def many(field: FieldSpec) -> FieldSpec:
    """Any number of values of ``field``'s kind."""
    return dataclasses.replace(field, default=(), repeated=True)


def needed(field: FieldSpec) -> FieldSpec:
    """Return a field that must be given."""
    return dataclasses.replace(field, required=True)
