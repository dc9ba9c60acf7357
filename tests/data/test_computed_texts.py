"""Computed columns that compare texts: each against plain Python."""

import random

import pytest

from sparrow.data import (
    EditDistance,
    Overlap,
)
from tests.data.computing import column


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("is_equal", 0.0),
        ("is_contain", 1.0),
        ("index_of", 1.0),
        ("query_common_ratio", 1.0),
        ("title_common_ratio", 0.5),
        ("proximity_min_dist", 1.0),
        ("proximity_max_dist", 1.0),
        ("proximity_avg_dist", 1.0),
        ("proximity_min_cover", 2.0),
    ],
)
def test_overlap(method, expected):
    assert column(Overlap("q", "t", method=method), q=[["b", "c"]], t=[["a", "b", "c", "d"]]) == [expected]


def test_overlap_of_several_terms():
    def of(method, query, title):
        return column(Overlap("q", "t", method=method, separator=" "), q=[query], t=[title])[0]

    assert of("proximity_min_cover", "x y", "x a a y x b y") == 2 + 0  # the part "y x"
    assert of("proximity_min_cover", "x z", "x a a y") == 0
    assert of("proximity_min_dist", "x y z", "x a y a a z") == 2
    assert of("proximity_max_dist", "x y z", "x a y a a z") == 5
    assert of("proximity_avg_dist", "x y z", "x a y a a z") == pytest.approx(10 / 3)
    assert of("proximity_min_dist", "x q", "a x") == 0
    assert of("proximity_min_dist", "q", "a x") == 3
    assert of("query_common_ratio", "a a b", "a c") == pytest.approx(2 / 3)
    assert of("is_contain", "a c", "a b c") == 0
    assert of("is_equal", "a b", "a b") == 1
    assert of("index_of", "c b", "a b c") == -1
    for method in ("query_common_ratio", "title_common_ratio", "is_contain", "is_equal"):
        assert column(Overlap("q", "t", method=method, separator=" "), q=["", None], t=["", None]) == [0.0, 0.0]


def test_shortest_cover_equals_trying_all_parts():
    rng = random.Random(2)
    for _ in range(100):
        title = [rng.choice("abcd") for _ in range(rng.randint(1, 9))]
        query = rng.sample("abcd", rng.randint(1, 3))
        parts = [
            j - i for i in range(len(title)) for j in range(i + 1, len(title) + 1) if set(query) <= set(title[i:j])
        ]
        made = column(Overlap("q", "t", method="proximity_min_cover"), q=[query], t=[title])
        assert made == [float(min(parts, default=0))], (query, title)


def plain_distance(a, b):
    """The recurrence as written in books."""
    table = [[max(i, j) if not i or not j else 0 for j in range(len(b) + 1)] for i in range(len(a) + 1)]
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            swap = table[i - 1][j - 1] + (a[i - 1] != b[j - 1])
            table[i][j] = min(table[i - 1][j] + 1, table[i][j - 1] + 1, swap)
    return table[-1][-1]


def test_edit_distance_equals_the_table():
    rng = random.Random(1)
    words = ["".join(rng.choice("abcé") for _ in range(rng.randint(0, 8))) for _ in range(60)]
    made = column(EditDistance("a", "b"), a=words, b=words[::-1])
    assert made == [plain_distance(a, b) for a, b in zip(words, words[::-1], strict=True)]
