"""``sparrow compare``."""

from __future__ import annotations

import argparse
import json

from sparrow.cli.command import Command, add_json
from sparrow.cli.output import Mistake, out


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="the folder of a run, finished or not")
    parser.add_argument("--by", metavar="NUMBER", help="the number to sort by, such as auc; by default the given order")
    add_json(parser)


def run(options: argparse.Namespace) -> None:
    """Show the last numbers of runs side by side, and the fields of their configs that differ."""
    from sparrow import reports

    compared = reports.compare(options.runs)
    if options.by is not None:
        if options.by not in compared.numbers:
            raise Mistake(f"--by: the runs have no number '{options.by}'; they have {', '.join(compared.numbers)}")
        compared = compared.sorted_by(options.by)
    out(json.dumps(compared.to_dict(), indent=1) if options.json else compared.text())


COMMAND = Command(
    "compare",
    "Show the last numbers of runs, and the fields of their configs that differ.",
    arguments,
    run,
)
