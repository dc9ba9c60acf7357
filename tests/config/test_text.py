"""The text format of protocol buffers."""

import pytest

from sparrow.config import ConfigError
from sparrow.config.torcheasyrec.text import Field, Message, Scalar, parse


def only(text):
    (field,) = parse(text).fields
    return field


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1", Scalar("number", "1")),
        ("a: -1.5e-3f", Scalar("number", "-1.5e-3f")),
        ("a: - 2", Scalar("number", "-2")),
        ("a: 0x1F", Scalar("number", "0x1F")),
        ("a: .5", Scalar("number", ".5")),
        ("a: true", Scalar("word", "true")),
        ("a: -inf", Scalar("word", "-inf")),
        ("a: FG_NONE", Scalar("word", "FG_NONE")),
        ("a: 'x'", Scalar("string", "x")),
        ('a: "x" \'y\'\n"z"', Scalar("string", "xyz")),
        (r'a: "\x03\t\"\\\101\u00e9"', Scalar("string", '\x03\t"\\A\u00e9')),
        (r'a: "\303\251"', Scalar("string", "\u00e9")),  # bytes of UTF-8
        ('a: "# no comment"', Scalar("string", "# no comment")),
    ],
)
def test_values(text, value):
    assert only(text).values == (value,)


@pytest.mark.parametrize(
    "text", ["a { b: 1 }", "a: { b: 1 }", "a < b: 1 >", "a {b: 1;}", "a{b:1,}", "#c\na {\n b: 1 #c\n}"]
)
def test_messages(text):
    (message,) = only(text).values
    assert isinstance(message, Message)
    assert message.fields[0].values == (Scalar("number", "1"),)


def test_lists_and_repeated_fields_keep_their_order_and_place():
    first, second, third = parse("a: [1, 2]\n  a: 3\nb: [{c: 1}, {c: 2}]").fields
    assert first == Field("a", (Scalar("number", "1"), Scalar("number", "2")), line=1, column=1, is_list=True)
    assert (second.values, second.line, second.column) == ((Scalar("number", "3"),), 2, 3)
    assert [message.fields[0].values[0] for message in third.values] == [Scalar("number", "1"), Scalar("number", "2")]
    assert only("a: []").values == ()


def test_nothing_is_a_message():
    assert parse("") == parse(" # nothing\n") == Message(())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a {\n b: 1\n", "f:3: the '{' of line 1 is never closed (column 1)"),
        ("a: 1 }", "f:1: expected the name of a field, got '}' (column 6)"),
        ("a < b: 1 }", "f:1: expected the name of a field, got '}' (column 10)"),
        ("a 1", "f:1: a: expected ':' or '{' after the field's name, got '1' (column 3)"),
        ("a:", "f:1: a: expected a value, got the end of the file (column 3)"),
        ("a: -b", "f:1: a: expected a value, got 'b' (column 5)"),
        ("\n a: 'x", 'f:2: a string that is not closed on its line: "\'x" (column 5)'),
        (r"a: '\q'", r"f:1: a: unknown escape \q in a string (column 4)"),
        (r"a: '\ud800'", r"f:1: a: unknown escape \ud800 in a string (column 4)"),
        (r"a: '\xff'", "f:1: a: a string that is not valid UTF-8 (column 4)"),
        ("a: [1 2]", "f:1: a: expected ',' or ']' in the list, got '2' (column 7)"),
        ("a: [1,]", "f:1: a: a list may not end with ',' (column 7)"),
        ("a: 12abc", "f:1: characters without a meaning here: '12abc' (column 4)"),
        ("[x.y]: 1", "f:1: extensions and Any messages (a name in brackets) are not supported (column 1)"),
        ("a {" * 101, "f:1: messages are nested more than 100 deep (column 303)"),
    ],
)
def test_errors_say_line_and_column(text, message):
    with pytest.raises(ConfigError) as error:
        parse(text, "f")
    assert str(error.value) == message
