"""Bytes that Linux reports of its memory, in files such as /proc/meminfo."""

from __future__ import annotations

from pathlib import Path


def proc_bytes(path: str) -> dict[str, int]:
    """Return the numbers of lines such as ``MemTotal: 2000 kB``, in bytes, by name; none where there is no file."""
    try:
        lines = [line.split() for line in Path(path).read_text().splitlines()]
        return {line[0].rstrip(":"): int(line[1]) * 1024 for line in lines if line[2:] == ["kB"]}
    except (OSError, ValueError):
        return {}
