"""What JAX keeps private about several processes: the client of its store, and whether devices are in use.

JAX has no public name for either. `jax.process_index` and `jax.process_count` would start the devices, which a mesh
chooses later; Orbax reads the same client. Where a later JAX moves these names, importing this file fails at once.
"""

from __future__ import annotations

from typing import Any

import jax
from jax._src import distributed, xla_bridge


def client() -> Any:
    """Return the client of the store, or None where this process is alone."""
    return distributed.global_state.client if jax.distributed.is_initialized() else None


def index() -> int:
    """Return the number of this process."""
    return int(distributed.global_state.process_id) if jax.distributed.is_initialized() else 0


def count() -> int:
    """Return the number of processes."""
    return int(distributed.global_state.num_processes) if jax.distributed.is_initialized() else 1


def devices_are_in_use() -> bool:
    """Return whether JAX has started its devices."""
    return bool(xla_bridge.backends_are_initialized())
