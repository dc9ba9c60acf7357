"""``sparrow predict``."""

from __future__ import annotations

import argparse
import functools
from typing import Any

from sparrow.cli.command import Command, add_overrides, add_step, at_least_one
from sparrow.cli.group import add_group
from sparrow.cli.inputs import loaded, make_folder
from sparrow.cli.output import Mistake, out
from sparrow.files import at


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("model_dir", help="the folder of a run, or an export")
    parser.add_argument("input", help="a file, a folder, or a pattern in quotes")
    parser.add_argument("output", help="the Parquet file to write")
    add_overrides(parser)
    add_step(parser)
    parser.add_argument("--columns", default="", metavar="A,B", help="columns of the input to keep; NEW=OLD: renamed")
    parser.add_argument("--batch-size", type=at_least_one, help="rows at a time; by default as in evaluation")
    parser.add_argument(
        "--user", metavar="COLUMN", help="compute a history once for rows of one user; the export must have states"
    )
    parser.add_argument(
        "--no-verify", dest="verify", action="store_false", help="do not compare the checksum of an export's tables"
    )
    add_group(parser)


def run(options: argparse.Namespace) -> None:
    """Predict every row of files, into a Parquet file."""
    from sparrow import serving

    predict: Any
    if serving.is_export(options.model_dir):
        if options.overrides:
            raise Mistake(f"an export has no config that {options.overrides[0]} could change; leave it out")
        if options.step is not None:
            raise Mistake("an export holds one model; leave --step out, or name the folder of the run")
        model = serving.load(options.model_dir, verify=options.verify)
        predict = functools.partial(serving.predict, model, user=options.user)
    elif options.user is not None:
        raise Mistake("--user needs an export; write it with sparrow export --states")
    else:
        from sparrow import runs

        predict = functools.partial(runs.predict, *loaded(options))
    make_folder(at(options.output).parent)
    columns = [column for column in options.columns.split(",") if column]
    rows = predict(options.input, options.output, columns=columns, batch_size=options.batch_size)
    out(f"{rows} rows to {options.output}")


COMMAND = Command(
    "predict",
    "Predict every row of Parquet or text files, into a Parquet file.",
    arguments,
    run,
    compiles=True,
    modules=("sparrow.serving",),
)
