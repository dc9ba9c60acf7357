"""Several processes of one run: joining, short messages between them, failures, and the supervisor on one machine.

Arrays travel by JAX's own collectives. Short messages travel through the key-value store of `jax.distributed`, which
any thread may use, and which works while devices are busy or a process fails.
"""

from sparrow.processes.coming_back import Restarts, supervise, supervised, tell_progress
from sparrow.processes.failing import ELSEWHERE, cause, report_failure, watch
from sparrow.processes.jax_private import count, index, write_programs_whole
from sparrow.processes.joining import JoinError, Membership, join, leave, membership_of, want_cpu_devices
from sparrow.processes.supervising import Start, end_with_parent, passed_on
from sparrow.processes.talking import awaited, everyone, found, is_first, led, publish, said_by_all, withdraw
