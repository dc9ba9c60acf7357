"""The command line: ``sparrow train|eval|predict|export|report|plan|feed|import-config|vocab``.

A user's mistake gives one line on the standard error for each problem, and exit code 2; never a traceback.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import functools
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

from sparrow.files import drop_output

FAILED: Final = 1
USER_ERROR: Final = 2
INTERRUPTED: Final = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    0; 1 for a run that could not go on; 2 for a user's mistake; 130 where Ctrl-C, 143 where SIGTERM stopped it.
    """
    options = _parsed(arguments)
    try:
        for file in options.imports or ():
            _run_file(file)
        options.command(options)
        if sys.stdout is not None:
            sys.stdout.flush()
    except KeyboardInterrupt as stop:
        return _interrupted(stop)
    except _mistakes() as error:
        return _error(error, USER_ERROR)
    except _failures() as error:
        return _error(error, FAILED)
    except (OSError, MemoryError) as error:
        drop_output()
        return _error(_sentence(error), FAILED)
    except RuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):  # XLA's name for it
            raise
        return _error(f"the memory is full: {str(error).splitlines()[0]}", FAILED)
    return 0


def _error(text: object, code: int) -> int:
    with contextlib.suppress(OSError, ValueError):
        for line in str(text).splitlines():
            print(f"sparrow: {line}", file=sys.stderr)
    return code


def _out(text: str, end: str = "\n") -> None:
    """Write a result to the standard output."""
    if sys.stdout is None:
        raise OSError(errno.EBADF, "is closed", "the standard output")
    try:
        print(text, end=end, flush=True)
    except OSError as error:
        raise OSError(error.errno, error.strerror, "the standard output") from None
    except ValueError:
        raise OSError(errno.EBADF, "is closed", "the standard output") from None


def _sentence(error: OSError | MemoryError) -> str:
    if isinstance(error, MemoryError):
        return "the memory is full"
    text = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {text}" if error.filename else text


class _Mistake(ValueError):
    """A mistake in the arguments of a command."""


def _mistakes() -> tuple[type[Exception], ...]:
    """Return the errors that are a user's mistake. Imported when there is one: an export predicts without a config."""
    from sparrow.checkpoint import CheckpointError
    from sparrow.config import ConfigError
    from sparrow.data import DataError
    from sparrow.runs import FolderError

    return ConfigError, DataError, CheckpointError, FolderError, _Mistake


def _failures() -> tuple[type[Exception], ...]:
    """Return the errors that end a run that was started correctly."""
    from sparrow.runs import RunError

    return (RunError,)


def _interrupted(stop: KeyboardInterrupt) -> int:
    """Print what was saved; return 130 after Ctrl-C, 143 after SIGTERM."""
    from sparrow.runs import Interrupted

    if not isinstance(stop, Interrupted):
        return _error("interrupted at once; steps since the last checkpoint are lost", INTERRUPTED)
    return _error(
        f"{stop}: {'saved; add --resume to continue' if stop.step else 'nothing was trained yet'}", 128 + stop.signal
    )


def _train(options: argparse.Namespace) -> None:
    from sparrow import config, runs

    loaded = config.load(options.config, options.overrides)
    folder = options.model_dir or loaded.model_dir
    if folder is None:
        raise _Mistake("there is no folder for the model; add --model-dir FOLDER, or model_dir to the config")
    own = os.path.realpath(Path(folder) / "config.yaml")
    if os.path.realpath(options.config) == own and not options.resume:
        raise _Mistake(f"{options.config} is the own config of a run in {folder}; choose another --model-dir")
    runs.train(loaded, folder, resume=options.resume, overwrite=options.overwrite)


def _eval(options: argparse.Namespace) -> None:
    from sparrow import runs

    program, state = _loaded(options)
    results = runs.Evaluator(program)(state, lambda line: print(line, file=sys.stderr))
    if options.json:
        _out(json.dumps({name: value if value == value else None for name, value in results.items()}))
        return
    width = max(map(len, results))
    for name, value in results.items():
        _out(f"{name:{width}}  {value:.6g}")


def _predict(options: argparse.Namespace) -> None:
    from sparrow import serving

    predict: Any
    if serving.is_export(options.model_dir):
        if options.overrides:
            raise _Mistake(f"an export has no config that {options.overrides[0]} could change; leave it out")
        if options.step is not None:
            raise _Mistake("an export holds one model; leave --step out, or name the folder of the run")
        predict = functools.partial(serving.predict, serving.load(options.model_dir, verify=options.verify))
    else:
        from sparrow import runs

        predict = functools.partial(runs.predict, *_loaded(options))
    _make_folder(Path(options.output).parent)
    columns = [column for column in options.columns.split(",") if column]
    rows = predict(options.input, options.output, columns=columns, batch_size=options.batch_size)
    _out(f"{rows} rows to {options.output}")


def _export(options: argparse.Namespace) -> None:
    from sparrow import exports, runs

    exports.refuse(options.output, options.overwrite)  # before the model is read, which takes a while
    program, state = runs.load(options.model_dir, step=options.step, log=lambda line: print(line, file=sys.stderr))
    made = exports.export(program, state, options.output, ema=options.ema, overwrite=options.overwrite)
    size, platforms = sum(file.bytes for file in made.files.values()), ", ".join(made.platforms)
    average = ", the average of its parameters" * made.ema
    _out(f"{made.model} of step {made.step}{average}: {size:,} bytes to {options.output}, for {platforms}")


def _report(options: argparse.Namespace) -> None:
    from sparrow.reports import unshared, write_report

    for line in unshared(options.runs):
        print(f"sparrow: {line}", file=sys.stderr)
    _out(str(write_report(options.runs, options.output)))


def _plan(options: argparse.Namespace) -> None:
    from sparrow import config, plan

    made = plan.plan(config.load(options.config, options.overrides))
    if options.json:
        _out(json.dumps(made.to_dict(), indent=1))
    else:
        plan.show(made)


def _feed(options: argparse.Namespace) -> None:
    from sparrow import config, runs

    times = runs.time_feed(config.load(options.config, options.overrides), options.seconds)
    _out(json.dumps(times.to_dict(), indent=1) if options.json else "\n".join(times.lines()))


def _import_config(options: argparse.Namespace) -> None:
    from sparrow import config

    _out(config.dumps(config.load(options.config, options.overrides), options.form), end="")


def _vocab(options: argparse.Namespace) -> None:
    from sparrow import data

    if (Path(options.data) / "checkpoints").is_dir():
        _vocab_of_run(options)
        return
    if not options.columns:
        raise _Mistake("name at least one COLUMN, or the folder of a run")
    source: data.Source = data.Parquet(options.data)
    if options.separator is not None:
        separator = options.separator.replace("\\t", "\t")
        try:
            source = data.Csv(options.data, separator=separator, quote='"' if len(separator) == 1 else None)
        except ValueError as error:
            raise _Mistake(f"--separator: {error}") from None
    columns = dict(_column_and_separator(text) for text in options.columns)
    built = data.build_vocabularies(source, columns, min_count=options.min_count, max_words=options.max_words)
    folder = Path(options.output)
    _make_folder(folder)
    for column, counted in built.items():
        path = folder / f"{column}.txt"
        counted.vocabulary.save(path)
        _out(f"{path}: {len(counted.vocabulary)} of {counted.distinct} words, {counted.missing} missing")


def _vocab_of_run(options: argparse.Namespace) -> None:
    from sparrow import runs

    for table in runs.table_ids(options.data, options.columns, options.max_words or 10):
        for line in table.lines():
            _out(line)


def _loaded(options: argparse.Namespace) -> Any:
    """Return the saved model, with overrides to its config."""
    from sparrow import config, runs

    changed = None
    if options.overrides:
        saved = runs.saved_config(options.model_dir, options.step)
        changed = config.loads(config.dumps(saved), overrides=options.overrides)
    return runs.load(options.model_dir, changed, options.step, log=lambda line: print(line, file=sys.stderr))


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _Mistake(f"{folder}: cannot be made: {error.strerror}") from None


def _run_file(file: str) -> None:
    from sparrow.files import run_file

    run_file(file)


def _column_and_separator(text: str) -> tuple[str, str | None]:
    """Return the column and separator: ``genres:|`` is the column genres, whose strings hold words separated by |."""
    column, colon, separator = text.partition(":")
    if not column or (colon and not separator):
        raise _Mistake(f"a column is written NAME or NAME:SEPARATOR, got {text!r}")
    return column, separator or None


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, got '{text}'")
    return seconds


def _step(text: str) -> int | Literal["best"]:
    return "best" if text == "best" else _at_least_one(text)


_step.__name__ = "step (an integer of at least 1, or best)"


def _at_least_one(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


_at_least_one.__name__ = "integer of at least 1"  # argparse shows it in errors


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options. Overrides may appear anywhere; argparse by itself takes adjacent ones only."""
    parser = _parser()
    if any("\0" in text for text in arguments or ()):
        parser.error("an argument holds a zero byte")
    options, others = parser.parse_known_args(arguments)
    if others and (not hasattr(options, "overrides") or any(text.startswith("-") for text in others)):
        parser.error(f"unrecognized arguments: {' '.join(others)}")
    if others:
        options.overrides = [*options.overrides, *others]
    return options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sparrow", description="Trains recommendation models from a config.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, function: Any, text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        added.set_defaults(command=function)
        added.add_argument(
            "--import", dest="imports", action="append", metavar="FILE", help="Python file with custom models, rules"
        )
        return added

    def overrides(added: argparse.ArgumentParser) -> None:
        added.add_argument("overrides", nargs="*", metavar="FIELD=VALUE", help="such as train.batch_size=4096")

    added = command("train", _train, "Train the model of a config (.yaml, .json, .py, or TorchEasyRec's .config).")
    added.add_argument("config")
    overrides(added)
    added.add_argument("--model-dir", help="folder of the model and its logs; by default the config's model_dir")
    added.add_argument("--resume", action="store_true", help="continue the run in the folder from its last checkpoint")
    added.add_argument("--overwrite", action="store_true", help="replace the run in the folder")

    added = command("eval", _eval, "Evaluate a trained model.")
    added.add_argument("model_dir")
    overrides(added)
    added.add_argument("--step", type=_step, metavar="N|best", help="the checkpoint; by default the newest")
    added.add_argument("--json", action="store_true", help="print one JSON object")

    added = command("predict", _predict, "Predict every row of Parquet files, into a Parquet file.")
    added.add_argument("model_dir", help="the folder of a run, or an export")
    added.add_argument("input", help="a file, a folder, or a pattern in quotes")
    added.add_argument("output")
    overrides(added)
    added.add_argument("--step", type=_step, metavar="N|best", help="the checkpoint; by default the newest")
    added.add_argument("--columns", default="", metavar="A,B", help="columns of the input to keep")
    added.add_argument("--batch-size", type=_at_least_one, help="rows at a time; by default as in evaluation")
    added.add_argument(
        "--no-verify", dest="verify", action="store_false", help="do not compare the checksum of an export's tables"
    )

    added = command(
        "export", _export, "Write a trained model as StableHLO and safetensors, to predict without its code."
    )
    added.add_argument("model_dir", help="the folder of a run")
    added.add_argument("output", help="the folder to write")
    added.add_argument("--step", type=_step, metavar="N|best", help="the checkpoint; by default the newest")
    added.add_argument(
        "--ema",
        action=argparse.BooleanOptionalAction,
        help="the average of the parameters, or the last ones; by default as in evaluation",
    )
    added.add_argument("--overwrite", action="store_true", help="replace an existing export")

    added = command("report", _report, "Write the report of a run, or of several compared, as one HTML file.")
    added.add_argument("runs", nargs="+", metavar="RUN", help="the folder of a run, finished or not")
    added.add_argument("--output", metavar="FILE", help="by default RUN/report.html; for several runs, report.html")

    added = command("plan", _plan, "Predict the memory and speed of a config, without training.")
    added.add_argument("config")
    overrides(added)
    added.add_argument("--json", action="store_true", help="print one JSON object")

    added = command("feed", _feed, "Time the way from files to the device alone, and name its slowest stage.")
    added.add_argument("config")
    overrides(added)
    added.add_argument("--seconds", type=_seconds, default=10.0, help="to measure, at most; 10 unless given")
    added.add_argument("--json", action="store_true", help="print one JSON object")

    added = command("import-config", _import_config, "Write a config, such as one of TorchEasyRec, as YAML.")
    added.add_argument("config")
    overrides(added)
    added.add_argument("--form", choices=("yaml", "json"), default="yaml", help="by default yaml")

    added = command("vocab", _vocab, "Build vocabularies of columns, or show the ids of a run's dynamic tables.")
    added.add_argument("data", help="Parquet files; text files with --separator; or the folder of a run")
    added.add_argument(
        "columns",
        nargs="*",
        metavar="COLUMN",
        help="NAME, or NAME:SEPARATOR where a string holds several words; table of a run",
    )
    added.add_argument(
        "--output", default=".", metavar="FOLDER", help="folder of the files; by default the current one"
    )
    added.add_argument("--separator", help="read text files with this separator, and a header")
    added.add_argument("--min-count", type=_at_least_one, default=1, help="leave out rarer words")
    added.add_argument("--max-words", type=_at_least_one, help="keep this many of the most frequent words")
    return parser


if __name__ == "__main__":
    sys.exit(main())
