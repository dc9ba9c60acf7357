"""``sparrow sample`` and ``sparrow vocab``: commands that write data."""

from __future__ import annotations

import argparse
from pathlib import Path

from sparrow.cli.command import arg, at_least_one, command
from sparrow.cli.inputs import CONFIG, given_config, is_torcheasyrec, make_folder
from sparrow.cli.output import Mistake, out
from sparrow.files import at


@command(
    "sample",
    CONFIG[0],
    arg("output", metavar="OUT", help="the folder for the files, made if needed"),
    *CONFIG[1:],
    arg("--rows", type=at_least_one, default=10_000, metavar="N", help="rows to train on; 10,000 unless given"),
    arg("--seed", type=int, default=0, help="another seed gives other rows; 0 unless given"),
)
def sample(options: argparse.Namespace) -> None:
    """Write files that fit a config, to try it without its data."""
    from sparrow import config, samples

    folder = Path(options.output)
    make_folder(folder)
    if is_torcheasyrec(options.config):  # its own paths, empty or of tables elsewhere, do not matter
        options.overrides = [
            *(f"{field}={folder / 'rows.parquet'}" for field in config.path_fields(options.config)),
            *options.overrides,
        ]
    made = samples.write(given_config(options), folder, options.rows, options.seed)
    for path in sorted(folder.glob("*.parquet")):
        out(f"{path}")
    out(
        f"{folder / 'config.yaml'}: sparrow train {folder / 'config.yaml'}"
        + ("" if made.model_dir else " --model-dir RUN")
    )


@command(
    "vocab",
    arg("data", help="Parquet or text files; or the folder of a run"),
    arg(
        "columns",
        nargs="*",
        metavar="COLUMN",
        help="NAME, or NAME:SEPARATOR where a string holds several words; table of a run",
    ),
    arg("--output", default=".", metavar="FOLDER", help="folder of the files; by default the current one"),
    arg("--separator", help="the separator of text files; by default the one of their header"),
    arg("--min-count", type=at_least_one, default=1, help="leave out rarer words"),
    arg("--max-words", type=at_least_one, help="keep this many of the most frequent words"),
)
def vocab(options: argparse.Namespace) -> None:
    """Build vocabularies of columns, or show the ids of a run's dynamic tables."""
    if (at(options.data) / "checkpoints").is_dir():
        _ids_of_run(options)
    else:
        _vocabularies(options)


def _vocabularies(options: argparse.Namespace) -> None:
    from sparrow import data

    if not options.columns:
        raise Mistake("name at least one COLUMN, or the folder of a run")
    if options.separator is None:
        source = data.opened(options.data)
    else:
        separator = options.separator.replace("\\t", "\t")
        try:
            source = data.Csv(options.data, separator=separator, quote='"' if len(separator) == 1 else None)
        except ValueError as error:
            raise Mistake(f"--separator: {error}") from None
    columns = dict(_column_and_separator(text) for text in options.columns)
    built = data.build_vocabularies(source, columns, min_count=options.min_count, max_words=options.max_words)
    folder = at(options.output)
    make_folder(folder)
    for column, counted in built.items():
        path = folder / f"{column}.txt"
        counted.vocabulary.save(path)
        out(f"{path}: {len(counted.vocabulary)} of {counted.distinct} words, {counted.missing} missing")


def _ids_of_run(options: argparse.Namespace) -> None:
    from sparrow import runs

    for table in runs.table_ids(options.data, options.columns, options.max_words or 10):
        for line in table.lines():
            out(line)


def _column_and_separator(text: str) -> tuple[str, str | None]:
    """Return the column and separator: ``genres:|`` is the column genres, whose strings hold words separated by |."""
    column, colon, separator = text.partition(":")
    if not column or (colon and not separator):
        raise Mistake(f"a column is written NAME or NAME:SEPARATOR, got {text!r}")
    return column, separator or None
