"""``sparrow plan``."""

from __future__ import annotations

import argparse
import json

from sparrow.cli.command import Command, add_json, add_overrides
from sparrow.cli.output import out


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("config")
    add_overrides(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> None:
    """Show the plan of a config."""
    from sparrow import config, plan

    made = plan.plan(config.load(options.config, options.overrides))
    if options.json:
        out(json.dumps(made.to_dict(), indent=1))
    else:
        plan.show(made)


COMMAND = Command("plan", "Predict the memory and speed of a config, without training.", arguments, run)
