"""Compiled code that wants threads where the system gives none does all the work in the one that called it."""

import resource
import subprocess
import sys

import pytest

STACK = 2**29
"""Bytes of the stack of a thread: more than the process may still take."""
WITHOUT_THREADS = f"""
STACK = {STACK}
import resource, sys, threading
from pathlib import Path
import numpy as np
from sparrow.kernels.areas import group_areas
from sparrow.kernels.search import best_rows

random = np.random.default_rng(0)
queries, rows = random.standard_normal((20, 24), np.float32), random.standard_normal((20_000, 24), np.float32)
chunk = {{"prediction": random.random(300_000, np.float32), "label": random.random(300_000) < 0.5,
         "key_low": random.integers(0, 1000, 300_000).astype(np.uint64)}}

def made(threads):
    areas = zip(*group_areas([chunk], "uniform", 16, threads))
    return *best_rows(queries, [rows], 5, threads=threads), *map(np.concatenate, areas)

alone = made(1)
pages = int(Path("/proc/self/statm").read_text().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + STACK // 2,) * 2)
try:
    threading.Thread(target=print).start()
    sys.exit("there are threads")
except RuntimeError:
    pass
for one, other in zip(alone, made(6), strict=True):
    np.testing.assert_array_equal(one, other)
"""


def test_the_caller_does_all_the_work():
    most = resource.getrlimit(resource.RLIMIT_STACK)[1]
    if most != resource.RLIM_INFINITY and most < STACK:
        pytest.skip("stacks of threads cannot be so large here")
    shell = ["sh", "-c", f'ulimit -s {STACK // 1024}; exec "$0" "$@"']
    ended = subprocess.run([*shell, sys.executable, "-c", WITHOUT_THREADS], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
