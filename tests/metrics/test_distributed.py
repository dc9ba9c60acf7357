"""Metrics over processes: simulated by threads that exchange bytes, and two real ones over JAX collectives."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from sparrow import metrics
from tests.metrics.cases import CASES, ROWS, names, run, take, weights

PROCESSES = 3


class Room:
    """Where the threads of one simulated run meet."""

    def __init__(self, size):
        self.size, self.barrier = size, threading.Barrier(size)
        self.given = [None] * size

    def swap(self, rank, data):
        """Everybody's ``data``, once everybody gave it."""
        self.given[rank] = data
        self.barrier.wait(timeout=300)
        everything = list(self.given)
        self.barrier.wait(timeout=300)
        return everything


class Thread:
    """One simulated process."""

    def __init__(self, room, rank):
        self.room, self.rank, self.size = room, rank, room.size
        self.sent = self.gathered = 0  # bytes

    def all_gather(self, data):
        self.gathered += len(data)
        return self.room.swap(self.rank, data)

    def all_to_all(self, data):
        self.sent += sum(len(part) for part in data)
        return [parts[self.rank] for parts in self.room.swap(self.rank, list(data))]


def on_every_process(function, states):
    """``function(state, exchange)`` on simulated processes; their results."""
    room = Room(len(states))
    with ThreadPoolExecutor(len(states)) as pool:
        calls = [pool.submit(function, state, Thread(room, rank)) for rank, state in enumerate(states)]
        return [call.result() for call in calls]


def spread(case, rng):
    """A batch, and the states of processes that each saw some of its rows; one process saw none."""
    batch = {**case.make(rng), "weights": weights(rng)}
    owner = rng.integers(0, PROCESSES - 1, ROWS)
    parts = [{**batch, "weights": np.where(owner == rank, batch["weights"], 0)} for rank in range(PROCESSES)]
    return batch, [run(case.metric, part) for part in parts]


@pytest.mark.usefixtures("quick_compiler")
@pytest.mark.parametrize("case", **names([case for case in CASES if case.batch_free]))
def test_every_process_gets_the_result_of_all_rows(case):
    batch, states = spread(case, np.random.default_rng(8))
    expected = case.metric.compute(run(case.metric, batch))
    values = on_every_process(lambda s, e: metrics.compute_across_processes(case.metric, s, e), states)
    assert len(set(values)) == 1
    assert values[0] == pytest.approx(expected, rel=2e-6)
    merged = on_every_process(lambda s, e: metrics.merge_across_processes(case.metric, s, e), states)
    assert [case.metric.compute(state) for state in merged] == pytest.approx([expected] * PROCESSES, rel=2e-6)


@pytest.mark.parametrize("metric", [metrics.GroupedAUC(), metrics.GroupedXAUC(), metrics.ByGroup(metrics.MRR())])
def test_a_group_spread_over_processes_is_one_group(metric):
    """Each process's own average would be wrong: every group has rows everywhere."""
    rng = np.random.default_rng(9)
    rows = 600
    batch = {
        "predictions": rng.normal(size=rows).astype(np.float32),
        "labels": rng.integers(0, 2, rows),
        "groups": np.array([f"user {k}" for k in rng.integers(0, 40, rows)]),
    }
    states = [run(metric, take(batch, slice(rank, None, PROCESSES))) for rank in range(PROCESSES)]
    expected = metric.evaluate(run(metric, batch))
    results = on_every_process(lambda s, e: metrics.evaluate_across_processes(metric, s, e), states)
    assert all(result.value == pytest.approx(expected.value, abs=1e-14) for result in results)
    assert all(result.details == expected.details for result in results)
    locally = np.mean([metric.compute(state) for state in states])
    assert locally != pytest.approx(expected.value, abs=1e-3)


def test_a_row_travels_once_and_every_group_has_one_owner():
    metric = metrics.GroupedAUC()
    rng = np.random.default_rng(1)
    keys = rng.integers(0, 50, (PROCESSES, 3000))
    states = [metric.update(metric.init(), rng.random(3000), rng.integers(0, 2, 3000), groups=k) for k in keys]

    def route(state, exchange):
        routed = metrics.route_groups(metric, state, exchange)
        keys = set(np.concatenate([chunk["key_low"] for chunk in routed.chunks]).tolist())
        sent = exchange.sent
        metrics.compute_across_processes(metric, state, exchange)
        return keys, sent, exchange.gathered

    owned, sent, gathered = zip(*on_every_process(route, states), strict=True)
    assert sum(len(keys) for keys in owned) == len(set.union(*owned)) == 50
    assert all(size < 3000 * 20 + 10_000 for size in sent)  # prediction 8, label 1, key 8 bytes per row
    assert all(size < 1000 for size in gathered)  # sums only


def test_faults_of_any_process_reach_all():
    metric = metrics.GroupedAUC()
    states = [metric.update(metric.init(), [0.1, p, 0.3], [0, 1, 1], groups=[1, 1, 1]) for p in (0.2, np.nan, np.nan)]
    results = on_every_process(lambda s, e: metrics.evaluate_across_processes(metric, s, e), states)
    assert {result.reason for result in results} == {
        "GroupedAUC: 2 predictions are not numbers (they are NaN). Give weight 0 to rows that should not count."
    }


def test_one_process_needs_no_exchange():
    for metric in (metrics.GroupedAUC(), metrics.ExactAUC()):
        batch = {"predictions": [0.1, 0.2], "labels": [0, 1]}
        state = run(metric, {**batch, "groups": [1, 1]} if metric.needs_groups else batch)
        assert metrics.compute_across_processes(metric, state) == 1
        assert metric.compute(metrics.merge_across_processes(metric, state)) == 1


def test_the_bytes_of_another_metric_are_refused():
    data = metrics.to_bytes(metrics.AUC(), metrics.AUC().init())
    with pytest.raises(ValueError, match=r"written by AUC\(thresholds=200, .* read as one of AUC\(thresholds=100,"):
        metrics.from_bytes(metrics.AUC(100), data)


def test_states_are_read_without_a_parser(monkeypatch):
    """NumPy's reader of .npz files parses Python, which fails in threads of CPython 3.11; damaged bytes are refused."""
    monkeypatch.setattr("ast.literal_eval", None)
    metric = metrics.AUC()
    state = metric.update(metric.init(), np.array([0.1, 0.8, 0.4]), np.array([0, 1, 1]))
    data = metrics.to_bytes(metric, state)
    assert metric.compute(metrics.from_bytes(metric, data)) == metric.compute(state)
    rng = np.random.default_rng(0)
    for damaged in [b"", b"PK", data[:-1], data[:40], data + b"x", *(_flipped(data, rng) for _ in range(200))]:
        with contextlib.suppress(ValueError):
            metrics.from_bytes(metric, damaged)
    for damaged in (b"", b"PK", data[:-1], data[:40], data + b"x"):
        with pytest.raises(ValueError, match="no state of a metric, or are damaged"):
            metrics.from_bytes(metric, damaged)


def _flipped(data, rng):
    made = bytearray(data)
    made[rng.integers(0, 120)] ^= 1 << int(rng.integers(0, 8))
    return bytes(made)


WORKER = """
import json, sys
import jax, numpy as np
rank, port = int(sys.argv[1]), sys.argv[2]
jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=2, process_id=rank)
from sparrow import metrics
from sparrow.metrics import distributed
distributed._PIECE = 1000  # many pieces
rng = np.random.default_rng(0)
p, y, groups = rng.random(3000), rng.integers(0, 2, 3000), rng.integers(0, 100, 3000)
mine = np.arange(3000) % 3 == 0 if rank == 0 else np.arange(3000) % 3 > 0
out = {}
for metric in (metrics.GroupedAUC(), metrics.ExactAUC(), metrics.MAE()):
    keys = groups[mine] if metric.needs_groups else None
    state = metric.update(metric.init(), p[mine], y[mine], groups=keys)
    out[metric.name] = metrics.compute_across_processes(metric, state)
print(json.dumps(out))
"""


@pytest.mark.slow
def test_two_real_processes():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": root}
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(rank), port],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )
        for rank in range(2)
    ]  # fmt: skip
    outputs = []
    try:
        for worker in workers:
            output, errors = worker.communicate(timeout=240)
            assert worker.returncode == 0, errors[-3000:]
            outputs.append(json.loads(output.splitlines()[-1]))
    finally:
        for worker in workers:
            worker.kill()
    rng = np.random.default_rng(0)
    batch = {"predictions": rng.random(3000), "labels": rng.integers(0, 2, 3000)}
    groups = rng.integers(0, 100, 3000)
    assert outputs[0] == outputs[1]
    assert outputs[0]["GroupedAUC"] == pytest.approx(
        metrics.GroupedAUC().compute(run(metrics.GroupedAUC(), {**batch, "groups": groups})), abs=1e-12
    )
    assert outputs[0]["ExactAUC"] == pytest.approx(
        metrics.ExactAUC().compute(run(metrics.ExactAUC(), batch)), abs=1e-12
    )
    assert outputs[0]["MAE"] == pytest.approx(np.abs(batch["predictions"] - batch["labels"]).mean(), rel=1e-6)
