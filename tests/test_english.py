"""Phrases that public text avoids: they are unclear, or English has a usual word for them."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SPELLING = "American spelling"
WITH_OUR = "behavi|col|fav|hon|neighb"
WITH_IZE = "final|initial|maxim|minim|normal|optim|organ|parallel|quant|random|recogn|serial|standard|summar|token"
BANNED = {
    r"\bso many\b": "name the number or the constant",
    r"Return False and true": "return the counts of false and of true positives",
    r"\bcalls itself so\b": "with that name",
    r"\bbytes are others\b": "contents differ",
    r"\bto be said\b": "for the log",
    r"\b(is|are) said\b": "is logged, is raised",
    r"\bis of \w+ alone\b": "only ... computes",
    r"\bis none of its\b": "is excluded from",
    r"\bof nothing\b": "say what is empty",
    r"\b(examples|bytes|requests|lookups|rows) a second\b": "per second",
    r"\b(ids|lookups|bytes|one|numbers?|vectors?|[KMG]B|rows) an? (batch|step|row|line|device|table|example)\b": "per",
    r"\b\d+ (examples|ids|rows|steps|times) an? (batch|step|row|example|epoch|call)\b": "per",
    r"\b(in vain|as dynamic\.unknown has it)\b": "no row was free; follow `dynamic.unknown`",
    r"\bis of (configs|the vectors)\b": "takes, needs",
    r"(?i)\bnobody\b": "name the object",
    r"\b(he|him|himself)\b|\bhis (?!gold|shade)": "they, or name the person again; a sonnet may",
    r"\bone's own\b": "your own",
    r"\bwhole numbers?\b": "integer",
    r"\b(log|error|message|line|file|docstring|warning|page|table)s? (says?|tells?)\b": "names, holds, lists",
    r"\"\"\"(What|Those|Of) ": "open with a verb, or name the thing",
    r'"description": "([Ww]hat|[Tt]hose|[Oo]f) ': "name the thing",
    r"\"\"\"(None|True|False)\.\"\"\"": "name the result, or leave the docstring out",
    r"(?i)(factoris|catalogue|\bcentre|misspelt|modelling|labelled|licence)": SPELLING,
    rf"(?i)({WITH_OUR})our|({WITH_IZE})is(e|ed|er|es|ing|ation)\b": SPELLING,
}
IN_PAGES = {
    r"(?i)(?<!there )\b(is|are) no (?!longer|more)[a-z]": "is not a; has no",
    r"(?m)^(What|Those|Of) |(?<=[.:] )(What|Those|Of) (?=[a-z`])": "begin with the thing; or with: Among",
}
PAGES = [path for pattern in ("docs/**/*.md", "*.md") for path in sorted(ROOT.glob(pattern))]
TEXTS = [
    *PAGES,
    *(
        path
        for pattern in ("sparrow/**/*.py", "sparrow/**/src/*", "sparrow/config/schema.json", "examples/*")
        for path in sorted(ROOT.glob(pattern))
        if path.is_file()
    ),
]


def found(text, banned):
    """The phrases, with the line of each and the remedy."""
    return [
        (text[: match.start()].count("\n") + 1, match[0], remedy)
        for phrase, remedy in banned.items()
        for match in re.finditer(phrase, text)
    ]


def found_in(files, banned):
    held = {str(path.relative_to(ROOT)): found(path.read_text(encoding="utf-8"), banned) for path in files}
    return {path: phrases for path, phrases in held.items() if phrases}


def test_public_text_has_no_banned_phrase():
    assert not found_in(TEXTS, BANNED)


def test_pages_have_no_banned_phrase():
    assert not found_in(PAGES, IN_PAGES)


@pytest.mark.parametrize(
    "text",
    [
        "after the first so many rows",
        "or their bytes are others",
        "what was to be said",
        "10 examples a second",
        "one number a row",
        "a file of one's own",
        "its neighbours",
        "an initialiser",
        '"""What the rows hold."""',
    ],
)
def test_a_banned_phrase_is_found(text):
    assert found(text, BANNED)


@pytest.mark.parametrize("text", ["a column that is no list", "It works. Of these, one"])
def test_a_phrase_that_pages_avoid_is_found(text):
    assert found(text, IN_PAGES)


@pytest.mark.parametrize(
    "text", ["there is no list", "is no longer read", "rooms import each other", "a title: Of Mice"]
)
def test_usual_english_is_left_alone(text):
    assert not found(text, {**BANNED, **IN_PAGES})
