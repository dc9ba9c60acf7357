"""Files that appear whole or not at all, and paths that stay in their folder."""

from sparrow.files.atomic import exchange, replace_file, sync, write_durably
from sparrow.files.paths import UnsafePath, inside

__all__ = ["UnsafePath", "exchange", "inside", "replace_file", "sync", "write_durably"]
