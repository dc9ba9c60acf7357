"""``sparrow init``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sparrow.cli.command import Command
from sparrow.cli.output import Mistake, note, out


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("data", help="a Parquet file, or a text file with a header (.csv, .tsv)")
    parser.add_argument("output", nargs="?", help="the config to write; by default the standard output")
    parser.add_argument("--target", metavar="COLUMN", help="the column to predict; by default one that looks like it")
    parser.add_argument("--loss", metavar="NAME", help="the loss, such as softmax_cross_entropy")
    parser.add_argument("--model", metavar="NAME", help="the model; by default deepfm, for a log dssm or sasrec")
    of = "the columns that describe {}, the id first, for a log of choices; separated by commas"
    parser.add_argument("--user", metavar="COLUMNS", help=of.format("a user"))
    parser.add_argument("--item", metavar="COLUMNS", help=of.format("an item"))
    parser.add_argument("--time", metavar="COLUMN", help="the column of the time: learn which item comes next")
    parser.add_argument("--evaluate", metavar="FILE", help="data to evaluate on; by default a part of the file")


def run(options: argparse.Namespace) -> None:
    """Write a first config for a file, with the reason for each guess."""
    from sparrow import frames

    path = None if options.output is None else Path(options.output)
    if path is not None and path.exists():
        raise Mistake(f"{path} is there already; choose another name, or remove it")
    columns = {name: getattr(options, name) or "" for name in ("user", "item")}
    named: dict[str, Any] = {name: [each for each in text.split(",") if each] for name, text in columns.items()}
    given = {name: getattr(options, name) for name in ("target", "evaluate", "loss", "model", "time")}
    text = frames.first_config(options.data, **given, **named)
    if path is None:
        out(text, end="")
        return
    path.write_text(text, encoding="utf-8")
    note(f"wrote {path}: read it, then run sparrow plan {path} and sparrow train {path} --model-dir runs/first")


COMMAND = Command("init", "Write a first config for a Parquet or CSV file, with comments.", arguments, run)
