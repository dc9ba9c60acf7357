"""Joining a group of processes: by options, by torchrun's variables, or by JAX's detection of the cluster."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import jax

from sparrow.processes import jax_private, talking
from sparrow.processes.talking import watch

HEARTBEAT: Final = 20
"""Seconds after which a process that no longer answers counts as lost."""
STARTING: Final = 300
"""Seconds that processes wait for each other at the start."""
ENDING: Final = 10
"""Seconds that processes wait for each other at the end."""

TORCHRUN: Final = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class JoinError(ValueError):
    """A group of processes that cannot be joined; one sentence."""


class Membership(NamedTuple):
    """The place of this process in a group. All None: JAX detects it from the cluster.

    Attributes:
      coordinator: the address of the first process, ``host:port``.
      num_processes: the number of processes.
      process_id: the number of this one.
      devices: the local devices that it uses; None: all, or as JAX detects.
    """

    coordinator: str | None = None
    num_processes: int | None = None
    process_id: int | None = None
    devices: tuple[int, ...] | None = None


def membership_of(
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    devices: tuple[int, ...] | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Membership | None:
    """Return the place that the options give, or else the environment; None: this process is alone.

    >>> membership_of(environment={"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"})
    Membership(coordinator='10.0.0.1:29500', num_processes=2, process_id=1, devices=None)
    >>> membership_of(environment={"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_PROCID": "0"})
    Membership(coordinator=None, num_processes=None, process_id=None, devices=None)
    >>> membership_of(environment={"SLURM_JOB_ID": "7", "SLURM_NTASKS": "1", "SLURM_PROCID": "0"}) is None
    True
    """
    given = {"--coordinator": coordinator, "--num-processes": num_processes, "--process-id": process_id}
    if coordinator is not None and num_processes is not None and process_id is not None:
        return _checked(coordinator, num_processes, process_id, devices)
    missing = [name for name, value in given.items() if value is None]
    if len(missing) < len(given):
        raise JoinError(f"{', '.join(missing)}: missing; a process of a group needs {', '.join(given)}")
    if all(environment.get(name) for name in TORCHRUN):
        return _torchrun(environment)
    return Membership() if _is_cluster(environment) else None


def join(place: Membership) -> None:
    """Join the group, before any device is used; from then on, a failure of one process ends all of them."""
    jax_private.write_programs_whole()
    config: Any = jax.config
    config.update("jax_enable_preemption_service", False)  # SIGTERM belongs to the training loop
    config.update("jax_cpu_collectives_implementation", "gloo")
    is_here = (place.coordinator or "").rpartition(":")[0] in ("127.0.0.1", "localhost")
    where: dict[str, Any] = {"coordinator_bind_address": place.coordinator} if is_here else {}
    try:
        jax.distributed.initialize(
            place.coordinator,
            place.num_processes,
            place.process_id,
            local_device_ids=place.devices,
            initialization_timeout=STARTING,
            heartbeat_timeout_seconds=HEARTBEAT,
            shutdown_timeout_seconds=ENDING,
            **where,
        )
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise JoinError(
            f"the processes cannot be joined at {place.coordinator or 'the detected address'}: {reason}"
        ) from None
    watch()


def leave() -> None:
    """Wait until the first process has written everything, and leave the group."""
    if jax.distributed.is_initialized():
        talking.led(lambda: None)
        jax.distributed.shutdown()  # type: ignore[no-untyped-call]
        talking.end_watch()


def want_cpu_devices(devices: int) -> None:
    """Make the processes' shares of ``devices`` devices on CPUs, where no device is in use yet."""
    each, rest = divmod(devices, jax_private.count())
    chosen = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if jax.distributed.is_initialized() and not rest and not chosen and not jax_private.devices_are_in_use():
        jax.config.update("jax_num_cpu_devices", each)  # type: ignore[no-untyped-call]


def _checked(coordinator: str, num_processes: int, process_id: int, devices: tuple[int, ...] | None) -> Membership:
    host, colon, port = coordinator.rpartition(":")
    if not (host and colon and port.isdecimal() and 0 < int(port) < 65536):
        raise JoinError(f"--coordinator must be HOST:PORT of the first process, got {coordinator!r}")
    if num_processes < 1 or not 0 <= process_id < num_processes:
        raise JoinError(
            f"--process-id must be 0 to {num_processes - 1} with {num_processes} processes, got {process_id}"
        )
    return Membership(coordinator, num_processes, process_id, devices)


def _torchrun(environment: Mapping[str, str]) -> Membership | None:
    rank, size, host, port = (environment[name] for name in TORCHRUN)
    if not (rank.isdecimal() and size.isdecimal() and port.isdecimal()):
        raise JoinError(f"RANK, WORLD_SIZE and MASTER_PORT must be integers, got {rank!r}, {size!r} and {port!r}")
    if int(size) == 1:
        return None
    # torchrun's own store already listens on the port.
    shift = environment.get("TORCHELASTIC_USE_AGENT_STORE", "") == "True"
    local = environment.get("LOCAL_RANK", "")
    shared = int(environment.get("LOCAL_WORLD_SIZE", "1")) > 1 and local.isdecimal()
    return _checked(f"{host}:{int(port) + shift}", int(size), int(rank), (int(local),) if shared else None)


def _is_cluster(environment: Mapping[str, str]) -> bool:
    """Return whether JAX would detect several processes: of SLURM, Open MPI, Kubernetes or a TPU slice."""

    def several(name: str) -> bool:
        text = environment.get(name, "")
        return text.isdecimal() and int(text) > 1

    return (
        (several("SLURM_NTASKS") and "SLURM_PROCID" in environment)
        or several("OMPI_COMM_WORLD_SIZE")
        or ("KUBERNETES_SERVICE_HOST" in environment and "JOB_COMPLETION_INDEX" in environment)
        or "," in environment.get("TPU_WORKER_HOSTNAMES", "")
    )
