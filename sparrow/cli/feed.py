"""``sparrow feed``."""

from __future__ import annotations

import argparse
import json

from sparrow.cli.command import Command, add_json, seconds
from sparrow.cli.given_config import add_config, given_config
from sparrow.cli.output import out


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_config(parser)
    parser.add_argument("--seconds", type=seconds, default=10.0, help="to measure, at most; 10 unless given")
    add_json(parser)


def run(options: argparse.Namespace) -> None:
    """Time the feed of a config."""
    from sparrow import runs

    times = runs.time_feed(given_config(options), options.seconds)
    out(json.dumps(times.to_dict(), indent=1) if options.json else "\n".join(times.lines()))


COMMAND = Command(
    "feed",
    "Time the way from files to the device alone, and name its slowest stage.",
    arguments,
    run,
    compiles=True,
    modules=("sparrow.runs",),
)
