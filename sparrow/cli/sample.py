"""``sparrow sample``."""

from __future__ import annotations

import argparse
from pathlib import Path

from sparrow.cli.command import Command, at_least_one
from sparrow.cli.given_config import add_config, given_config, is_torcheasyrec
from sparrow.cli.output import out
from sparrow.cli.saved import make_folder


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_config(parser, output="the folder for the files, made if needed")
    parser.add_argument(
        "--rows", type=at_least_one, default=10_000, metavar="N", help="rows to train on; 10,000 unless given"
    )
    parser.add_argument("--seed", type=int, default=0, help="another seed gives other rows; 0 unless given")


def run(options: argparse.Namespace) -> None:
    """Write files that fit a config, and the config that reads them."""
    from sparrow import config, samples

    folder = Path(options.output)
    make_folder(folder)
    if is_torcheasyrec(options.config):  # its own paths, empty or of tables elsewhere, do not matter
        options.overrides = [
            *(f"{field}={folder / 'rows.parquet'}" for field in config.path_fields(options.config)),
            *options.overrides,
        ]
    made = samples.write(given_config(options), folder, options.rows, options.seed)
    for path in sorted(folder.glob("*.parquet")):
        out(f"{path}")
    out(f"{folder / 'config.yaml'}: sparrow train {folder / 'config.yaml'}" + ("" if made.model_dir else " RUN"))


COMMAND = Command("sample", "Write files that fit a config, to try it without its data.", arguments, run)
