"""Entries of the table of TorchEasyRec's messages: one line per field."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, Literal

Kind = Literal["number", "integer", "flag", "string", "enum", "message", "refused"]
MAX_INTEGER: Final = 2**64 - 1


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


def number(default: float | None = None, *, may_be_infinite: bool = False) -> FieldSpec:
    """Return the entry of a floating-point number."""
    return FieldSpec("number", default, may_be_infinite=may_be_infinite)


def integer(default: int | None = None) -> FieldSpec:
    """Return the entry of an integer of at least 0."""
    return FieldSpec("integer", default)


def signed(default: int | None = None) -> FieldSpec:
    """Return the entry of any integer."""
    return FieldSpec("integer", default, is_signed=True)


def flag(default: bool | None = None) -> FieldSpec:
    """Return the entry of a flag, true or false."""
    return FieldSpec("flag", default)


def string(default: str | None = None) -> FieldSpec:
    """Return the entry of a quoted string."""
    return FieldSpec("string", default)


def enum(name: str, default: str | None = None) -> FieldSpec:
    """Return the entry of one of the words of the enum ``name``."""
    return FieldSpec("enum", default, name)


def message(name: str, choice: str | None = None) -> FieldSpec:
    """Return the entry of a message: fields between braces."""
    return FieldSpec("message", None, name, choice=choice)


def refused(why: str) -> FieldSpec:
    """Return the entry of a field of TorchEasyRec that is not supported, with the remedy."""
    return FieldSpec("refused", None, why)


def many(field: FieldSpec) -> FieldSpec:
    """Return the entry of any number of values of ``field``'s kind."""
    return dataclasses.replace(field, default=(), repeated=True)


def needed(field: FieldSpec) -> FieldSpec:
    """Return the entry of a field that must be given."""
    return dataclasses.replace(field, required=True)


def harmless(field: FieldSpec, why: str) -> FieldSpec:
    """Return the entry of a field that is accepted, and changes no number here."""
    return dataclasses.replace(field, note=why)


def fixed(field: FieldSpec, why: str) -> FieldSpec:
    """Return the entry of a field that is accepted with its default, and refused with another value."""
    return dataclasses.replace(field, fixed=why)
