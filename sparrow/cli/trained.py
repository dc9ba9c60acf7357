"""``sparrow eval``, ``predict``, ``recommend``, ``tree`` and ``export``: commands on a trained model."""

from __future__ import annotations

import argparse
import functools
import json
from typing import Any

from sparrow.cli.command import (
    BATCH_SIZE,
    CANDIDATES,
    JSON,
    KINDS,
    NO_VERIFY,
    OVERRIDES,
    STEP,
    arg,
    at_least_one,
    command,
    names,
)
from sparrow.cli.group import GROUP
from sparrow.cli.inputs import PATHS, loaded, make_folder, write_table
from sparrow.cli.output import Mistake, note, out
from sparrow.files import at, check_parquet


@command(
    "eval",
    arg("model_dir"),
    OVERRIDES,
    PATHS["eval_input_path"],
    STEP,
    JSON,
    arg("--export", metavar="FOLDER", help="show the metrics of an export of this run beside its own"),
    arg(
        "--importance",
        type=at_least_one,
        nargs="?",
        const=20_000,
        metavar="ROWS",
        help="show the growth of the loss when the values of a feature are permuted, on 20,000 rows unless given, and "
        "keep it for the report",
    ),
    *GROUP,
    modules=("sparrow.runs",),
)
def evaluate(options: argparse.Namespace) -> None:
    """Evaluate a trained model."""
    run = loaded(options)
    if options.eval_input_path is None and run.config.data.evaluate_rows is None:
        raise Mistake(
            f"{options.model_dir}: the run has no data to evaluate on; "
            "add data.evaluate to the config, or give --eval-input-path FILE"
        )
    if options.importance is not None:
        _importance(run, options)
        return
    evaluator = run.evaluator(options.eval_input_path)
    results = evaluator(run.state, note)
    if options.export is not None:
        _beside(results, run.evaluate(options.eval_input_path, export=options.export), options)
        return
    if options.json:
        out(json.dumps({name: value if value == value else None for name, value in results.items()}))
        for line in evaluator.undefined():
            note(line)
        return
    width = max(map(len, results))
    for name, value in results.items():
        why = f"  ({evaluator.reasons[name]})" if name in evaluator.reasons else ""
        out(f"{name:{width}}  {value:.6g}{why}")


def _beside(own: dict[str, float], exported: dict[str, float], options: argparse.Namespace) -> None:
    if options.json:
        out(json.dumps({"run": own, "export": exported}))
        return
    width = max(map(len, own))
    out(f"{'':{width}}  {'run':>10}  {'export':>10}  difference")
    for name, value in own.items():
        other = exported.get(name)
        more = f"{'-':>10}" if other is None else f"{other:10.6f}  {other - value:+.6f}"
        out(f"{name:{width}}  {value:10.6f}  {more}")


def _importance(run: Any, options: argparse.Namespace) -> None:
    found = run.importance(options.eval_input_path, rows=options.importance, log=note, save=True)
    if options.json:
        out(json.dumps(found))
        return
    width = max(map(len, found))
    for name, results in found.items():
        out(f"{name:{width}}  " + "  ".join(f"{result} {value:+.4g}" for result, value in results.items()))


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
            raise Mistake(f"an export has no config to change; leave {options.overrides[0]} out")
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


_ID_COLUMN = arg("--id-column", help="the column of the ids in --items")


@command(
    "recommend",
    arg("model_dir", help="the folder of a run whose model has two towers, a tree or codes"),
    arg("input", help="rows of users: a file, a folder, or a pattern in quotes"),
    arg("output", help="a Parquet file: a row per user and item, with score and rank"),
    OVERRIDES,
    STEP,
    arg("-k", type=at_least_one, default=10, help="items per user; default 10"),
    arg(
        "--items",
        help="files with a row per item; by default the items of the data to train on; of codes: with a column 'codes'",
    ),
    _ID_COLUMN,
    arg("--attributes", type=names, default="", metavar="A,B", help="columns of the items that --ranker reads"),
    arg("--approximate", choices=KINDS, help="search the vectors of items by FAISS"),
    arg("--ranker", metavar="EXPORT", help="another model, which orders the best items again"),
    CANDIDATES,
    arg("--exclude-seen", action="store_true", help="leave out what a user has in data.train"),
    BATCH_SIZE,
    modules=("sparrow.runs",),
)
def recommend(options: argparse.Namespace) -> None:
    """Write the best items of each user, by two towers, a tree or codes, into a Parquet file."""
    check_parquet(at(options.output))
    model = loaded(options)
    items = {name: getattr(options, name) for name in ("id_column", "attributes", "batch_size")}
    index = model.item_index(options.items, **items)
    if options.approximate is not None:
        index = model.with_approximate(index, options.approximate)
    ranked = {name: getattr(options, name) for name in ("ranker", "candidates", "batch_size", "exclude_seen")}
    found = model.recommend(options.input, options.k, index=index, **ranked)
    write_table(found, options.output)
    out(f"{found.num_rows} rows among {len(index)} items to {options.output}")


@command(
    "tree",
    arg("model_dir", help="a run of two towers; or one of tdm, whose tree is built again"),
    arg("output", help="a Parquet file for data.tree.nodes: a row per node"),
    OVERRIDES,
    STEP,
    arg("--items", help="files with a row per item; by default the items of the data to train on"),
    _ID_COLUMN,
    arg("--attributes", type=names, default="", metavar="A,B", help="columns of the items that the nodes keep"),
    arg("--branches", type=at_least_one, default=2, help="children of a node; default 2"),
    modules=("sparrow.runs",),
)
def tree(options: argparse.Namespace) -> None:
    """Write a tree of items, for the model tdm, from the vectors of a trained one."""
    items = {name: getattr(options, name) for name in ("id_column", "attributes", "branches")}
    check_parquet(at(options.output))
    made = loaded(options).item_tree(options.items, **items)
    write_table(made, options.output)
    out(f"{made.num_rows} nodes on {made['level'][-1].as_py() + 1} levels to {options.output}")


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
        raise Mistake("--id-column, --attributes and --approximate describe the items of --index; add --index")
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
