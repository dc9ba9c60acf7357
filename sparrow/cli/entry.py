"""`main`: runs one command, and turns every error into lines and an exit code. A quick start of commands."""

from __future__ import annotations

import argparse
import gc
import hashlib
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, Final

from sparrow.cli.output import FAILED, OUTPUT, USER_ERROR, Mistake, begin, error_lines, note
from sparrow.cli.parsing import parsed
from sparrow.versions import __version__

INTERRUPTED: Final = 130
_CODES: Final = {
    ("sparrow.errors", "ConfigError"): USER_ERROR,
    ("sparrow.errors", "DataError"): USER_ERROR,
    ("sparrow.checkpoint.errors", "CheckpointError"): USER_ERROR,
    ("sparrow.runs.errors", "FolderError"): USER_ERROR,
    ("sparrow.runs.errors", "RunError"): FAILED,  # of a run that was started correctly
}
"""The exit codes of errors, by module and name."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    0; 1 for a run that could not go on; 2 for a user's mistake; 130 where Ctrl-C, 143 where SIGTERM stopped it.
    """
    options = parsed(arguments)
    options.owns_process, options.arguments = arguments is None, sys.argv[1:] if arguments is None else arguments
    if options.owns_process:
        collect_next_to_nothing()
    OUTPUT.is_quiet = options.quiet
    if options.command.doing:
        begin(f"sparrow {__version__}: {options.command.doing} {options.config}")
    if not hasattr(options, "supervised"):  # a command of one process
        return _run(options)
    from sparrow.cli.group import in_group

    return in_group(options, options.arguments, _run)


def _run(options: argparse.Namespace) -> int:
    try:
        for file in options.imports or ():
            importlib.import_module("sparrow.files").run_file(file)
        if options.command.modules:
            keep_programs()
        for module in options.command.modules:
            importlib.import_module(module)
        if options.owns_process:
            collect_seldom()
        options.command.run(options)
        if sys.stdout is not None:
            sys.stdout.flush()
    except KeyboardInterrupt as stop:
        return _interrupted(stop)
    except Mistake as error:
        return error_lines(error, USER_ERROR)
    except (OSError, MemoryError) as error:
        from sparrow.files import drop_output

        drop_output()
        return error_lines(_sentence(error), FAILED)
    except Exception as error:
        # A module that was never imported never raised.
        of_runs = sys.modules.get("sparrow.runs.errors")
        if of_runs is not None and isinstance(error, of_runs.Elsewhere):
            raise
        for (module, name), code in _CODES.items():
            if module in sys.modules and isinstance(error, getattr(sys.modules[module], name)):
                return error_lines(error, code)
        if not isinstance(error, RuntimeError) or "RESOURCE_EXHAUSTED" not in str(error):  # XLA's name for it
            raise
        return error_lines(f"the memory is full: {str(error).splitlines()[0]}", FAILED)
    return 0


def _sentence(error: OSError | MemoryError) -> str:
    if isinstance(error, MemoryError):
        return "the memory is full"
    text = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {text}" if error.filename else text


def _interrupted(stop: KeyboardInterrupt) -> int:
    """Print what was saved; return 130 after Ctrl-C, 143 after SIGTERM."""
    if "sparrow.runs" not in sys.modules:
        return error_lines("interrupted", INTERRUPTED)
    from sparrow.runs import Interrupted

    if not isinstance(stop, Interrupted):
        return error_lines("interrupted at once; steps since the last checkpoint are lost", INTERRUPTED)
    return error_lines(
        f"{stop}: {'saved; add --resume to continue' if stop.step else 'nothing was trained yet'}", 128 + stop.signal
    )


YOUNG: Final = 50_000
"""New objects between two collections: imports and traces make millions of objects that stay."""
IMPORTED: Final = 2_000_000
"""The same while modules are imported: more than all of them make."""


def collect_next_to_nothing() -> None:
    """Collect next to no garbage while modules are imported: nearly all of their objects stay."""
    gc.set_threshold(IMPORTED, *gc.get_threshold()[1:])


def collect_seldom() -> None:
    """Collect garbage seldom from now on, in the complete process, and never among the objects that exist by now."""
    gc.freeze()
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])


SWITCH: Final = "SPARROW_KEEP_PROGRAMS"
"""The variable that turns the keeping of programs off: 0."""

LEAST_SECONDS: Final = 0.0
"""Programs that are compiled quicker than this are not kept: loading them would save little."""


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
