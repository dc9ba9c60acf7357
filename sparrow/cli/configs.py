"""``sparrow init`` and ``sparrow import-config``: commands that write configs."""

from __future__ import annotations

import argparse
from pathlib import Path

from sparrow.cli.command import arg, command, names
from sparrow.cli.inputs import CONFIG, given_config, is_torcheasyrec, overrides
from sparrow.cli.output import Mistake, note, out

_DESCRIBED = "the columns that describe {}, the id first, for a log of choices; separated by commas"


@command(
    "init",
    arg("data", help="a Parquet file, or a text file with a header (.csv, .tsv)"),
    arg("output", nargs="?", help="the config to write; by default the standard output"),
    arg("--target", metavar="COLUMN", help="the column to predict; by default one that looks like it"),
    arg("--loss", metavar="NAME", help="the loss, such as softmax_cross_entropy"),
    arg("--model", metavar="NAME", help="the model; by default deepfm, for a log dssm or sasrec"),
    arg("--user", type=names, default="", metavar="COLUMNS", help=_DESCRIBED.format("a user")),
    arg("--item", type=names, default="", metavar="COLUMNS", help=_DESCRIBED.format("an item")),
    arg("--time", metavar="COLUMN", help="the column of the time: learn which item comes next"),
    arg("--evaluate", metavar="FILE", help="data to evaluate on; by default a part of the file"),
)
def init(options: argparse.Namespace) -> None:
    """Write a first config for a Parquet or CSV file, with comments."""
    from sparrow import frames

    path = None if options.output is None else Path(options.output)
    if path is not None and path.exists():
        raise Mistake(f"{path} is there already; choose another name, or remove it")
    given = ("target", "evaluate", "loss", "model", "time", "user", "item")
    text = frames.first_config(options.data, **{name: getattr(options, name) for name in given})
    if path is None:
        out(text, end="")
        return
    path.write_text(text, encoding="utf-8")
    note(f"wrote {path}: read it, then run sparrow plan {path} and sparrow train {path} --model-dir runs/first")


@command(
    "import-config",
    *CONFIG,
    arg("--report", action="store_true", help="print the outcome of each field of a TorchEasyRec config"),
    arg("--form", choices=("yaml", "json"), default="yaml", help="by default yaml"),
)
def import_config(options: argparse.Namespace) -> None:
    """Write a config, such as one of TorchEasyRec, as YAML."""
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
