"""``sparrow init``, ``import-config``, ``sample`` and ``vocab``: commands that write configs and data."""

from __future__ import annotations

import argparse
from pathlib import Path

from sparrow.cli.command import arg, at_least_one, command, names
from sparrow.cli.inputs import CONFIG, given_config, is_torcheasyrec, make_folder, overrides
from sparrow.cli.output import Mistake, note, out
from sparrow.files import at

_DESCRIBED = "the columns that describe {}, the id first, for a log of choices; separated by commas"


@command(
    "init",
    arg("data", help="a Parquet file, or a text file with a header (.csv, .tsv)"),
    arg("output", nargs="?", help="the config to write; by default the standard output"),
    arg("--target", metavar="COLUMN", help="the column to predict; by default one that looks like it"),
    arg("--loss", metavar="NAME", help="the loss, such as softmax_cross_entropy"),
    arg("--model", metavar="NAME", help="the model; by default deepfm, for a log dssm or sasrec"),
    arg("--user", type=names, default="", metavar="COLUMNS", help=_DESCRIBED.format("a user")),
    arg("--item", type=names, default="", metavar="COLUMNS", help=_DESCRIBED.format("an item")),
    arg("--time", metavar="COLUMN", help="the column of the time: learn which item comes next"),
    arg("--evaluate", metavar="FILE", help="data to evaluate on; by default a part of the file"),
)
def init(options: argparse.Namespace) -> None:
    """Write a first config for a Parquet or CSV file, with comments."""
    from sparrow import frames

    path = None if options.output is None else Path(options.output)
    if path is not None and path.exists():
        raise Mistake(f"{path} is there already; choose another name, or remove it")
    given = ("target", "evaluate", "loss", "model", "time", "user", "item")
    text = frames.first_config(options.data, **{name: getattr(options, name) for name in given})
    if path is None:
        out(text, end="")
        return
    path.write_text(text, encoding="utf-8")
    note(f"wrote {path}: read it, then run sparrow plan {path} and sparrow train {path} --model-dir runs/first")


@command(
    "import-config",
    *CONFIG,
    arg("--report", action="store_true", help="print the outcome of each field of a TorchEasyRec config"),
    arg("--form", choices=("yaml", "json"), default="yaml", help="by default yaml"),
)
def import_config(options: argparse.Namespace) -> None:
    """Write a config, such as one of TorchEasyRec, as YAML."""
    from sparrow import config

    if not options.report:
        out(config.dumps(given_config(options), options.form), end="")
        return
    if not is_torcheasyrec(options.config):
        raise Mistake(f"--report takes a config of TorchEasyRec, which ends with .config; got {options.config}")
    lines, error = config.import_report(options.config, overrides(options))
    for line in lines:
        out(line)
    if error is not None:
        raise error


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
