"""``sparrow recommend`` and ``sparrow tree``."""

from __future__ import annotations

import argparse

from sparrow.cli.command import KINDS, Command, add_overrides, add_step, at_least_one
from sparrow.cli.inputs import check_output, loaded, write_table
from sparrow.cli.output import out


def recommend_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("model_dir", help="the folder of a run whose model has two towers, a tree or codes")
    parser.add_argument("input", help="rows of users: a file, a folder, or a pattern in quotes")
    parser.add_argument("output", help="a Parquet file: a row per user and item, with score and rank")
    add_overrides(parser)
    add_step(parser)
    parser.add_argument("-k", type=at_least_one, default=10, help="items per user; default 10")
    parser.add_argument(
        "--items",
        help="files with a row per item; by default the items of the data to train on; of codes: with a column 'codes'",
    )
    parser.add_argument("--id-column", help="the column of the ids in --items")
    parser.add_argument("--attributes", default="", metavar="A,B", help="columns of the items that --ranker reads")
    parser.add_argument("--approximate", choices=KINDS, help="search the vectors of items by FAISS")
    parser.add_argument("--ranker", metavar="EXPORT", help="another model, which orders the best items again")
    parser.add_argument("--candidates", type=at_least_one, default=100, help="items that --ranker orders; default 100")
    parser.add_argument("--exclude-seen", action="store_true", help="leave out what a user has in the data to train on")
    parser.add_argument("--batch-size", type=at_least_one, help="rows at a time; by default as in evaluation")


def recommend_run(options: argparse.Namespace) -> None:
    """Write the best items of each user, into a Parquet file."""
    check_output(options.output)
    model = loaded(options)
    attributes = [name for name in options.attributes.split(",") if name]
    items = {"id_column": options.id_column, "attributes": attributes, "batch_size": options.batch_size}
    index = model.item_index(options.items, **items)
    if options.approximate is not None:
        index = model.with_approximate(index, options.approximate)
    ranked = {"ranker": options.ranker, "candidates": options.candidates, "batch_size": options.batch_size}
    found = model.recommend(options.input, options.k, index=index, exclude_seen=options.exclude_seen, **ranked)
    write_table(found, options.output)
    out(f"{found.num_rows} rows among {len(index)} items to {options.output}")


RECOMMEND = Command(
    "recommend",
    "Write the best items of each user, by two towers, a tree or codes, into a Parquet file.",
    recommend_arguments,
    recommend_run,
    compiles=True,
    modules=("sparrow.runs",),
)


def tree_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("model_dir", help="a run of two towers; or one of tdm, whose tree is built again")
    parser.add_argument("output", help="a Parquet file for data.tree.nodes: a row per node")
    add_overrides(parser)
    add_step(parser)
    parser.add_argument("--items", help="files with a row per item; by default the items of the data to train on")
    parser.add_argument("--id-column", help="the column of the ids in --items")
    parser.add_argument("--attributes", default="", metavar="A,B", help="columns of the items that the nodes keep")
    parser.add_argument("--branches", type=at_least_one, default=2, help="children of a node; default 2")


def tree_run(options: argparse.Namespace) -> None:
    """Write a tree of items, similar ones together, into a Parquet file."""
    check_output(options.output)
    attributes = [name for name in options.attributes.split(",") if name]
    items = {"id_column": options.id_column, "attributes": attributes, "branches": options.branches}
    tree = loaded(options).item_tree(options.items, **items)
    write_table(tree, options.output)
    out(f"{tree.num_rows} nodes on {tree['level'][-1].as_py() + 1} levels to {options.output}")


TREE = Command(
    "tree",
    "Write a tree of items, for the model tdm, from the vectors of a trained one.",
    tree_arguments,
    tree_run,
    compiles=True,
    modules=("sparrow.runs",),
)
