"""``sparrow import-config``."""

from __future__ import annotations

import argparse

from sparrow.cli.command import Command, add_overrides
from sparrow.cli.output import out


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("config")
    add_overrides(parser)
    parser.add_argument("--form", choices=("yaml", "json"), default="yaml", help="by default yaml")


def run(options: argparse.Namespace) -> None:
    """Write a config in Sparrow's form."""
    from sparrow import config

    out(config.dumps(config.load(options.config, options.overrides), options.form), end="")


COMMAND = Command("import-config", "Write a config, such as one of TorchEasyRec, as YAML.", arguments, run)
