"""A test that registers a record leaves the registry as it was: errors of later tests list all names."""

import dataclasses

from sparrow import losses
from sparrow.data import register_function
from sparrow.data.computed.custom import FUNCTIONS
from sparrow.losses.base import registry


@dataclasses.dataclass(frozen=True)
class Left(losses.Loss):
    meaning = "value"

    def __call__(self, outputs, labels):
        return outputs - labels

    def prediction(self, output):
        return output


def register():
    assert "left_behind" not in registry
    assert "left_behind" not in FUNCTIONS
    losses.register_loss("left_behind")(Left)
    register_function("left_behind")(len)


def test_of_a_record_that_nobody_removes():
    register()


def test_of_the_same_record_again():
    register()
