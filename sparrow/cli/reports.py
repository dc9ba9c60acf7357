"""``sparrow report`` and ``sparrow compare``."""

from __future__ import annotations

import argparse
import json

from sparrow.cli.command import JSON, arg, command
from sparrow.cli.output import Mistake, note, out

_RUNS = arg("runs", nargs="+", metavar="RUN", help="the folder of a run, finished or not")


@command(
    "report",
    _RUNS,
    arg("--output", metavar="FILE", help="by default RUN/report.html; for several runs, report.html"),
)
def report(options: argparse.Namespace) -> None:
    """Write the report of a run, or of several compared, as one HTML file."""
    from sparrow.reports import unshared, write_report

    for line in unshared(options.runs):
        note(f"sparrow: {line}")
    out(str(write_report(options.runs, options.output)))


@command(
    "compare",
    _RUNS,
    arg("--by", metavar="NUMBER", help="the number to sort by, such as auc; by default the given order"),
    JSON,
)
def compare(options: argparse.Namespace) -> None:
    """Show the last numbers of runs, and the fields of their configs that differ."""
    from sparrow import reports

    compared = reports.compare(options.runs)
    if options.by is not None:
        if options.by not in compared.numbers:
            raise Mistake(f"--by: the runs have no number '{options.by}'; they have {', '.join(compared.numbers)}")
        compared = compared.sorted_by(options.by)
    out(json.dumps(compared.to_dict(), indent=1) if options.json else compared.text())
