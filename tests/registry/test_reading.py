"""From plain values to records: each type of field, right and wrong."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
import pytest

from sparrow import losses, metrics, rules, schedules
from sparrow.errors import ConfigError
from sparrow.registry import Registry, read, schema, written


@dataclasses.dataclass(frozen=True)
class Point:
    x: float
    y: float = 0.0

    def __post_init__(self):
        if self.y < 0:
            raise ValueError("Point.y must not be negative")


LINEAR = {"name": "linear", "lr": 0.1, "end": 0.0, "steps": 5}
RIGHT = [  # type, plain value, object
    (bool, True, True),
    (int, 3, 3),
    (float, 3, 3.0),
    (str, "a", "a"),
    (int | None, None, None),
    (Literal["a", "b"], "b", "b"),
    (tuple[int, ...], [1, 2], (1, 2)),
    (tuple[float, float], [1, 2], (1.0, 2.0)),
    (str | Sequence[str], ["a"], ("a",)),
    (Mapping[str, float], {"a": 1}, {"a": 1.0}),
    (float | tuple[float, ...], [0.5], (0.5,)),
    (Point, {"x": 1}, Point(1.0)),
    (tuple[Point, ...], [{"x": 1, "y": 2}], (Point(1.0, 2.0),)),
    (Point | None, {"x": 1}, Point(1.0)),
    (float | Callable[[Any], Any], 0.1, 0.1),
    (float | Callable[[Any], Any], LINEAR, schedules.linear(0.1, 0.0, 5)),
    (rules.Rule, "adam", rules.Adam()),
    (rules.Rule, {"name": "adam", "learning_rate": LINEAR}, rules.Adam(schedules.linear(0.1, 0.0, 5))),
    (metrics.Metric[Any], {"name": "decayed", "metric": "mae"}, metrics.Decayed(metrics.MAE())),
    (losses.Loss, losses.L2(), losses.L2()),
]


@pytest.mark.parametrize(("hint", "plain", "expected"), RIGHT, ids=lambda x: str(x)[:40])
def test_types(hint, plain, expected):
    made = read(hint, plain)
    assert made == expected
    assert type(made) is type(expected)
    assert read(hint, made) == expected  # an object stays as it is
    assert read(hint, written(made)) == expected
    assert schema(hint) != {}


WRONG = [
    (bool, 1, "must be true or false, got 1"),
    (int, True, "must be an integer, got True"),
    (int, 1.0, "must be an integer, got 1.0"),
    (float, "1", "must be a number, got '1'"),
    (float, float("inf"), "must be a finite number, got inf"),
    (float, 10**400, "must be a finite number, got 1000"),
    (float | None, float("nan"), "must be a finite number, got nan"),
    (str, 3, "must be a string, got 3"),
    (int | None, "x", "must be an integer, got 'x'"),
    (int | str, 1.5, "must be an integer or a string, got 1.5"),
    (Literal["a", "b", "c"], "d", "must be 'a', 'b' or 'c', got 'd'"),
    (Literal[1, 2], True, "must be 1 or 2, got True"),
    (tuple[int, ...], "12", "must be a list, got '12'"),
    (tuple[int, ...], [1, "a", "b"], "[1]: must be an integer, got 'a'\n[2]: must be an integer, got 'b'"),
    (tuple[float, float], [1], "must be a list of 2, got [1]"),
    (Mapping[str, int], {"a": "x"}, "a: must be an integer, got 'x'"),
    (Mapping[str, int], [1], "must be a mapping of names to values, got [1]"),
    (Point, [1], "must be a mapping of fields (x, y), got [1]"),
    (Point, {"z": 1}, "z: unknown field: Valid names: x, y\nx: is required"),
    (Point, {"x": 1, "y": -1}, "Point.y must not be negative"),
    (tuple[Point, ...], [{"x": 1}, {"x": "a"}], "[1].x: must be a number, got 'a'"),
    (float | Callable[[Any], Any], "fast", "must be a number or a schedule as a mapping with a 'name', got 'fast'"),
    (float | Callable[[Any], Any], {"name": "lineer"}, "name: unknown schedule 'lineer': did you mean 'linear'?"),
    (rules.Rule, 3, "must be the name of a rule, or a rule as a mapping with a 'name', got 3"),
    (rules.Rule, {"eps": 1}, "a rule needs a 'name'. Valid names: adadelta"),
    (rules.Rule, {"name": "sgd", "learning_rate": {**LINEAR, "end": "x"}}, "learning_rate.end: must be a number"),
    (rules.Rule, {"name": "adam", 3: 4}, "a field's name must be a string, got 3; put it in quotes"),
]


@pytest.mark.parametrize(("hint", "plain", "message"), WRONG, ids=lambda x: str(x)[:40])
def test_wrong_values_are_named(hint, plain, message):
    with pytest.raises(ConfigError) as error:
        read(hint, plain)
    assert str(error.value).startswith(message)


def test_arrays_stand_for_numbers():
    """From Python: a hyper-parameter may be learned."""
    array = jnp.float32(0.5)
    assert read(float, array) is array
    assert losses.registry.make("binary_cross_entropy", label_smoothing=array).label_smoothing is array
    assert read(int, np.int64(3)) == 3


def test_own_words_of_a_record_stand_alone():
    shapes = Registry("shape of this test", Point)
    shapes.register("point")(Point)
    with pytest.raises(ValueError, match=r"^Point.y must not be negative$"):
        shapes.make("point", x=1.0, y=-1.0)
    with pytest.raises(ValueError, match=r"^shape of this test 'point': x: must be a number, got 'a'$"):
        shapes.from_dict({"name": "point", "x": "a"})


def test_a_type_that_nobody_knows_is_named():
    @dataclasses.dataclass(frozen=True)
    class Odd:
        field: "NoSuchType"  # noqa: F821

    with pytest.raises(TypeError, match="the type of a field of Odd is not known: name 'NoSuchType'"):
        read(Odd, {"field": 1})


def test_a_record_without_a_name_cannot_be_written():
    @dataclasses.dataclass(frozen=True)
    class Nameless(rules.Rule):
        def update(self, row, grad, slots, h):
            return row, slots

    for value in (Nameless(), lambda step: 0.1, jnp.zeros(2)):
        with pytest.raises(ConfigError, match="has no name that a config could hold; register it"):
            written({"value": value})
