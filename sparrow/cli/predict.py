"""``sparrow predict``."""

from __future__ import annotations

import argparse
import functools
from typing import Any

from sparrow.cli.command import BATCH_SIZE, NO_VERIFY, OVERRIDES, STEP, arg, command, names
from sparrow.cli.group import GROUP
from sparrow.cli.inputs import loaded, make_folder
from sparrow.cli.output import Mistake, out
from sparrow.files import at


@command(
    "predict",
    arg("model_dir", help="the folder of a run, or an export"),
    arg("input", help="a file, a folder, or a pattern in quotes"),
    arg("output", help="the Parquet file to write"),
    OVERRIDES,
    STEP,
    arg("--columns", type=names, default="", metavar="A,B", help="columns of the input to keep; NEW=OLD: renamed"),
    BATCH_SIZE,
    arg("--user", metavar="COLUMN", help="compute a history once for rows of one user; the export must have states"),
    NO_VERIFY,
    *GROUP,
    modules=("sparrow.serving",),
)
def predict(options: argparse.Namespace) -> None:
    """Predict every row of Parquet or text files, into a Parquet file."""
    from sparrow import serving

    predicted: Any
    if serving.is_export(options.model_dir):
        if options.overrides:
            raise Mistake(f"an export has no config that {options.overrides[0]} could change; leave it out")
        if options.step is not None:
            raise Mistake("an export holds one model; leave --step out, or name the folder of the run")
        model = serving.load(options.model_dir, verify=options.verify)
        predicted = functools.partial(serving.predict, model, user=options.user)
    elif options.user is not None:
        raise Mistake("--user needs an export; write it with sparrow export --states")
    else:
        from sparrow import runs

        predicted = functools.partial(runs.predict, *loaded(options))
    make_folder(at(options.output).parent)
    rows = predicted(options.input, options.output, columns=options.columns, batch_size=options.batch_size)
    out(f"{rows} rows to {options.output}")
