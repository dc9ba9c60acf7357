"""The first batch is read early: the batches and errors of the pipeline itself, and no thread is left."""

import threading

import pytest

from sparrow.data import DataError
from sparrow.feed import Waits
from sparrow.runs.loop.staging import Early


class Numbers:
    """A pipeline of three numbers; the first comes when somebody allows it, or never."""

    def __init__(self, error_at=None, may_begin=True):
        self.begun, self.may_begin, self.error_at = threading.Event(), threading.Event(), error_at
        self.waits, self.closed = Waits(), False
        if may_begin:
            self.may_begin.set()

    def __iter__(self):
        try:
            self.begun.set()
            while not self.may_begin.wait(0.01):
                if self.waits.interrupted():
                    return
            for number in range(3):
                if number == self.error_at:
                    raise DataError(f"row {number}")
                yield number
        finally:
            self.closed = True


def test_the_first_batch_is_read_at_once():
    numbers = Numbers()
    batches = Early(numbers)
    assert numbers.begun.wait(5)
    assert list(batches) == [0, 1, 2]
    batches.close()
    assert numbers.closed


@pytest.mark.parametrize("number", [0, 2])
def test_an_error_arrives_at_its_place(number):
    batches = Early(Numbers(error_at=number))
    assert [next(batches) for _ in range(number)] == list(range(number))
    with pytest.raises(DataError, match=f"row {number}"):
        next(batches)
    batches.close()


def test_a_run_that_fails_before_its_first_step_leaves_no_thread():
    numbers = Numbers(may_begin=False)
    batches = Early(numbers)
    assert numbers.begun.wait(5)
    batches.close()
    assert numbers.closed
    for thread in threading.enumerate():
        if thread.name.startswith("sparrow-first-batch"):
            thread.join(5)
            assert not thread.is_alive()
