"""``sparrow tune``."""

from __future__ import annotations

import argparse

from sparrow.cli.command import Command, at_least_one
from sparrow.cli.output import Mistake, out
from sparrow.versions import __version__


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("config")
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="FIELD=VALUES",
        help="to search: LOW..HIGH, LOW..HIGH:log, or A|B|C in quotes; FIELD=VALUE is the same in all trials",
    )
    parser.add_argument("--folder", default="tune", help="folder of the search, which continues there; by default tune")
    parser.add_argument("--trials", type=at_least_one, default=20, help="number of trials; by default 20")
    parser.add_argument("--metric", help="the result to improve; by default the one of early stopping, or the loss")
    parser.add_argument("--mode", choices=("min", "max"), help="by default min for losses and errors, else max")
    parser.add_argument("--seed", type=int, default=0, help="seed of the search; by default 0")


def run(options: argparse.Namespace) -> None:
    """Search over fields of a config."""
    try:
        import optuna  # noqa: F401
    except ImportError:
        raise Mistake('tuning needs optuna: pip install "sparrow-rec[tune]"') from None
    from sparrow import config, tuning

    space = {text: tuning.searched(text) for text in options.overrides}
    fixed = [text for text, searched in space.items() if searched is None]
    tuning.tune(
        lambda overrides: config.load(options.config, [*fixed, *overrides]),
        options.folder,
        [searched for searched in space.values() if searched is not None],
        trials=options.trials,
        metric=options.metric,
        mode=options.mode,
        seed=options.seed,
        log=out,
    )


def first_line(options: argparse.Namespace) -> str:
    """Return the line that shows that something happens."""
    return f"sparrow {__version__}: tuning {options.config}"


COMMAND = Command(
    "tune",
    "Search over fields of a config with Optuna: resumable, bad trials end early.",
    arguments,
    run,
    compiles=True,
    modules=("sparrow.runs",),
    first_line=first_line,
)
