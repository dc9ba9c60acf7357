"""A message read by the table: names known, values of the right type, defaults filled in, lines kept."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from sparrow.config.torcheasyrec import text
from sparrow.config.torcheasyrec.fields import MAX_INTEGER, FieldSpec
from sparrow.config.torcheasyrec.messages import ENUMS, MESSAGES
from sparrow.errors import ConfigError, Path, Problem, shown
from sparrow.registry import nearest


@dataclasses.dataclass(frozen=True)
class Block:
    """A message: ``block["lr"]`` is the given value, or else TorchEasyRec's default.

    Attributes:
      kind: the message's name in the table.
      path: its place in the file.
      line: its first line.
      given: the values that the file gives, by field.
      lines: the lines that they stand on.
    """

    kind: str
    path: Path
    line: int
    given: Mapping[str, Any]
    lines: Mapping[str, int]
    source: str | None = None

    def __getitem__(self, field: str) -> Any:
        spec = MESSAGES[self.kind][field]
        return self.given.get(field, spec.default)

    def __contains__(self, field: str) -> bool:
        """Return whether the file gives the field."""
        return field in self.given

    def chosen(self, choice: str) -> tuple[str, Block] | None:
        """Return the given one of the fields that exclude each other, and its message."""
        for field, spec in MESSAGES[self.kind].items():
            if spec.choice == choice and field in self.given:
                return field, self.given[field]
        return None

    def choose(self, choice: str) -> tuple[str, Block]:
        """Return `chosen`, or raise an error where none is given."""
        found = self.chosen(choice)
        if found is None:
            names = [field for field, spec in MESSAGES[self.kind].items() if spec.choice == choice]
            self.fail(f"needs one of {', '.join(names)}")
        return found

    def fail(self, message: str, field: str | None = None) -> NoReturn:
        """Raise an error about the message, or about a field of it."""
        path = self.path if field is None else (*self.path, field)
        line = self.line if field is None else self.lines.get(field, self.line)
        raise ConfigError([Problem(path, message, line)], self.source)

    @contextlib.contextmanager
    def locating(self) -> Iterator[None]:
        """Raise the errors of Sparrow's own records with the line of this message."""
        try:
            yield
        except ConfigError as error:
            if all(problem.line for problem in error.problems):
                raise
            at = [dataclasses.replace(problem, path=self.path, line=self.line) for problem in error.problems]
            raise ConfigError(at, self.source) from None
        except (ValueError, TypeError) as error:
            self.fail(str(error))


def read(message: text.Message, kind: str, source: str | None = None, path: Path = (), line: int = 1) -> Block:
    """Read a message as one of ``kind``; raise an error with its line at the first mistake."""
    specs = MESSAGES[kind]
    given: dict[str, Any] = {}
    lines: dict[str, int] = {}
    by_choice: dict[str, str] = {}
    for field in message.fields:
        where = Block(kind, path, field.line, {}, {}, source)
        if field.name not in specs:
            where.fail(f"unknown field: {nearest(field.name, _supported(specs))}", field.name)
        spec = specs[field.name]
        if spec.kind == "refused":
            where.fail(f"not supported: {spec.of}", field.name)
        if spec.repeated:
            given[field.name] = (
                *given.get(field.name, ()),
                *(_value(spec, value, where, field) for value in field.values),
            )
        elif field.is_list:
            where.fail("takes one value, not a list", field.name)
        elif field.name in given:
            where.fail(f"is given twice, first on line {lines[field.name]}", field.name)
        else:
            other = by_choice.setdefault(spec.choice, field.name) if spec.choice else field.name
            if other != field.name:
                where.fail(f"cannot be given together with {other} of line {lines[other]}; keep one", field.name)
            given[field.name] = _value(spec, field.values[0], where, field)
        lines.setdefault(field.name, field.line)
    block = Block(kind, path, line, given, lines, source)
    for name, spec in specs.items():
        if spec.required and name not in given:
            block.fail("is required", name)
    return block


def _value(spec: FieldSpec, value: text.Value, where: Block, field: text.Field) -> Any:
    if spec.kind == "message":
        if not isinstance(value, text.Message):
            where.fail(f"is a message, written {field.name} {{ ... }}; got {_shown(value)}", field.name)
        return read(value, spec.of, where.source, (*where.path, field.name), field.line)
    converted = _scalar(spec, value)
    if converted is None:
        where.fail(f"must be {_wanted(spec)}, got {_shown(value)}", field.name)
    return converted


def _scalar(spec: FieldSpec, value: text.Value) -> Any:
    """Return the value, or None where it is not of the field's kind."""
    match spec.kind, value:
        case "string", text.String():
            return value.value
        case "flag", text.Word("true" | "True" | "t"):
            return True
        case "flag", text.Word("false" | "False" | "f"):
            return False
        case "flag", text.Number("0" | "1"):
            return value.text == "1"
        case "enum", text.Word() if value.text in ENUMS[spec.of]:
            return value.text
        case "integer", text.Number():
            number = _integer(value.text)
            return number if number is not None and 0 <= number <= MAX_INTEGER else None
        case "number", text.Number():
            return _float(value.text)
    return None


def _integer(written: str) -> int | None:
    digits = written.removeprefix("-")
    try:
        if digits[:2] in ("0x", "0X"):
            number = int(digits, 16)
        elif len(digits) > 1 and digits[0] == "0" and digits.isdigit():
            number = int(digits, 8)
        else:
            number = int(digits)
    except ValueError:
        return None
    return -number if written.startswith("-") else number


def _float(written: str) -> float | None:
    integer = _integer(written)
    try:
        value = float(written.rstrip("fF")) if integer is None else float(integer)
    except (ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None


def _wanted(spec: FieldSpec) -> str:
    if spec.kind == "enum":
        return f"one of {', '.join(ENUMS[spec.of])}"
    return {
        "number": "a finite number",
        "integer": "an integer of at least 0",
        "flag": "true or false",
        "string": "a string in quotes",
    }[spec.kind]


def _shown(value: text.Value) -> str:
    match value:
        case text.Message():
            return "a message in braces"
        case text.String():
            return shown(value.value)
    return shown(value.text)[1:-1]


def _supported(specs: Mapping[str, FieldSpec]) -> Sequence[str]:
    return [name for name, spec in specs.items() if spec.kind != "refused"]
