"""`Command`: one command of the command line, and the arguments that several commands have."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from sparrow.processes import Restarts


KINDS: Final = ("ivf", "ivf_sq8", "hnsw")
"""The kinds of approximate search: `sparrow.retrieval.KINDS`, which takes long to import."""


class Command(NamedTuple):
    """One command.

    Attributes:
      name: the word on the command line.
      text: one sentence for its help.
      arguments: adds its arguments to its parser.
      run: runs it with the parsed options. Heavy modules are imported inside.
      compiles: whether it compiles programs, which are kept for the next time.
      modules: heavy modules that every use of it needs, imported before it runs.
      first_line: returns a line to write before anything is imported, for a command that takes a while.
      restarts: returns the rules by which its processes begin again, where its options ask for it.
    """

    name: str
    text: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], None]
    compiles: bool = False
    modules: tuple[str, ...] = ()
    first_line: Callable[[argparse.Namespace], str] | None = None
    restarts: Callable[[argparse.Namespace], Restarts] | None = None


def add_overrides(parser: argparse.ArgumentParser) -> None:
    """Add the overrides of a config's fields, which may stand anywhere on the line."""
    parser.add_argument("overrides", nargs="*", default=[], metavar="FIELD=VALUE", help="such as train.batch_size=4096")


def add_step(parser: argparse.ArgumentParser) -> None:
    """Add the choice of a checkpoint."""
    text = "the checkpoint; by default the best where known, else the last"
    parser.add_argument("--step", type=step, metavar="N|best|last", help=text)


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add ``--json``."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def seconds(text: str) -> float:
    """Return a number of seconds above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, got '{text}'")
    return value


def step(text: str) -> int | Literal["best", "last"]:
    """Return the step of a checkpoint, "best" or "last"."""
    words: dict[str, Literal["best", "last"]] = {"best": "best", "last": "last"}
    return words[text] if text in words else at_least_one(text)


step.__name__ = "step (an integer of at least 1, best or last)"


def at_least_one(text: str) -> int:
    """Return an integer of at least 1."""
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


at_least_one.__name__ = "integer of at least 1"  # argparse shows it in errors


def above_zero(text: str) -> float:
    """Return a number above 0."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError(text)
    return value


above_zero.__name__ = "number above 0"
