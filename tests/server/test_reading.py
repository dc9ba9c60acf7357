"""Threads that read bodies: a limit of processor time that holds, and others that go on meanwhile."""

import asyncio
import contextlib
import time

import pytest

from sparrow.server import reading
from sparrow.server.limits import Refused
from sparrow.server.reading import LOST, THREADS, Readers


@contextlib.contextmanager
def readers(seconds=0.2, most_waiting=100):
    made = Readers(seconds=seconds, most_waiting=most_waiting)
    try:
        yield made
    finally:
        made.stop()


def endless():
    while True:
        with contextlib.suppress(Exception):
            sum(range(1000))


def sleeping():
    time.sleep(0.6)  # no processor time
    return "rested"


def failing():
    raise ValueError("no")


def test_results_and_errors_arrive():
    async def ask(readers):
        with pytest.raises(ValueError, match="no"):
            await readers.result(failing)
        return await asyncio.gather(*(readers.result(lambda n=n: n * n) for n in range(50)), readers.result(sleeping))

    with readers() as made:
        assert asyncio.run(ask(made)) == [*(n * n for n in range(50)), "rested"]


def test_work_without_end_is_refused_and_ended():
    """More of it than there are threads: all of it ends, and short work is done before and after."""

    async def ask(readers):
        asked = [readers.result(endless) for _ in range(2 * THREADS)]
        refused = await asyncio.gather(*asked, return_exceptions=True)
        return refused, await readers.result(lambda: "after")

    with readers() as made:
        refused, after = asyncio.run(ask(made))
        until = time.monotonic() + 60
        while any(reader.is_alive() for reader in made._lost) and time.monotonic() < until:
            time.sleep(0.05)
        assert not any(reader.is_alive() for reader in made._lost)
    assert [(one.status, "more than 0.2 s" in one.why) for one in refused] == [(413, True)] * (2 * THREADS)
    assert after == "after"
    assert LOST >= THREADS  # or the second half had to wait for the first to end


def test_too_much_work_is_refused():
    async def ask(readers):
        asked = [readers.result(sleeping) for _ in range(THREADS + 4)]
        return await asyncio.gather(*asked, return_exceptions=True)

    with readers(most_waiting=2) as made:
        found = asyncio.run(ask(made))
    refused = [one for one in found if isinstance(one, Refused)]
    assert {one.status for one in refused} == {503}
    assert 2 <= len(refused) <= THREADS + 2


def test_memory_goes_back_after_bodies_alone(monkeypatch):
    freed = []
    monkeypatch.setattr(reading, "FREE_SECONDS", 0.0)
    monkeypatch.setattr(reading, "give_back", lambda: freed.append(time.monotonic()))
    with readers(seconds=0.04) as made:
        time.sleep(0.2)
        assert not freed
        assert asyncio.run(made.result(lambda: 1, 1000)) == 1
        time.sleep(0.2)
        assert not freed  # short bodies need little memory
        assert asyncio.run(made.result(lambda: 1, reading.FREE_BYTES)) == 1
        end = time.monotonic() + 60
        while not freed and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(0.2)
        assert len(freed) == 1
