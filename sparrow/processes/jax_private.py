"""Private parts of JAX for several processes: the client of its store, and whether devices are in use; and the
files of its cache of programs, which processes share.

JAX has no public name for these. `jax.process_index` and `jax.process_count` would start the devices, which a mesh
chooses later; Orbax reads the same client. Where a later JAX moves these names, importing this file fails at once.
"""

from __future__ import annotations

from typing import Any

import jax
from jax._src import distributed, lru_cache, xla_bridge

from sparrow.files import replace_file


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


_put = lru_cache.LRUCache.put


def write_programs_whole() -> None:
    """Make files of JAX's compilation cache appear when they are complete.

    JAX writes them in place: another process then reads a part, and warns of a truncated stream; a part that a killed
    process or a full disk has left is warned of for ever. With ``jax_compilation_cache_max_size`` JAX has locks of its
    own, and writes as before.
    """
    patched: Any = lru_cache.LRUCache
    patched.put = _put_whole


def _put_whole(cache: Any, key: str, value: bytes) -> None:
    if cache.eviction_enabled or not key or "://" in str(cache.path):
        _put(cache, key, value)
    elif not (path := cache.path / f"{key}-cache").exists():
        replace_file(path, value, durable=False, mode=0o600)
