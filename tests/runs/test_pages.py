"""Memory that a run frees is kept by the process, and large tables move to large pages while the step compiles."""

import contextlib
import io
import os
import subprocess
import sys
import threading
import time

import jax.numpy as jnp
import numpy as np
import pytest

from sparrow import runs
from sparrow.runs.loop import set_up
from sparrow.runs.loop.loop import Loop
from sparrow.runs.loop.progress import Clock
from sparrow.runs.parts import large_pages as pages
from tests.runs.cases import case

FAULTS = """
import ctypes, resource, threading
from sparrow.runs.parts.large_pages import keep_freed_memory
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        bytearray(b"1") * (40 << 20)  # above the largest size that glibc keeps by default; NumPy asks for large pages
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
def of_a_thread(found):  # whose heap holds nothing else
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.free.argtypes, size = ctypes.c_void_p, [ctypes.c_void_p], 28 << 20
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    for _ in range(20):
        places = [libc.malloc(ctypes.c_size_t(size)) for _ in range(3)]
        for place in places:
            ctypes.memset(place, 1, size)
        for place in places[::-1]:
            libc.free(place)
    found.append(resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before)
first, own = faults(), []
kept, after = keep_freed_memory(), faults()
thread = threading.Thread(target=of_a_thread, args=[own])
thread.start()
thread.join()
print(first, kept, after, *own)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc alone")
@pytest.mark.parametrize("setting", [{}, pytest.param({"MALLOC_TRIM_THRESHOLD_": "131072"}, marks=pytest.mark.slow)])
def test_freed_memory_is_kept_unless_a_user_decides(setting):
    environment = {key: value for key, value in os.environ.items() if key not in pages.SETTINGS} | setting
    run = subprocess.run([sys.executable, "-c", FAULTS], env=environment, capture_output=True, text=True, check=True)
    before, kept, after, of_a_thread = run.stdout.split()
    assert kept == str(not setting)
    if kept == "True" and int(before) > 1000:  # large pages may need few faults from the start
        assert int(after) < int(before) / 4
        assert int(of_a_thread) < 3 * 20 * (28 << 20) / 4096 / 4


def test_large_arrays_are_moved_and_stay_what_they_are():
    values = np.arange(12 << 20, dtype=np.float32)
    large, small = jnp.asarray(values) + 0, jnp.ones(3)
    thread = pages.move_to_large_pages({"large": large, "small": small, "none": None})
    assert thread is not None
    thread.join()
    np.testing.assert_array_equal(large, values)
    assert pages.move_to_large_pages([small]) is None


def test_the_second_step_comes_after_the_move_which_does_not_count(monkeypatch):
    make, paused, settle, is_settled, order = Loop._make, Clock.paused, Loop.settle, threading.Event(), []

    def move():
        is_settled.wait(60)
        time.sleep(0.5)
        order.append("moved")

    def moving(state):
        thread = threading.Thread(target=move)
        thread.start()
        return thread

    def made(self, call):
        make(self, call)
        order.append("step")

    @contextlib.contextmanager
    def pause(self, name):
        with paused(self, name):
            order.append(name)
            yield

    monkeypatch.setattr(set_up, "move_to_large_pages", moving)
    monkeypatch.setattr(Loop, "settle", lambda self: settle(self) or is_settled.set())
    monkeypatch.setattr(Loop, "_make", made)
    monkeypatch.setattr(Clock, "paused", pause)
    runs.train(case("data.evaluate=null", "train.steps=3"), stream=io.StringIO())
    assert [name for name in order if name in ("step", "start", "moved")] == ["step", "start", "moved", "step", "step"]
