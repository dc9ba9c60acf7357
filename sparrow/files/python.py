"""Python files of users that are run: configs, and models of their own."""

from __future__ import annotations

import os
import runpy
import traceback
from pathlib import Path
from typing import Any

from sparrow.errors import ConfigError, Problem


def run_file(path: str | Path) -> dict[str, Any]:
    """Return the names that a Python file defines. An error in it is a `ConfigError` with the line it was raised on."""
    path = str(path)
    if not os.path.isfile(path):
        raise ConfigError("there is no such file", path)
    try:
        return runpy.run_path(path)
    except ConfigError:
        raise
    except SyntaxError as error:
        raise ConfigError([Problem((), f"is not Python: {error.msg}", error.lineno)], path) from None
    except (Exception, SystemExit) as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
        text = " ".join(f"{type(error).__name__}: {error}".split())
        raise ConfigError([Problem((), f"raised {text}", lines[-1] if lines else None)], path) from error
