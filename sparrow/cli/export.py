"""``sparrow export``."""

from __future__ import annotations

import argparse

from sparrow.cli.command import Command, add_step
from sparrow.cli.group import add_group
from sparrow.cli.output import Mistake, note, out


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("model_dir", help="the folder of a run")
    parser.add_argument("output", help="the folder to write")
    add_step(parser)
    parser.add_argument(
        "--ema",
        action=argparse.BooleanOptionalAction,
        help="the average of the parameters, or the last ones; by default as in evaluation",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an existing export")
    add_group(parser)


def run(options: argparse.Namespace) -> None:
    """Write a saved model as an export."""
    from sparrow import exports, processes, runs

    processes.led(
        lambda: exports.refuse(options.output, options.overwrite), Mistake
    )  # before the model is read, which takes a while
    program, state = runs.load(options.model_dir, step=options.step, log=note)
    if not processes.is_first():
        exports.give_rows(program, state)
        return
    made = exports.export(program, state, options.output, ema=options.ema, overwrite=options.overwrite)
    size, platforms = sum(file.bytes for file in made.files.values()), ", ".join(made.platforms)
    average = ", the average of its parameters" * made.ema
    out(f"{made.model} of step {made.step}{average}: {size:,} bytes to {options.output}, for {platforms}")


COMMAND = Command(
    "export",
    "Write a trained model as StableHLO and safetensors, to predict without its code.",
    arguments,
    run,
    compiles=True,
    modules=("sparrow.runs", "sparrow.exports"),
)
