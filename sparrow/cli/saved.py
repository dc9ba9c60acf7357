"""A saved model, for the commands that read one, and the files that they write."""

from __future__ import annotations

import argparse
from typing import Any

from sparrow.cli.output import Mistake, note
from sparrow.files import AnyPath


def loaded(options: argparse.Namespace) -> Any:
    """Return the saved model, with overrides to its config."""
    from sparrow import config, runs
    from sparrow.errors import ConfigError

    changed = None
    try:
        if options.overrides:
            saved = runs.saved_config(options.model_dir, options.step)
            changed = config.loads(config.dumps(saved), overrides=options.overrides)
        return runs.load(options.model_dir, changed, options.step, log=note)
    except ConfigError as error:
        if options.imports or ".name: unknown" not in str(error):
            raise
        raise Mistake(f"{error}\na run with parts of your own needs --import FILE, as when it was trained") from None


def make_folder(folder: AnyPath) -> None:
    """Make a folder for results, with its parents."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Mistake(f"{folder}: cannot be made: {error.strerror}") from None


def write_table(table: Any, path: str) -> None:
    """Write an Arrow table into a Parquet file, whole or not at all, and make its folder."""
    import pyarrow.parquet as pq

    from sparrow.files import at, replacing

    make_folder(at(path).parent)
    with replacing(at(path)) as partial:
        pq.write_table(table, partial)
