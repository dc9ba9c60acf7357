"""``sparrow tree``."""

from __future__ import annotations

import argparse

from sparrow.cli.command import Command, add_overrides, add_step, at_least_one
from sparrow.cli.output import out
from sparrow.cli.saved import loaded, write_table


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("model_dir", help="a run of two towers; or one of tdm, whose tree is built again")
    parser.add_argument("output", help="a Parquet file for data.tree.nodes: a row per node")
    add_overrides(parser)
    add_step(parser)
    parser.add_argument("--items", help="files with a row per item; by default the items of the data to train on")
    parser.add_argument("--id-column", help="the column of the ids in --items")
    parser.add_argument("--attributes", default="", metavar="A,B", help="columns of the items that the nodes keep")
    parser.add_argument("--branches", type=at_least_one, default=2, help="children of a node; default 2")


def run(options: argparse.Namespace) -> None:
    """Write a tree of items, similar ones together, into a Parquet file."""
    attributes = [name for name in options.attributes.split(",") if name]
    items = {"id_column": options.id_column, "attributes": attributes, "branches": options.branches}
    tree = loaded(options).item_tree(options.items, **items)
    write_table(tree, options.output)
    out(f"{tree.num_rows} nodes on {tree['level'][-1].as_py() + 1} levels to {options.output}")


COMMAND = Command(
    "tree",
    "Write a tree of items, for the model tdm, from the vectors of a trained one.",
    arguments,
    run,
    compiles=True,
    modules=("sparrow.runs",),
)
