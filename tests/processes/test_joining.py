"""The place of a process in its group, from options and environments."""

import threading
import time

import jax
import pytest

from sparrow import processes
from sparrow.processes import JoinError, Membership, membership_of, talking

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "4", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}


def test_options_come_before_the_environment():
    assert membership_of("a:1", 2, 1, environment=TORCHRUN) == Membership("a:1", 2, 1)


def test_torchrun():
    assert membership_of(environment=TORCHRUN) == Membership("10.0.0.1:29500", 4, 3)
    shared = {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    assert membership_of(environment={**TORCHRUN, **shared}) == Membership("10.0.0.1:29501", 4, 3, (1,))
    assert membership_of(environment={**TORCHRUN, "WORLD_SIZE": "1", "RANK": "0"}) is None


@pytest.mark.parametrize(
    "environment",
    [
        {"SLURM_NTASKS": "2", "SLURM_PROCID": "1"},
        {"OMPI_COMM_WORLD_SIZE": "2"},
        {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": "0"},
        {"TPU_WORKER_HOSTNAMES": "a,b"},
    ],
)
def test_clusters_are_left_to_jax(environment):
    assert membership_of(environment=environment) == Membership()


@pytest.mark.parametrize(
    "environment",
    [{}, {"SLURM_NTASKS": "1", "SLURM_PROCID": "0"}, {"SLURM_NTASKS": "8"}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}],
)
def test_one_process_stays_alone(environment):
    assert membership_of(environment=environment) is None


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (("a:1", 2, None), "--process-id: missing"),
        ((None, 2, 1), "--coordinator: missing"),
        (("nowhere", 2, 1), "--coordinator must be HOST:PORT"),
        (("a:99999", 2, 1), "--coordinator must be HOST:PORT"),
        (("a:1", 2, 2), "--process-id must be 0 to 1 with 2 processes, got 2"),
    ],
)
def test_mistakes(given, text):
    with pytest.raises(JoinError, match=text.replace("(", r"\(")):
        membership_of(*given, environment={})


def test_torchrun_with_nonsense():
    with pytest.raises(JoinError, match="must be integers"):
        membership_of(environment={**TORCHRUN, "RANK": "first"})


def test_leaving_waits_for_the_thread_that_watches(monkeypatch):
    """An interpreter that ends while the thread is inside JAX's client aborts the process."""
    over, awake = threading.Event(), []

    class Store:
        def blocking_key_value_get(self, key, milliseconds):
            assert over.wait(60)
            time.sleep(0.2)  # a busy machine: the thread gets its turn late
            awake.append(threading.current_thread())
            raise jax.errors.JaxRuntimeError("CANCELLED")

    monkeypatch.setattr(talking, "client", Store)
    monkeypatch.setattr(jax.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(jax.distributed, "shutdown", over.set)
    monkeypatch.setattr(talking, "count", lambda: 1)
    talking.watch()
    processes.leave()
    assert [thread.name for thread in awake] == ["sparrow-watch"]
    assert not awake[0].is_alive()
