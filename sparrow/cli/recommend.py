"""``sparrow recommend`` and ``sparrow tree``."""

from __future__ import annotations

import argparse

from sparrow.cli.command import BATCH_SIZE, CANDIDATES, KINDS, OVERRIDES, STEP, arg, at_least_one, command, names
from sparrow.cli.inputs import check_output, loaded, write_table
from sparrow.cli.output import out

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
    arg("--exclude-seen", action="store_true", help="leave out what a user has in the data to train on"),
    BATCH_SIZE,
    modules=("sparrow.runs",),
)
def recommend(options: argparse.Namespace) -> None:
    """Write the best items of each user, by two towers, a tree or codes, into a Parquet file."""
    check_output(options.output)
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
    check_output(options.output)
    items = {name: getattr(options, name) for name in ("id_column", "attributes", "branches")}
    made = loaded(options).item_tree(options.items, **items)
    write_table(made, options.output)
    out(f"{made.num_rows} nodes on {made['level'][-1].as_py() + 1} levels to {options.output}")
