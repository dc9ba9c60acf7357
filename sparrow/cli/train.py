"""``sparrow train`` and ``sparrow tune``."""

from __future__ import annotations

import argparse
import contextlib
import os
from typing import TYPE_CHECKING

from sparrow.cli.command import arg, at_least_one, command
from sparrow.cli.group import GROUP
from sparrow.cli.inputs import CONFIG, given_config
from sparrow.cli.output import OUTPUT, Mistake, out
from sparrow.files import at, is_remote

if TYPE_CHECKING:
    from sparrow.config import Config
    from sparrow.processes import Restarts


def restarts(options: argparse.Namespace) -> Restarts:
    """Return the rules of a run that begins again: from its newest checkpoint."""
    from sparrow import processes

    loaded = given_config(options)
    checkpoints = at(_folder(options, loaded)) / "checkpoints"
    devices = 1 if loaded.train.mesh is None else loaded.train.mesh.data

    def newest() -> tuple[int, float] | None:
        try:
            step = max(int(entry.name) for entry in checkpoints.iterdir() if entry.name.isdecimal())
        except (OSError, ValueError):  # no folder, or nothing in it
            return None
        with contextlib.suppress(OSError):  # other stores have no times of folders
            return step, (checkpoints / str(step)).stat().st_mtime_ns / 1e9
        return step, 0.0

    # A run that is replaced, or goes on with new data, is resumed only once it has a checkpoint of its own.
    replaced = newest() if options.overwrite or options.onward is not None else None

    def fewer(count: int) -> int | None:
        return next((n for n in range(count - 1, (options.elastic or count) - 1, -1) if devices % n == 0), None)

    return processes.Restarts(options.restarts, lambda: None if (found := newest()) == replaced else found, fewer)


@command(
    "train",
    *CONFIG,
    arg("--model-dir", "--model_dir", help="folder of the model and its logs; by default the config's model_dir"),
    arg("--resume", action="store_true", help="continue the run in the folder from its last checkpoint"),
    arg(
        "--continue",
        dest="onward",
        metavar="RUN",
        help="go on with the run in this folder on new data, such as the next day's: data.train.path=...",
    ),
    arg("--overwrite", action="store_true", help="replace the run in the folder"),
    arg(
        "--profile",
        type=at_least_one,
        nargs="?",
        const=10,
        metavar="STEPS",
        help="trace some steps, 10 unless given, to FOLDER/profile, for Perfetto, XProf or TensorBoard",
    ),
    *GROUP,
    arg(
        "--restarts",
        type=at_least_one,
        default=0,
        metavar="N",
        help="begin again up to N times where a process is lost",
        of_group=True,
    ),
    arg(
        "--elastic",
        type=at_least_one,
        nargs="?",
        const=1,
        metavar="MIN",
        help="go on with fewer processes, at least MIN, where the same number did not reach a new checkpoint",
        of_group=True,
    ),
    arg("--restarted", action="store_true", help=argparse.SUPPRESS, of_group=True),
    modules=("sparrow.runs",),
    doing="training",
    restarts=restarts,
)
def train(options: argparse.Namespace) -> None:
    """Train the model of a config (.yaml, .json, .py, or TorchEasyRec's .config)."""
    from sparrow import runs

    loaded = given_config(options)
    folder = _folder(options, loaded)
    own = str(at(folder) / "config.yaml")
    if options.config == own or (not is_remote(own) and os.path.realpath(options.config) == os.path.realpath(own)):
        own = ""
    if not own and not (options.resume or options.restarted) and options.onward is None:
        raise Mistake(f"{options.config} is the config of the run in {folder}; choose another --model-dir")
    with open(os.devnull, "w") if OUTPUT.is_quiet else contextlib.nullcontext() as stream:
        runs.train(
            loaded,
            folder,
            resume=options.resume or options.restarted or options.onward is not None,
            overwrite=options.overwrite and not options.restarted,
            stream=stream,
            profile=options.profile,
            new_data=options.onward is not None and not options.restarted,
        )


def _folder(options: argparse.Namespace, loaded: Config) -> str:
    folder = options.model_dir or loaded.model_dir
    if options.onward is not None:
        if options.model_dir not in (None, options.onward) or options.overwrite:
            raise Mistake("--continue uses the folder of the run; leave --model-dir and --overwrite out")
        folder = options.onward
        if not (at(folder) / "checkpoints").is_dir():
            raise Mistake(f"{folder}: holds no run to continue; name the folder of a run")
    if folder is None:
        raise Mistake("there is no folder for the model; add --model-dir FOLDER, or model_dir to the config")
    return str(folder)


@command(
    "tune",
    arg("config"),
    arg(
        "overrides",
        nargs="*",
        metavar="FIELD=VALUES",
        help="to search: LOW..HIGH, LOW..HIGH:log, or A|B|C in quotes; FIELD=VALUE is the same in all trials",
    ),
    arg("--folder", default="tune", help="folder of the search, which continues there; by default tune"),
    arg("--trials", type=at_least_one, default=20, help="number of trials; by default 20"),
    arg("--metric", help="the result to improve; by default the one of early stopping, or the loss"),
    arg("--mode", choices=("min", "max"), help="by default min for losses and errors, else max"),
    arg("--seed", type=int, default=0, help="seed of the search; by default 0"),
    modules=("sparrow.runs",),
    doing="tuning",
)
def tune(options: argparse.Namespace) -> None:
    """Search over fields of a config with Optuna: resumable, bad trials end early."""
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
        **{name: getattr(options, name) for name in ("trials", "metric", "mode", "seed")},
        log=out,
    )
