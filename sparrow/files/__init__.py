"""Files that appear whole or not at all, paths that stay in their folder, JSON of the declared types."""

from sparrow.files.atomic import exchange, replace_file, sync, write_durably
from sparrow.files.paths import UnsafePath, inside
from sparrow.files.typed import typed

__all__ = ["UnsafePath", "exchange", "inside", "replace_file", "sync", "typed", "write_durably"]
