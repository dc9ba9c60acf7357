"""The text format of protocol buffers, parsed into a tree of fields with their lines and columns.

The reader knows nothing of any schema: a value is a word, a number, a string or a message. The schema is
`sparrow.config.torcheasyrec.messages`.

Reference: https://protobuf.dev/reference/protobuf/textformat-spec/
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Final, NoReturn, TypeAlias

from sparrow.errors import ConfigError, Problem, shown

MAX_DEPTH: Final = 100
"""Maximal depth of nested messages; a deeper one is an error."""


@dataclasses.dataclass(frozen=True)
class Word:
    """A bare word: ``true``, ``false``, ``inf``, ``nan`` or the name of an enum's value."""

    text: str


@dataclasses.dataclass(frozen=True)
class Number:
    """A number as it is written, without its sign's spaces: integer or float, decimal, hexadecimal or octal."""

    text: str


@dataclasses.dataclass(frozen=True)
class String:
    """A quoted string, its escapes resolved."""

    value: str


@dataclasses.dataclass(frozen=True)
class Message:
    """The fields between braces, in order."""

    fields: tuple[Field, ...]


Value: TypeAlias = Word | Number | String | Message


@dataclasses.dataclass(frozen=True)
class Field:
    """A field with its values: one, or the values of a list in brackets."""

    name: str
    values: tuple[Value, ...]
    line: int
    column: int
    is_list: bool = False


@dataclasses.dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    line: int
    column: int


_TOKENS: Final = re.compile(
    r"""(?P<skip>[ \t\r\f\v]+|\#[^\n]*)
    |(?P<newline>\n)
    |(?P<string>"(?:[^"\\\n]|\\[^\n])*"|'(?:[^'\\\n]|\\[^\n])*')
    |(?P<number>(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?[fF]?)(?![\w.]))
    |(?P<word>[A-Za-z_]\w*)
    |(?P<mark>[{}<>\[\]:,;\-])""",
    re.VERBOSE | re.ASCII,
)
_ESCAPE: Final = re.compile(
    r"\\(?:x[0-9a-fA-F]{1,2}|[0-7]{1,3}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[abfnrtv?\\'\"])|\\.", re.ASCII
)
_SIMPLE_ESCAPES: Final = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "?": "?",
    "\\": "\\",
    "'": "'",
    '"': '"',
}
_CLOSING: Final = {"{": "}", "<": ">"}


def parse(text: str, source: str | None = None) -> Message:
    """Read a complete file.

    >>> message = parse('train_config { num_steps: 100  # enough\\n  summaries: ["loss", "lr"] }')
    >>> message.fields[0].values[0].fields[1]
    Field(name='summaries', values=(String(value='loss'), String(value='lr')), line=2, column=3, is_list=True)
    >>> parse("train_config { num_steps 100 }")
    Traceback (most recent call last):
    sparrow.errors.ConfigError: line 1: num_steps: expected ':' or '{' after the field's name, got '100'
        (column 26)
    """
    return _Reader(text, source).message(None, depth=0)


class _Reader:
    """Recursive descent over the tokens, one ahead."""

    def __init__(self, text: str, source: str | None) -> None:
        self.source = source
        self.tokens = _tokens(text, source)
        self.next = next(self.tokens)

    def message(self, opened: _Token | None, depth: int) -> Message:
        """Return the fields up to the brace that closes ``opened``, or up to the end of the file."""
        if depth > MAX_DEPTH:
            self.fail(f"messages are nested more than {MAX_DEPTH} deep", opened)
        fields: list[Field] = []
        closing = None if opened is None else _CLOSING[opened.text]
        while True:
            if self.next.kind == "end":
                if opened is not None:
                    self.fail(f"the '{opened.text}' of line {opened.line} is never closed")
                return Message(tuple(fields))
            if self.next.kind == "mark" and self.next.text == closing:
                self.take()
                return Message(tuple(fields))
            fields.append(self.field(depth))
            if self.next.text in (",", ";") and self.next.kind == "mark":
                self.take()

    def field(self, depth: int) -> Field:
        name = self.take()
        if name.kind == "mark" and name.text == "[":
            self.fail("extensions and Any messages (a name in brackets) are not supported", name)
        if name.kind != "word":
            self.fail(f"expected the name of a field, got {_shown(name)}", name)
        if self.at("{", "<"):
            return Field(name.text, (self.message(self.take(), depth + 1),), name.line, name.column)
        if not self.at(":", "["):
            self.fail(f"expected ':' or '{{' after the field's name, got {_shown(self.next)}", field=name.text)
        if self.at(":"):
            self.take()
        if not self.at("["):
            return Field(name.text, (self.value(name, depth),), name.line, name.column)
        self.take()
        values: list[Value] = []
        while not self.at("]"):
            values.append(self.value(name, depth))
            if self.at(","):
                self.take()
                if self.at("]"):
                    self.fail("a list may not end with ','", field=name.text)
            elif not self.at("]"):
                self.fail(f"expected ',' or ']' in the list, got {_shown(self.next)}", field=name.text)
        self.take()
        return Field(name.text, tuple(values), name.line, name.column, is_list=True)

    def value(self, name: _Token, depth: int) -> Value:
        if self.at("{", "<"):
            return self.message(self.take(), depth + 1)
        token = self.take()
        if token.kind == "string":
            text = _unescaped(token, name.text, self.source)
            while self.next.kind == "string":  # adjacent strings are one
                text += _unescaped(self.take(), name.text, self.source)
            return String(text)
        sign = ""
        if token.kind == "mark" and token.text == "-":
            sign, token = "-", self.take()
        if token.kind == "number":
            return Number(sign + token.text)
        if token.kind == "word" and (not sign or token.text.lower() in ("inf", "infinity", "nan")):
            return Word(sign + token.text)
        self.fail(f"expected a value, got {_shown(token)}", token, field=name.text)

    def at(self, *marks: str) -> bool:
        return self.next.kind == "mark" and self.next.text in marks

    def take(self) -> _Token:
        token = self.next
        if token.kind != "end":
            self.next = next(self.tokens)
        return token

    def fail(self, message: str, token: _Token | None = None, field: str | None = None) -> NoReturn:
        token = token or self.next
        _fail(message, token.line, token.column, self.source, field)


def _tokens(text: str, source: str | None) -> Iterator[_Token]:
    line, start, position = 1, 0, 0
    while position < len(text):
        match = _TOKENS.match(text, position)
        column = position - start + 1
        if match is None:
            rest = text[position : position + 20].split("\n")[0]
            what = (
                "a string that is not closed on its line" if rest[0] in "\"'" else "characters without a meaning here"
            )
            _fail(f"{what}: {shown(rest)}", line, column, source)
        kind = match.lastgroup or ""
        if kind == "newline":
            line, start = line + 1, match.end()
        elif kind != "skip":
            yield _Token(kind, match.group(), line, column)
        position = match.end()
    yield _Token("end", "", line, position - start + 1)


def _unescaped(token: _Token, field: str, source: str | None) -> str:
    r"""Return the string between the quotes. ``\x`` and octal escapes are bytes of UTF-8."""

    def resolve(match: re.Match[str]) -> str:
        body = match.group()[1:]
        if body in _SIMPLE_ESCAPES:
            return _SIMPLE_ESCAPES[body]
        if body[0] in "uU" and len(body) > 1:
            code = int(body[1:], 16)
            if code < 0x110000 and not 0xD800 <= code < 0xE000:
                return chr(code)
        elif body[0] == "x" and len(body) > 1:
            return _byte(int(body[1:], 16))
        elif body[0].isdigit() and body[0] < "8" and int(body, 8) < 256:
            return _byte(int(body, 8))
        _fail(f"unknown escape {match.group()} in a string", token.line, token.column, source, field)

    text = _ESCAPE.sub(resolve, token.text[1:-1])
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeError:
        _fail("a string that is not valid UTF-8", token.line, token.column, source, field)


def _byte(value: int) -> str:
    return chr(value) if value < 128 else chr(0xDC00 + value)  # "surrogateescape" turns it back into the byte


def _fail(message: str, line: int, column: int, source: str | None, field: str | None = None) -> NoReturn:
    path = () if field is None else (field,)
    raise ConfigError([Problem(path, f"{message} (column {column})", line)], source)


def _shown(token: _Token) -> str:
    return "the end of the file" if token.kind == "end" else f"'{shown(token.text)[1:-1]}'"
