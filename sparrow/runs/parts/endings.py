"""Errors that end a run early: the state is saved where possible, and the error is one line."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterator

import jax

from sparrow.checkpoint import CheckpointError
from sparrow.data import DataError
from sparrow.runs.errors import RunError
from sparrow.runs.saved.run_folder import RunFolder
from sparrow.runs.step.non_finite import NonFinite


def ending(error: Exception, made: int, folder: RunFolder, save: Callable[[], None] | None) -> Exception:
    """Save the state of the last good step, and return the error to raise instead of ``error``.

    Args:
      error: the error that ended the run.
      made: steps since the run began or was resumed.
      folder: the folder with the checkpoints.
      save: saves the current state, and waits for it; None: it cannot be saved now.
    """
    if isinstance(error, CheckpointError):
        return RunError(f"{error}; {_left(folder)}")
    if not made and not isinstance(error, NonFinite):
        return error
    if save is None:
        error.add_note(_left(folder))
        return RunError(f"{_sentence(error)}; {_left(folder)}") if isinstance(error, OSError) else error
    try:
        save()
    except NonFinite as first:  # of a step that was not checked yet: the first cause
        return ending(first, made, folder, save)
    except (CheckpointError, OSError) as second:
        return RunError(f"{_sentence(error)}; saving then failed too: {_sentence(second)}; {_left(folder)}")
    text = f"{_sentence(error)}\n{_left(folder)}"
    if isinstance(error, NonFinite):
        return NonFinite(text)
    if isinstance(error, DataError | OSError):
        return RunError(text)
    if isinstance(error, RunError):
        return type(error)(text)
    error.add_note(_left(folder))  # a bug in the program: show its traceback
    return error


@contextlib.contextmanager
def in_one_line(folder: RunFolder | None) -> Iterator[None]:
    """Turn errors of the operating system, and lack of memory, into a `RunError` of one line."""
    try:
        yield
    except (OSError, MemoryError) as error:
        raise RunError(f"{_sentence(error)}; {_left(folder)}") from error
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise RunError(f"the memory is full: {str(error).splitlines()[0]}; {_left(folder)}") from error


def _left(folder: RunFolder | None) -> str:
    try:
        steps = [] if folder is None else folder.steps
    except CheckpointError:
        return "the saved checkpoints cannot be listed now"
    if not steps:
        return "no checkpoint was saved before"
    return f"the checkpoint of step {steps[0]} is complete; continue from it with --resume"


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"the disk is full ({error.filename})" if error.filename else "the disk is full"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, MemoryError):
        return "the memory is full"
    return str(error) or type(error).__name__
