"""Expressions: against plain Python, and their mistakes."""

import math
import random

import numpy as np
import pytest

from sparrow.data.expressions import FUNCTIONS, Expression, ExpressionError, Uneven, Vector

ROWS = {"a": [1.5, -2.0, 0.0, 7.0], "b": [2.0, 3.0, -1.0, 0.5]}


def computed(text, **columns):
    values = {name: Vector(np.array(column, np.float64)) for name, column in (columns or ROWS).items()}
    made = Expression(text)(values, len(next(iter(values.values())).values))
    assert made.offsets is None
    return made.values.tolist()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("2 ^ 3 ^ 2", 512),
        ("2 ** -1", 0.5),
        ("-2 ^ 2", -4),
        ("--2", 2),
        ("7 % 4 + -7 % 4", 0),
        ("1 < 2 == 1", 1),
        ("1 + 1 > 1 && 0 || 1", 1),
        ("0 and 0 or 1", 1),
        ("6 & 3 | 8", 10),
        ("!0 + !5", 1),
        ("1 > 2 ? 3 : 4 > 3 ? 5 : 6", 5),
        ("1e3 + .5 + 2.", 1002.5),
        ("round(2.5) + round(-2.5) + rint(2.5)", 2),
        ("round(0.49999999999999994)", 0),
        ("roundp(3.14159, 2)", 3.14),
        ("min(3, 1, 2) + max(3, 1, 2) + sum(1, 2) + avg(1, 2, 6)", 10),
        ("_pi - 4 * atan(1) + ln(_e) - log(_e)", 0),
        ("trunc(-1.5) + floor(-1.5) + ceil(-1.5) + sign(-3) + abs(-3)", -2),
        ("sigmoid(0) + sigmoid(-800) + sigmoid(800)", 1.5),
        ("haversine(0, 0, 180, 0) - sphere_dist(0, 0, 180, 0)", 0),
    ],
)
def test_values(text, expected):
    (value,) = computed(f"0 * x + ({text})", x=[1.0])
    assert value == pytest.approx(expected, abs=1e-9)


def test_distances_on_the_earth_are_those_of_chords():
    def point(lng, lat):
        lng, lat = math.radians(lng), math.radians(lat)
        return math.cos(lat) * math.cos(lng), math.cos(lat) * math.sin(lng), math.sin(lat)

    paris, london = (2.3522, 48.8566), (-0.1276, 51.5072)
    expected = 2 * 6371 * math.asin(math.dist(point(*paris), point(*london)) / 2)
    arguments = ", ".join(map(str, (*paris, *london)))
    for name in ("haversine", "sphere_dist"):
        assert computed(f"0 * x + {name}({arguments})", x=[0.0])[0] == pytest.approx(expected, rel=1e-9)


ELEMENTARY = ["sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "atanh", "exp", "sqrt"]


def test_elementary_functions_are_those_of_math():
    for name in [*ELEMENTARY, "log2", "log10"]:
        (value,) = computed(f"{name}(x)", x=[0.3])
        assert value == pytest.approx(getattr(math, name)(0.3), rel=1e-14), name
    assert computed("acosh(x)", x=[1.3])[0] == pytest.approx(math.acosh(1.3))


OPERATIONS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "<": lambda a, b: float(a < b),
    ">=": lambda a, b: float(a >= b),
    "==": lambda a, b: float(a == b),
    "&&": lambda a, b: float(a != 0 and b != 0),
    "||": lambda a, b: float(a != 0 or b != 0),
}


def grown(rng, depth):
    """Return an expression with redundant brackets left out at random, and a Python function that computes it."""
    if depth == 0 or rng.random() < 0.2:
        kind = rng.choice(["a", "b", "number"])
        if kind == "number":
            number = float(rng.randint(0, 9))
            return f"{number:g}", lambda row: number
        return kind, lambda row: row[kind]
    if rng.random() < 0.2:
        parts = [grown(rng, depth - 1) for _ in range(3)]
        (test, f), (then, g), (other, h) = parts
        return f"(({test}) ? ({then}) : ({other}))", lambda row: g(row) if f(row) != 0 else h(row)
    symbol = rng.choice(list(OPERATIONS))
    (left, f), (right, g) = grown(rng, depth - 1), grown(rng, depth - 1)
    return f"({left}) {symbol} ({right})", lambda row: OPERATIONS[symbol](f(row), g(row))


def test_random_expressions_equal_plain_python():
    rng = random.Random(7)
    for _ in range(200):
        text, function = grown(rng, 4)
        text = f"{text} + 0 * a + 0 * b" if "(" not in text else f"({text}) + 0 * a + 0 * b"
        expected = [function({"a": a, "b": b}) for a, b in zip(*ROWS.values(), strict=True)]
        assert computed(text) == expected, text


def test_binding_strength_is_that_of_python_where_symbols_agree():
    rng = random.Random(3)
    for _ in range(200):
        symbols = [rng.choice(["+", "-", "*", "/", "**", "<", "and", "or"]) for _ in range(4)]
        if symbols.count("<") > 1:  # Python chains comparisons
            continue
        numbers = [rng.randint(1, 3) for _ in range(5)]
        text = str(numbers[0]) + "".join(f" {s} {n}" for s, n in zip(symbols, numbers[1:], strict=True))
        expected = eval(text)  # of digits and symbols made above
        if "and" in text or "or" in text:
            expected = bool(expected)
        assert computed(f"0 * x + ({text})", x=[1.0]) == [pytest.approx(float(expected))], text


def lists(*rows):
    return Vector(np.array([x for row in rows for x in row], np.float64), np.cumsum([0, *map(len, rows)]))


def test_functions_of_lists():
    a, b = [[1.0, 2.0, 3.0], [], [4.0]], [[1.0, 0.0, 2.0], [], [0.5]]
    values = {"a": lists(*a), "b": lists(*b), "s": Vector(np.array([10.0, 20.0, 30.0]))}

    def of(text):
        return Expression(text)(values, 3).values.tolist()

    assert of("dot(a, b)") == [7.0, 0.0, 2.0]
    assert of("euclid_dist(a, b)") == pytest.approx([math.sqrt(5), 0.0, 3.5])
    assert of("len(a) + reduce_sum(a) + reduce_prod(a)") == [15.0, 1.0, 9.0]
    assert of("l2_norm(a)")[0] == pytest.approx(math.sqrt(14))
    assert of("squared_norm(a)") == [14.0, 0.0, 16.0]
    assert of("variance(a)")[0] == pytest.approx(2 / 3)
    assert of("pop_variance(a)")[0] == pytest.approx(1.0)
    assert of("std_dev(a) ^ 2 - variance(a)")[0] == pytest.approx(0.0)
    assert of("pop_std_dev(a)")[0] == pytest.approx(1.0)
    for name in ("reduce_min", "reduce_max", "reduce_mean"):
        first, empty, last = of(f"{name}(a)")
        assert first == {"reduce_min": 1, "reduce_max": 3, "reduce_mean": 2}[name]
        assert math.isnan(empty)
        assert last == 4
    beside = Expression("a * s")(values, 3)
    assert beside.values.tolist() == [10.0, 20.0, 30.0, 120.0]
    assert beside.offsets.tolist() == [0, 3, 3, 4]
    assert of("reduce_sum(a * b + s)") == [37.0, 0.0, 32.0]


def test_lists_of_different_lengths_do_not_meet():
    values = {"a": lists([1.0], [1.0, 2.0]), "b": lists([1.0], [3.0])}
    with pytest.raises(Uneven) as raised:
        Expression("a + b")(values, 2)
    assert raised.value.rows.tolist() == [False, True]


def test_names():
    assert Expression("`click count` / _shows2 + größe").variables == ("click count", "_shows2", "größe")
    assert set(FUNCTIONS) >= {"sigmoid", "dot"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not empty"),
        ("a +", "expected a number, a name or a bracket, found its end"),
        ("(a", r"expected '\)', found its end"),
        ("a b", "expected an operator or the end, found 'b' at 3"),
        ("a ? b", "expected ':'"),
        ("a $ b", r"'\$' at 3 is not part of it"),
        ("__import__('os')", "unknown function '__import__'|is not part of it"),
        ("a.b", "is not part of it|expected an operator"),
        ("rnd()", "unknown function 'rnd'"),
        ("log(a, b)", "log takes 1 argument, got 2"),
        ("min()", "min takes at least 1 argument, got 0"),
        ("and", "expected a number"),
        ("(" * 60 + "a" + ")" * 60, "more than 50 brackets"),
        ("2" + "^2" * 60, "more than 50 powers"),
        ("a" * 10_001, "may have 10000 characters"),
    ],
)
def test_mistakes(text, message):
    with pytest.raises(ExpressionError, match=message):
        Expression(text)


def test_a_long_sum_needs_no_deep_stack():
    assert computed(" + ".join(["x"] * 2000), x=[1.0]) == [2000.0]
