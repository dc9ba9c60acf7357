"""``sparrow init`` and ``sparrow import-config``: commands that write configs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sparrow.cli.command import Command
from sparrow.cli.inputs import add_config, given_config, is_torcheasyrec, overrides
from sparrow.cli.output import Mistake, note, out


def init_arguments(parser: argparse.ArgumentParser) -> None:
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


def init_run(options: argparse.Namespace) -> None:
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


INIT = Command("init", "Write a first config for a Parquet or CSV file, with comments.", init_arguments, init_run)


def import_config_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_config(parser)
    parser.add_argument(
        "--report", action="store_true", help="print the outcome of each field of a TorchEasyRec config"
    )
    parser.add_argument("--form", choices=("yaml", "json"), default="yaml", help="by default yaml")


def import_config_run(options: argparse.Namespace) -> None:
    """Write a config in Sparrow's form."""
    from sparrow import config

    if not options.report:
        out(config.dumps(given_config(options), options.form), end="")
        return
    if not is_torcheasyrec(options.config):
        raise Mistake(f"--report takes a config of TorchEasyRec, which ends with .config; got {options.config}")
    lines, error = config.import_report(options.config, overrides(options))
    for line in lines:
        out(line)
    if error is not None:
        raise error


IMPORT_CONFIG = Command(
    "import-config", "Write a config, such as one of TorchEasyRec, as YAML.", import_config_arguments, import_config_run
)
