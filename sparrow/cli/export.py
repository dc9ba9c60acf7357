"""``sparrow export``."""

from __future__ import annotations

import argparse
from typing import Any

from sparrow.cli.command import KINDS, STEP, arg, command, names
from sparrow.cli.group import GROUP
from sparrow.cli.output import Mistake, note, out


@command(
    "export",
    arg("model_dir", help="the folder of a run"),
    arg("output", help="the folder to write"),
    STEP,
    arg(
        "--ema",
        action=argparse.BooleanOptionalAction,
        help="the average of the parameters, or the last ones; by default as in evaluation",
    ),
    arg(
        "--index",
        nargs="?",
        const=True,
        metavar="ITEMS",
        help="write the items to recommend too: of the data to train on, or of files with a row per item",
    ),
    arg("--id-column", help="the column of the ids in the files of --index"),
    arg("--attributes", type=names, default="", metavar="A,B", help="columns of the items to filter by"),
    arg("--approximate", choices=KINDS, help="an approximate search of the items besides, by FAISS"),
    arg("--states", action="store_true", help="also write functions that keep a user's history as a state"),
    arg("--tables", choices=("float16", "int8", "int4"), help="smaller tables; default: as trained"),
    arg("--overwrite", action="store_true", help="replace an existing export"),
    *GROUP,
    modules=("sparrow.runs", "sparrow.exports"),
)
def export(options: argparse.Namespace) -> None:
    """Write a trained model as StableHLO and safetensors, to predict without its code."""
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
    chosen = {name: getattr(options, name) for name in ("ema", "overwrite", "tables", "states")} | {"index": index}
    made = exports.export(program, state, options.output, **chosen)
    size, platforms = sum(file.bytes for file in made.files.values()), ", ".join(made.platforms)
    average = ", the average of its parameters" * made.ema
    out(f"{made.model} of step {made.step}{average}: {size:,} bytes to {options.output}, for {platforms}")


def _index(run: Any, options: argparse.Namespace) -> Any:
    """Return the items to recommend."""
    items = None if options.index is True else options.index
    index = run.item_index(items, id_column=options.id_column, attributes=options.attributes)
    if options.approximate is None:
        out(f"{len(index):,} items, searched exactly")
        return index
    index = run.with_approximate(index, options.approximate)
    out(f"{len(index):,} items, searched by {options.approximate}: recall@10 {index.approximate.recall:.4f}")
    return index
