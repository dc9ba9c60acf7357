"""``sparrow init``."""

from __future__ import annotations

import argparse
from pathlib import Path

from sparrow.cli.command import Command
from sparrow.cli.output import Mistake, note, out


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("data", help="a Parquet file, or a text file with a header (.csv, .tsv)")
    parser.add_argument("output", nargs="?", help="the config to write; by default the standard output")
    parser.add_argument("--target", metavar="COLUMN", help="the column to predict; by default one that looks like it")
    parser.add_argument("--loss", metavar="NAME", help="the loss, such as softmax_cross_entropy")
    parser.add_argument("--evaluate", metavar="FILE", help="data to evaluate on; by default a part of the file")


def run(options: argparse.Namespace) -> None:
    """Write a first config for a file, with the reason for each guess."""
    from sparrow import frames

    path = None if options.output is None else Path(options.output)
    if path is not None and path.exists():
        raise Mistake(f"{path} is there already; choose another name, or remove it")
    text = frames.first_config(options.data, target=options.target, evaluate=options.evaluate, loss=options.loss)
    if path is None:
        out(text, end="")
        return
    path.write_text(text, encoding="utf-8")
    note(f"wrote {path}: read it, then run sparrow plan {path} and sparrow train {path} --model-dir runs/first")


COMMAND = Command("init", "Write a first config for a Parquet or CSV file, with comments.", arguments, run)
