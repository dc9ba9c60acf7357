"""A quick start of commands: little garbage collection during imports, and compiled programs that are kept."""

from __future__ import annotations

import gc
import hashlib
import os
from typing import Any, Final

from sparrow.cli.output import note

YOUNG: Final = 50_000
"""New objects between two collections: imports and traces make millions of objects that stay."""
IMPORTED: Final = 2_000_000
"""The same while modules are imported: more than all of them make."""


def collect_next_to_nothing() -> None:
    """Collect next to no garbage while modules are imported: nearly all of their objects stay."""
    gc.set_threshold(IMPORTED, *gc.get_threshold()[1:])


def collect_seldom() -> None:
    """Collect garbage seldom from now on, in the whole process, and never among the objects that exist by now."""
    gc.freeze()
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])


SWITCH: Final = "SPARROW_KEEP_PROGRAMS"
"""Set to 0, nothing is kept."""

LEAST_SECONDS: Final = 0.0
"""Programs that are compiled quicker than this are not kept: also the smallest take longer to compile than to load."""


def keep_programs() -> None:
    """Keep compiled programs in the user's cache folder, unless JAX's own variables or `SWITCH` decide otherwise."""
    if os.environ.get(SWITCH) == "0":
        return
    import jax

    from sparrow.processes import write_programs_whole

    write_programs_whole()
    config: Any = jax.config
    if config.jax_compilation_cache_dir is not None or not config.jax_enable_compilation_cache:
        return
    from sparrow.kernels import cache

    try:
        folder = cache.own_folder(f"programs-{_machine()}")
    except cache.CacheError as error:
        note(f"compiled programs are not kept: {error}")
        return
    config.update("jax_compilation_cache_dir", str(folder))
    config.update("jax_persistent_cache_min_compile_time_secs", LEAST_SECONDS)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)  # for processes that this one starts
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = str(LEAST_SECONDS)
    if not any(folder.iterdir()):  # later commands need not repeat it
        note(f"compiled programs are kept in {folder} ({SWITCH}=0 turns this off)")


def _machine() -> str:
    """Return a name for this kind of processor: programs hold instructions that others may lack."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            facts = sorted({line for line in file if line.startswith(("flags", "Features", "model name"))})
    except OSError:
        import platform

        facts = [platform.machine(), platform.processor()]
    return hashlib.sha256("".join(facts).encode()).hexdigest()[:8]
