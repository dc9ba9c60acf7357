"""``sparrow recommend``."""

from __future__ import annotations

import argparse

from sparrow.cli.command import KINDS, Command, add_overrides, add_step, at_least_one
from sparrow.cli.output import out
from sparrow.cli.saved import loaded, write_table


def arguments(parser: argparse.ArgumentParser) -> None:
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


def run(options: argparse.Namespace) -> None:
    """Write the best items of each user, into a Parquet file."""
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


COMMAND = Command(
    "recommend",
    "Write the best items of each user, by two towers, a tree or codes, into a Parquet file.",
    arguments,
    run,
    compiles=True,
    modules=("sparrow.runs",),
)
