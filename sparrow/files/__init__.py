"""Files that appear complete or not at all, paths that stay in their folder, JSON of the declared types."""

from sparrow.files.atomic import exchange, replace_file, replacing, sync, write_durably
from sparrow.files.output import drop_output
from sparrow.files.paths import UnsafePath, inside
from sparrow.files.python import run_file
from sparrow.files.typed import typed

__all__ = [
    "UnsafePath",
    "drop_output",
    "exchange",
    "inside",
    "replace_file",
    "replacing",
    "run_file",
    "sync",
    "typed",
    "write_durably",
]
