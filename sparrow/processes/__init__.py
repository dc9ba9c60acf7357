"""Several processes of one run: joining, short messages between them, failures, and the supervisor on one machine.

Arrays travel by JAX's own collectives. Short messages travel through the key-value store of `jax.distributed`, which
any thread may use, and which works while devices are busy or a process fails.
"""

from sparrow.processes.jax_private import count, index, write_programs_whole
from sparrow.processes.joining import JoinError, Membership, join, leave, membership_of, want_cpu_devices
from sparrow.processes.supervising import (
    Restarts,
    Start,
    end_with_parent,
    passed_on,
    supervise,
    supervised,
    tell_progress,
)
from sparrow.processes.talking import (
    ELSEWHERE,
    awaited,
    cause,
    everyone,
    found,
    is_first,
    led,
    of_first,
    publish,
    report_failure,
    said_by_all,
    watch,
    withdraw,
)
