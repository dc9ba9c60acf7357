"""`main`: runs one command, and turns every error into lines and an exit code."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Final

from sparrow.cli.output import Mistake, begin, error_lines, set_quiet
from sparrow.cli.parsing import parsed
from sparrow.cli.starting import collect_next_to_nothing, collect_seldom, keep_programs

FAILED: Final = 1
USER_ERROR: Final = 2
INTERRUPTED: Final = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    0; 1 for a run that could not go on; 2 for a user's mistake; 130 where Ctrl-C, 143 where SIGTERM stopped it.
    """
    options = parsed(arguments)
    options.owns_process, options.arguments = arguments is None, sys.argv[1:] if arguments is None else arguments
    if options.owns_process:
        collect_next_to_nothing()
    set_quiet(options.quiet)
    if options.command.first_line is not None:
        begin(options.command.first_line(options))
    if not hasattr(options, "supervised"):  # a command of one process
        return _run(options)
    from sparrow.cli.group import in_group

    return in_group(options, options.arguments, _run)


def _run(options: argparse.Namespace) -> int:
    try:
        for file in options.imports or ():
            _run_file(file)
        if options.command.compiles:
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
    except _mistakes() as error:
        return error_lines(error, USER_ERROR)
    except _failures() as error:
        if _is_elsewhere(error):
            raise
        return error_lines(error, FAILED)
    except (OSError, MemoryError) as error:
        from sparrow.files import drop_output

        drop_output()
        return error_lines(_sentence(error), FAILED)
    except RuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):  # XLA's name for it
            raise
        return error_lines(f"the memory is full: {str(error).splitlines()[0]}", FAILED)
    return 0


def _run_file(file: str) -> None:
    from sparrow.files import run_file

    run_file(file)


def _sentence(error: OSError | MemoryError) -> str:
    if isinstance(error, MemoryError):
        return "the memory is full"
    text = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {text}" if error.filename else text


def _mistakes() -> tuple[type[Exception], ...]:
    """Return the errors that are a user's mistake."""
    from sparrow.errors import ConfigError, DataError

    return (
        ConfigError,
        DataError,
        *_imported("sparrow.checkpoint.errors", "CheckpointError"),
        *_imported("sparrow.runs.errors", "FolderError"),
    )


def _failures() -> tuple[type[Exception], ...]:
    """Return the errors that end a run that was started correctly."""
    return _imported("sparrow.runs.errors", "RunError")


def _is_elsewhere(error: Exception) -> bool:
    return isinstance(error, _imported("sparrow.runs.errors", "Elsewhere"))


def _imported(module: str, name: str) -> tuple[type[Exception], ...]:
    """Return an error of a module; none where it was never imported, and so never raised."""
    return (getattr(sys.modules[module], name),) if module in sys.modules else ()


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
