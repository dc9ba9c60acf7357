"""A message read by the table: names known, values of the right type, defaults filled in, lines kept.

`Findings` holds the problems of an import, and the outcome of every field.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn, TypeVar

from sparrow.config.torcheasyrec import text
from sparrow.config.torcheasyrec.messages import ENUMS, MAX_INTEGER, MESSAGES, FieldSpec
from sparrow.errors import ConfigError, Path, Problem, dotted, shown
from sparrow.registry import nearest

Place = tuple[Path, int]
"""A field: its path in the file, and its line; 0: it comes from the command line."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of one field of a file.

    Attributes:
      path: its place in the file.
      line: its line; 0: it comes from the command line.
      value: its value, as the file has it.
      text: the part of the config that it sets; or why it has no effect; or the problem.
      is_note: whether it is accepted without effect.
    """

    path: Path
    line: int
    value: str
    text: str
    is_note: bool = False

    def __str__(self) -> str:
        place = f"line {self.line}" if self.line else "command line"
        return f"{place}: {dotted(self.path)}: {self.value}: {self.text}"


class Findings:
    """Everything that an import learns of a file besides the config.

    Attributes:
      source: the name of the file.
      problems: the problems so far.
      notes: the reasons why fields are accepted without effect.
      differences: the reasons why fields make other numbers here than in TorchEasyRec.
    """

    def __init__(self, source: str | None = None) -> None:
        self.source = source
        self.problems: list[Problem] = []
        self._given: dict[Place, str] = {}
        self._set: dict[Place, dict[str, None]] = {}
        self.notes: dict[Place, str] = {}
        self.differences: dict[Place, str] = {}
        self._part = ""

    @contextlib.contextmanager
    def collecting(self) -> Iterator[None]:
        """Keep the problems of a block of code, which ends at its first one, instead of raising them."""
        try:
            yield
        except ConfigError as error:
            self.problems += error.problems

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Name the part of the config that the fields read in this block of code set."""
        before, self._part = self._part, name
        try:
            yield
        finally:
            self._part = before

    def give(self, place: Place, value: str) -> None:
        """Record a field of the file with its value; one of several is joined to the others."""
        self._given[place] = f"{self._given[place]}, {value}" if place in self._given else value

    def use(self, place: Place) -> None:
        """Record that the field sets the current part of the config."""
        if self._part:
            self._set.setdefault(place, {})[self._part] = None

    def refuse_unread(self) -> None:
        """Add a problem for each field that nothing read: nothing is skipped in silence."""
        refused = {(problem.path, problem.line) for problem in self.problems}
        for place in self._given:
            if place not in self._set and place not in self.notes and place not in refused:
                self.problems.append(Problem(place[0], "has no effect in this config; remove it", place[1]))

    def outcomes(self) -> list[Outcome]:
        """Return the outcome of every field, in the order of the file."""
        refused = {(problem.path, problem.line): problem.message for problem in self.problems}
        made = []
        for place, value in sorted(self._given.items(), key=lambda item: item[0][1]):
            path, line = place
            if place in refused:
                text = f"refused: {refused[place]}"
            elif place in self.notes:
                text = f"no effect: {self.notes[place]}"
            else:
                text = f"sets {', '.join(self._set.get(place, ())) or 'nothing, because of the problems above'}"
                if place in self.differences:
                    text += f"; differs: {self.differences[place]}"
            made.append(Outcome(path, line, value, text, place in self.notes))
        return made

    def raise_problems(self) -> None:
        """Raise `ConfigError` with all problems, by line, where there are any."""
        if self.problems:
            ordered = sorted(dict.fromkeys(self.problems), key=lambda problem: problem.line or 0)
            unlined = [dataclasses.replace(problem, line=problem.line or None) for problem in ordered]
            raise ConfigError(unlined, self.source)


T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Block:
    """A message: ``block["lr"]`` is the given value, or else TorchEasyRec's default.

    Attributes:
      kind: the message's name in the table.
      path: its place in the file.
      line: its first line; 0: it comes from the command line.
      given: the values that the file gives, by field.
      lines: the lines that they stand on.
      broken: the fields with a problem, in themselves or below.
      findings: the problems and outcomes of the import.
    """

    kind: str
    path: Path
    line: int
    given: Mapping[str, Any]
    lines: Mapping[str, int]
    broken: frozenset[str] = frozenset()
    findings: Findings = dataclasses.field(default_factory=Findings, compare=False, repr=False)

    def __getitem__(self, field: str) -> Any:
        spec = MESSAGES[self.kind][field]
        if field in self.given:
            self.findings.use(self.place(field))
        return self.given.get(field, spec.default)

    def __contains__(self, field: str) -> bool:
        """Return whether the file gives the field."""
        return field in self.given

    def place(self, field: str) -> Place:
        """Return the path and the line of a field."""
        return (*self.path, field), self.lines.get(field, self.line)

    def chosen(self, choice: str) -> tuple[str, Block] | None:
        """Return the given one of the fields that exclude each other, and its message."""
        for field, spec in MESSAGES[self.kind].items():
            if spec.choice == choice and field in self.given:
                return field, self[field]
        return None

    def choose(self, choice: str) -> tuple[str, Block]:
        """Return `chosen`, or raise an error where none is given."""
        found = self.chosen(choice)
        if found is None:
            names = [field for field, spec in MESSAGES[self.kind].items() if spec.choice == choice]
            self.fail(f"needs one of {', '.join(names)}")
        return found

    def note(self, text: str, *fields: str) -> None:
        """Record that these fields, where they are given, have no effect here."""
        for field in fields:
            if field in self.given:
                self.findings.notes[self.place(field)] = text

    def differ(self, text: str, field: str) -> None:
        """Record that a field, where it is given, makes other numbers here than in TorchEasyRec."""
        if field in self.given:
            self.findings.differences[self.place(field)] = text

    def note_all(self, text: str) -> None:
        """Record that no field of this message, or below it, has an effect here."""
        self.note(text, *self.given)
        for value in self.given.values():
            for inner in value if isinstance(value, tuple) else (value,):
                if isinstance(inner, Block):
                    inner.note_all(text)

    def get(self, field: str, default: Any = None) -> Any:
        """Return the value of a field that messages of other kinds may lack."""
        return self[field] if field in MESSAGES[self.kind] else default

    def quoted(self, field: str, kind: Callable[[str], T], otherwise: str | None = None) -> T | None:
        """Return the number that a field holds in quotes, or else ``otherwise``; None: it is empty."""
        given = self[field] or otherwise
        try:
            return kind(given) if given else None
        except ValueError:
            self.fail(f"must be {'an integer' if kind is int else 'a number'} in quotes, got {given!r}", field)

    def fail(self, message: str, field: str | None = None) -> NoReturn:
        """Raise an error about the message, or about a field of it."""
        path, line = (self.path, self.line) if field is None else self.place(field)
        raise ConfigError([Problem(path, message, line)], self.findings.source)

    def make(self, made: Callable[..., T], *values: Any, **fields: Any) -> T:
        """Return ``made(*values, **fields)``; its errors get the line of this message."""
        with self.locating():
            return made(*values, **fields)

    @contextlib.contextmanager
    def locating(self) -> Iterator[None]:
        """Raise the errors of Sparrow's own records with the line of this message."""
        try:
            yield
        except ConfigError as error:
            if all(problem.line is not None for problem in error.problems):
                raise
            at = [dataclasses.replace(problem, path=self.path, line=self.line) for problem in error.problems]
            raise ConfigError(at, self.findings.source) from None
        except (ValueError, TypeError) as error:
            self.fail(str(error))


def read(message: text.Message, kind: str, findings: Findings, path: Path = (), line: int = 1) -> Block:
    """Read a message as one of ``kind``; each mistake is added to ``findings``, and its field left out."""
    specs = MESSAGES[kind]
    given: dict[str, Any] = {}
    lines: dict[str, int] = {}
    broken: set[str] = set()
    for field in _merged(message, specs):
        where = Block(kind, path, field.line, given, {**lines, field.name: field.line}, findings=findings)
        count = len(findings.problems)
        with findings.collecting():
            _read_field(field, specs, where, given, lines)
            lines.setdefault(field.name, field.line)
        if len(findings.problems) > count:
            broken.add(field.name)
    block = Block(kind, path, line, given, lines, findings=findings)
    for name, spec in specs.items():
        if spec.required and name not in given and name not in broken:
            broken.add(name)
            with findings.collecting():
                block.fail("is required", name)
    return dataclasses.replace(block, broken=frozenset(broken))


def _merged(message: text.Message, specs: Mapping[str, FieldSpec]) -> list[text.Field]:
    """Return the fields; of one that may be given once, the last value counts, and messages are joined."""
    fields: dict[Any, text.Field] = {}
    for index, field in enumerate(message.fields):
        spec = specs.get(field.name)
        key: Any = (field.name, index) if spec is None or spec.repeated or field.is_list else field.name
        first = fields.get(key)
        values = field.values if first is None else (*first.values, *field.values)
        if first is not None and all(isinstance(value, text.Message) for value in values):
            field = first._replace(values=(text.Message(text.inner_fields(values)),))
        fields[key] = field
    return list(fields.values())


def _read_field(
    field: text.Field, specs: Mapping[str, FieldSpec], where: Block, given: dict[str, Any], lines: Mapping[str, int]
) -> None:
    name = field.name
    if name not in specs:
        supported = [known for known, spec in specs.items() if spec.kind != "refused"]
        where.fail(f"unknown field: {nearest(name, supported)}", name)
    spec = specs[name]
    if spec.kind == "refused":
        where.findings.give(where.place(name), ", ".join(map(_shown, field.values)))
        where.fail(f"not supported: {spec.of}", name)
    if spec.repeated:
        first = ((*where.path, name), lines.get(name, field.line))
        given[name] = (*given.get(name, ()), *(_value(spec, value, where, field, first) for value in field.values))
        return
    if field.is_list:
        where.fail("takes one value, not a list", name)
    for other in given:
        if spec.choice is not None and specs[other].choice == spec.choice and other != name:
            where.fail(f"cannot be given together with {other} of line {lines[other]}; keep one", name)
    value = _value(spec, field.values[0], where, field)
    if spec.fixed and value != spec.default:
        where.fail(f"not supported: {spec.fixed}", name)
    given[name] = value


def _value(spec: FieldSpec, value: text.Value, where: Block, field: text.Field, first: Place | None = None) -> Any:
    """Return the value; ``first`` is the place of the first of several."""
    if spec.kind == "message":
        if not isinstance(value, text.Message):
            where.fail(f"is a message, written {field.name} {{ ... }}; got {_shown(value)}", field.name)
        made = read(value, spec.of, where.findings, (*where.path, field.name), field.line)
        if not value.fields:  # a message without fields is a choice by itself
            where.findings.give(where.place(field.name), "{}")
        if spec.note:
            made.note(spec.note, *made.given)
            where.note(spec.note, field.name)
        return made
    place = first or where.place(field.name)
    where.findings.give(place, _shown(value))
    converted = _scalar(spec, value)
    if converted is None:
        where.fail(f"must be {_wanted(spec)}, got {_shown(value)}", field.name)
    if spec.note or (spec.fixed and converted == spec.default):
        where.findings.notes[place] = spec.note or "it is the default, and the only value"
    return converted


def _scalar(spec: FieldSpec, value: text.Value) -> Any:
    """Return the value, or None where it is not of the field's kind."""
    match spec.kind, value:
        case "string", text.Scalar("string"):
            return value.text
        case "flag", text.Scalar("word", "true" | "True" | "t") | text.Scalar("number", "1"):
            return True
        case "flag", text.Scalar("word", "false" | "False" | "f") | text.Scalar("number", "0"):
            return False
        case "enum", text.Scalar("word") if value.text in ENUMS[spec.of]:
            return value.text
        case "integer", text.Scalar("number"):
            number = _integer(value.text)
            least = -MAX_INTEGER if spec.is_signed else 0
            return number if number is not None and least <= number <= MAX_INTEGER else None
        case "number", text.Scalar("number"):
            return _float(value.text)
        case "number", text.Scalar("word", "inf" | "infinity") if spec.may_be_infinite:
            return math.inf
    return None


def _integer(written: str) -> int | None:
    digits = written.removeprefix("-")
    is_octal = len(digits) > 1 and digits[0] == "0" and digits.isdigit()
    try:
        number = int(digits, 8 if is_octal else 16 if digits[:2] in ("0x", "0X") else 10)
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
    integer = "an integer" if spec.is_signed else "an integer of at least 0"
    return {"number": "a finite number", "integer": integer, "flag": "true or false", "string": "a string in quotes"}[
        spec.kind
    ]


def _shown(value: text.Value) -> str:
    if isinstance(value, text.Message):
        return "a message in braces"
    return shown(value.text) if value.kind == "string" else shown(value.text)[1:-1]
