"""`Command`: one command of the command line, its arguments as data, and those that several commands have."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from sparrow.processes import Restarts

KINDS: Final = ("ivf", "ivf_sq8", "hnsw")
"""The kinds of approximate search: `sparrow.retrieval.KINDS`, which takes long to import."""

Run = Callable[[argparse.Namespace], None]


class Argument(NamedTuple):
    """An argument of a command.

    Attributes:
      flags: its names.
      options: its further options, as ``add_argument`` of argparse takes them.
      of_group: whether it is one of the options of several processes.
    """

    flags: tuple[str, ...]
    options: dict[str, Any]
    of_group: bool = False


class Command(NamedTuple):
    """One command.

    Attributes:
      name: the word on the command line.
      text: one sentence for its help.
      arguments: its arguments, in order.
      run: runs it with the parsed options. Heavy modules are imported inside.
      modules: heavy modules that every use of it needs, imported before it runs; it compiles programs, which are kept
        for the next time.
      doing: the word for what it does with a config, for a line that is written before anything is imported.
      restarts: returns the rules by which its processes begin again, where its options ask for it.
    """

    name: str
    text: str
    arguments: tuple[Argument, ...]
    run: Run
    modules: tuple[str, ...] = ()
    doing: str = ""
    restarts: Callable[[argparse.Namespace], Restarts] | None = None


def arg(*flags: str, of_group: bool = False, **options: Any) -> Argument:
    """Return an argument of a command."""
    return Argument(flags, options, of_group)


def command(name: str, *arguments: Argument, **fields: Any) -> Callable[[Run], Command]:
    """Return a decorator that makes a command of the function that runs it, whose docstring is the text of its help."""
    return lambda run: Command(name, run.__doc__ or "", arguments, run, **fields)


def number(words: str, kind: type, least: float, most: float = math.inf) -> Callable[[str], Any]:
    """Return the type of an argument: a number from ``least`` to ``most``, which errors call by ``words``."""

    def read(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most or value == math.inf:
            raise argparse.ArgumentTypeError(f"must be {words}, got '{text}'")
        return value

    return read


_TINY: Final = math.nextafter(0.0, 1.0)
at_least_one: Final = number("an integer of at least 1", int, 1)
above_zero: Final = number("a number above 0", float, _TINY)
seconds: Final = number("a number of seconds above 0", float, _TINY)


def names(text: str) -> list[str]:
    """Return names that are separated by commas."""
    return [name for name in text.split(",") if name]


def _step(text: str) -> int | str:
    if text in ("best", "last"):
        return text
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a step (an integer of at least 1, best or last), got '{text}'")
    return int(text)


OVERRIDES: Final = arg("overrides", nargs="*", default=[], metavar="FIELD=VALUE", help="such as train.batch_size=4096")
"""The overrides of a config's fields, which may stand anywhere on the line."""
STEP: Final = arg(
    "--step", type=_step, metavar="N|best|last", help="the checkpoint; by default the best where known, else the last"
)
JSON: Final = arg("--json", action="store_true", help="print one JSON object")
BATCH_SIZE: Final = arg("--batch-size", type=at_least_one, help="rows at a time; by default as in evaluation")
CANDIDATES: Final = arg("--candidates", type=at_least_one, default=100, help="items that --ranker orders; default 100")
NO_VERIFY: Final = arg(
    "--no-verify", dest="verify", action="store_false", help="do not compare the checksum of an export's tables"
)
