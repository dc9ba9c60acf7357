"""Where requests are computed: quick ones in the event loop, others in the thread, and never two batches at a time."""

import asyncio
import threading
import time

from sparrow.server import gathering
from sparrow.server.gathering import Gatherer

QUICK, SLOW = "quick", "slow"


def answers(requests):
    """Return the results of requests that come at the same moment, and the thread of each."""
    gatherer = Gatherer(
        lambda given: [(request, threading.current_thread().name) for request in given],
        gather_seconds=0.001,
        most_waiting=100,
        is_quick=lambda request: request == QUICK,
    )

    async def ask(request):
        gatherer.receiving(1)
        return await gatherer.result(request)

    async def all_of_them():
        return await asyncio.wait_for(asyncio.gather(*map(ask, requests)), 20)

    try:
        return asyncio.run(all_of_them())
    finally:
        gatherer.stop()


def test_quick_requests_are_computed_in_the_event_loop_and_others_in_the_thread():
    assert answers([QUICK] * 3) == [(QUICK, threading.current_thread().name)] * 3
    assert answers([QUICK, SLOW]) == [(QUICK, "sparrow-model"), (SLOW, "sparrow-model")]  # one batch


def test_many_quick_requests_are_all_answered(monkeypatch):
    monkeypatch.setattr(gathering, "MOST_REQUESTS", 4)
    for requests in ([QUICK] * 11, [QUICK] * 11 + [SLOW] * 3):
        assert [request for request, _ in answers(requests)] == requests


def test_after_a_long_batch_the_thread_computes(monkeypatch):
    monkeypatch.setattr(gathering, "QUICK_SECONDS", -1.0)  # no batch is quick enough
    threads = []

    async def twice():
        for _ in range(2):
            gatherer.receiving(1)
            await gatherer.result(QUICK)

    gatherer = Gatherer(
        lambda given: threads.append(threading.current_thread().name) or given,
        gather_seconds=0.0,
        most_waiting=9,
        is_quick=lambda request: True,
    )
    asyncio.run(twice())
    gatherer.stop()
    assert threads == [threading.current_thread().name, "sparrow-model"]


def test_a_job_runs_between_two_batches_in_the_loop_and_in_the_thread():
    busy, seen = [], []

    def answer(given):
        busy.append(1)
        time.sleep(0.001)
        busy.pop()
        return given

    gatherer = Gatherer(answer, gather_seconds=0.0, most_waiting=99, is_quick=lambda request: request % 10)

    def jobs():
        for _ in range(20):
            gatherer.between(lambda: (time.sleep(0.001), seen.append(len(busy))))

    async def ask(number):
        await asyncio.sleep(number / 1000)
        gatherer.receiving(1)
        return await gatherer.result(number)

    async def all_of_them():
        return await asyncio.gather(asyncio.to_thread(jobs), *map(ask, range(40)))

    assert asyncio.run(all_of_them())[1:] == list(range(40))
    gatherer.stop()
    assert seen == [0] * 20
