"""``sparrow feed``."""

from __future__ import annotations

import argparse
import json

from sparrow.cli.command import Command, add_json, add_overrides, seconds
from sparrow.cli.output import out


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("config")
    add_overrides(parser)
    parser.add_argument("--seconds", type=seconds, default=10.0, help="to measure, at most; 10 unless given")
    add_json(parser)


def run(options: argparse.Namespace) -> None:
    """Time the feed of a config."""
    from sparrow import config, runs

    times = runs.time_feed(config.load(options.config, options.overrides), options.seconds)
    out(json.dumps(times.to_dict(), indent=1) if options.json else "\n".join(times.lines()))


COMMAND = Command("feed", "Time the way from files to the device alone, and name its slowest stage.", arguments, run)
