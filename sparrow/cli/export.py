"""``sparrow export``."""

from __future__ import annotations

import argparse
from typing import Any

from sparrow.cli.command import KINDS, Command, add_step
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
    parser.add_argument(
        "--index",
        nargs="?",
        const=True,
        metavar="ITEMS",
        help="write the items to recommend too: of the data to train on, or of files with a row per item",
    )
    parser.add_argument("--id-column", help="the column of the ids in the files of --index")
    parser.add_argument("--attributes", default="", metavar="A,B", help="columns of the items to filter by")
    parser.add_argument("--approximate", choices=KINDS, help="an approximate search of the items besides, by FAISS")
    parser.add_argument(
        "--states", action="store_true", help="also write functions that keep a user's history as a state"
    )
    parser.add_argument("--tables", choices=("float16", "int8", "int4"), help="smaller tables; default: as trained")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing export")
    add_group(parser)


def run(options: argparse.Namespace) -> None:
    """Write a saved model as an export."""
    from sparrow import exports, processes, runs

    processes.led(
        lambda: exports.refuse(options.output, options.overwrite), Mistake
    )  # before the model is read, which takes a while
    if options.index is None and (options.id_column or options.attributes or options.approximate):
        raise Mistake("--id-column, --attributes and --approximate are about the items of --index; give it too")
    run = runs.load(options.model_dir, step=options.step, log=note)
    program, state = run
    if not processes.is_first():
        exports.give_rows(program, state)
        return
    index = None if options.index is None else _index(run, options)
    chosen = {"ema": options.ema, "overwrite": options.overwrite, "index": index, "tables": options.tables}
    chosen["states"] = options.states
    made = exports.export(program, state, options.output, **chosen)
    size, platforms = sum(file.bytes for file in made.files.values()), ", ".join(made.platforms)
    average = ", the average of its parameters" * made.ema
    out(f"{made.model} of step {made.step}{average}: {size:,} bytes to {options.output}, for {platforms}")


def _index(run: Any, options: argparse.Namespace) -> Any:
    """Return the items to recommend."""
    items = None if options.index is True else options.index
    attributes = [name for name in options.attributes.split(",") if name]
    index = run.item_index(items, id_column=options.id_column, attributes=attributes)
    if options.approximate is None:
        out(f"{len(index):,} items, searched exactly")
        return index
    index = run.with_approximate(index, options.approximate)
    out(f"{len(index):,} items, searched by {options.approximate}: recall@10 {index.approximate.recall:.4f}")
    return index


COMMAND = Command(
    "export",
    "Write a trained model as StableHLO and safetensors, to predict without its code.",
    arguments,
    run,
    compiles=True,
    modules=("sparrow.runs", "sparrow.exports"),
)
