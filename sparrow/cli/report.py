"""``sparrow report``."""

from __future__ import annotations

import argparse

from sparrow.cli.command import Command
from sparrow.cli.output import note, out


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="the folder of a run, finished or not")
    parser.add_argument("--output", metavar="FILE", help="by default RUN/report.html; for several runs, report.html")


def run(options: argparse.Namespace) -> None:
    """Write the report of runs."""
    from sparrow.reports import unshared, write_report

    for line in unshared(options.runs):
        note(f"sparrow: {line}")
    out(str(write_report(options.runs, options.output)))


COMMAND = Command(
    "report",
    "Write the report of a run, or of several compared, as one HTML file.",
    arguments,
    run,
)
