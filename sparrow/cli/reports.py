"""``sparrow report`` and ``sparrow compare``."""

from __future__ import annotations

import argparse
import json

from sparrow.cli.command import Command, add_json
from sparrow.cli.output import Mistake, note, out


def report_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="the folder of a run, finished or not")
    parser.add_argument("--output", metavar="FILE", help="by default RUN/report.html; for several runs, report.html")


def report_run(options: argparse.Namespace) -> None:
    """Write the report of runs."""
    from sparrow.reports import unshared, write_report

    for line in unshared(options.runs):
        note(f"sparrow: {line}")
    out(str(write_report(options.runs, options.output)))


REPORT = Command(
    "report", "Write the report of a run, or of several compared, as one HTML file.", report_arguments, report_run
)


def compare_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="the folder of a run, finished or not")
    parser.add_argument("--by", metavar="NUMBER", help="the number to sort by, such as auc; by default the given order")
    add_json(parser)


def compare_run(options: argparse.Namespace) -> None:
    """Show the last numbers of runs side by side, and the fields of their configs that differ."""
    from sparrow import reports

    compared = reports.compare(options.runs)
    if options.by is not None:
        if options.by not in compared.numbers:
            raise Mistake(f"--by: the runs have no number '{options.by}'; they have {', '.join(compared.numbers)}")
        compared = compared.sorted_by(options.by)
    out(json.dumps(compared.to_dict(), indent=1) if options.json else compared.text())


COMPARE = Command(
    "compare",
    "Show the last numbers of runs, and the fields of their configs that differ.",
    compare_arguments,
    compare_run,
)
