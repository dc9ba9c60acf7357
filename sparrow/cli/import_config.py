"""``sparrow import-config``."""

from __future__ import annotations

import argparse

from sparrow.cli.command import Command
from sparrow.cli.given_config import add_config, given_config, is_torcheasyrec, overrides
from sparrow.cli.output import Mistake, out


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_config(parser)
    parser.add_argument(
        "--report", action="store_true", help="print the outcome of each field of a TorchEasyRec config"
    )
    parser.add_argument("--form", choices=("yaml", "json"), default="yaml", help="by default yaml")


def run(options: argparse.Namespace) -> None:
    """Write a config in Sparrow's form."""
    from sparrow import config

    if not options.report:
        out(config.dumps(given_config(options), options.form), end="")
        return
    if not is_torcheasyrec(options.config):
        raise Mistake(f"--report is of configs of TorchEasyRec, which end with .config; got {options.config}")
    lines, error = config.import_report(options.config, overrides(options))
    for line in lines:
        out(line)
    if error is not None:
        raise error


COMMAND = Command("import-config", "Write a config, such as one of TorchEasyRec, as YAML.", arguments, run)
