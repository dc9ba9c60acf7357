"""The text format of protocol buffers, parsed into a tree of fields with their lines and columns.

The reader knows nothing of any schema: a value is a word, a number, a string or a message. The schema is
`sparrow.config.torcheasyrec.messages`.

Reference: https://protobuf.dev/reference/protobuf/textformat-spec/
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, Literal, NamedTuple, NoReturn, TypeAlias

from sparrow.errors import ConfigError, Problem, shown

MAX_DEPTH: Final = 100
"""Maximal depth of nested messages; a deeper one is an error."""


class Scalar(NamedTuple):
    """A value that is no message.

    Attributes:
      kind: "word": ``true``, ``inf`` or the name of an enum's value; "number": an integer or a float in any notation;
        "string": a quoted string.
      text: a word or a number as it is written, without spaces after its sign; a string with its escapes resolved.
    """

    kind: Literal["word", "number", "string"]
    text: str


class Message(NamedTuple):
    """The fields between braces, in order."""

    fields: tuple[Field, ...]


Value: TypeAlias = Scalar | Message


class Field(NamedTuple):
    """A field with its values: one, or the values of a list in brackets."""

    name: str
    values: tuple[Value, ...]
    line: int
    column: int
    is_list: bool = False


class _Token(NamedTuple):
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
_SIMPLE_ESCAPES: Final = dict(zip("abfnrtv?\\'\"", "\a\b\f\n\r\t\v?\\'\"", strict=True))
_CLOSING: Final = {"{": "}", "<": ">"}


def parse(text: str, source: str | None = None) -> Message:
    """Read a complete file.

    >>> message = parse('train_config { num_steps: 100  # enough\\n  summaries: ["loss", "lr"] }')
    >>> message.fields[0].values[0].fields[1]
    Field(name='summaries', values=(Scalar(kind='string', text='loss'), Scalar(kind='string', text='lr')), line=2, ...)
    >>> parse("train_config { num_steps 100 }")
    Traceback (most recent call last):
    sparrow.errors.ConfigError: line 1: num_steps: expected ':' or '{' after the field's name, got '100'
        (column 26)
    """
    return _Reader(text, source).message(None, depth=0)


def inner_fields(values: Iterable[Value]) -> tuple[Field, ...]:
    """Return the fields of all messages among values."""
    return tuple(field for value in values if isinstance(value, Message) for field in value.fields)


class _Reader:
    """Recursive descent over the tokens, one ahead."""

    def __init__(self, text: str, source: str | None) -> None:
        self.text, self.source = text, source
        self.tokens = self.split()
        self.next = next(self.tokens)

    def split(self) -> Iterator[_Token]:
        line, start, position = 1, 0, 0
        while position < len(self.text):
            match = _TOKENS.match(self.text, position)
            column = position - start + 1
            if match is None:
                rest = self.text[position : position + 20].split("\n")[0]
                is_open = rest[0] in "\"'"
                what = "a string that is not closed on its line" if is_open else "characters without a meaning here"
                self.fail(f"{what}: {shown(rest)}", _Token("", rest, line, column))
            kind = match.lastgroup or ""
            if kind == "newline":
                line, start = line + 1, match.end()
            elif kind != "skip":
                yield _Token(kind, match.group(), line, column)
            position = match.end()
        yield _Token("end", "", line, position - start + 1)

    def message(self, opened: _Token | None, depth: int) -> Message:
        """Return the fields up to the brace that closes ``opened``, or up to the end of the file."""
        if depth > MAX_DEPTH:
            self.fail(f"messages are nested more than {MAX_DEPTH} deep", opened)
        fields: list[Field] = []
        closing = "" if opened is None else _CLOSING[opened.text]
        while self.next.kind != "end" and not self.at(closing):
            fields.append(self.field(depth))
            if self.at(",", ";"):
                self.take()
        if opened is not None:
            if self.next.kind == "end":
                self.fail(f"the '{opened.text}' of line {opened.line} is never closed")
            self.take()
        return Message(tuple(fields))

    def field(self, depth: int) -> Field:
        name = self.take()
        if name.kind == "mark" and name.text == "[":
            self.fail("extensions and Any messages (a name in brackets) are not supported", name)
        if name.kind != "word":
            self.fail(f"expected the name of a field, got {_shown(name)}", name)
        if not self.at("{", "<", ":", "["):
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
            text = self.unescaped(token, name.text)
            while self.next.kind == "string":  # adjacent strings are one
                text += self.unescaped(self.take(), name.text)
            return Scalar("string", text)
        sign = ""
        if token.kind == "mark" and token.text == "-":
            sign, token = "-", self.take()
        if token.kind == "number":
            return Scalar("number", sign + token.text)
        if token.kind == "word" and (not sign or token.text.lower() in ("inf", "infinity", "nan")):
            return Scalar("word", sign + token.text)
        self.fail(f"expected a value, got {_shown(token)}", token, name.text)

    def unescaped(self, token: _Token, field: str) -> str:
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
            self.fail(f"unknown escape {match.group()} in a string", token, field)

        text = _ESCAPE.sub(resolve, token.text[1:-1])
        try:
            return text.encode("utf-8", "surrogateescape").decode("utf-8")
        except UnicodeError:
            self.fail("a string that is not valid UTF-8", token, field)

    def at(self, *marks: str) -> bool:
        return self.next.kind == "mark" and self.next.text in marks

    def take(self) -> _Token:
        token = self.next
        if token.kind != "end":
            self.next = next(self.tokens)
        return token

    def fail(self, message: str, token: _Token | None = None, field: str | None = None) -> NoReturn:
        at = token or self.next
        path = () if field is None else (field,)
        raise ConfigError([Problem(path, f"{message} (column {at.column})", at.line)], self.source)


def _byte(value: int) -> str:
    return chr(value) if value < 128 else chr(0xDC00 + value)  # "surrogateescape" turns it back into the byte


def _shown(token: _Token) -> str:
    return "the end of the file" if token.kind == "end" else f"'{shown(token.text)[1:-1]}'"
