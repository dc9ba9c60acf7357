"""Phrases that public text avoids: they are unclear, or English has a usual word for them."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
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
    r"\b(ids|lookups|bytes|one) a (batch|step|row|line|device)\b": "per",
    r"\b(in vain|as dynamic\.unknown has it)\b": "no row was free; follow `dynamic.unknown`",
    r"\bis of (configs|the vectors)\b": "takes, needs",
    r"\b(his arrays|chose himself|nobody asks)\b": "name the object",
    r"(?i)(neighbour|normalis[ei]|factoris|catalogue|colour|behaviour|\bcentre|misspelt)": "American spelling",
}
FILES = sorted(
    path
    for pattern in ("sparrow/**/*.py", "sparrow/**/src/*", "sparrow/config/schema.json", "docs/**/*.md", "*.md")
    for path in ROOT.glob(pattern)
    if path.is_file()
)


def found(text):
    return [(match.group(), remedy) for phrase, remedy in BANNED.items() for match in re.finditer(phrase, text)]


def test_public_text_has_no_banned_phrase():
    wrong = {str(path.relative_to(ROOT)): found(path.read_text(encoding="utf-8")) for path in FILES}
    assert not {path: phrases for path, phrases in wrong.items() if phrases}


@pytest.mark.parametrize(
    "text",
    [
        "after the first so many rows",
        "or their bytes are others",
        "what was to be said",
        "10 examples a second",
        "its neighbours",
    ],
)
def test_a_banned_phrase_is_found(text):
    assert found(text)
