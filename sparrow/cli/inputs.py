"""The inputs of commands: the config or the saved model that they are given; and the files that they write."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sparrow.cli.command import OVERRIDES, arg
from sparrow.cli.output import Mistake, note
from sparrow.files import AnyPath, at, replacing

if TYPE_CHECKING:
    from sparrow.config import Config


TRAIN_PATH: Final = "data.train.path"
_PATHS: Final = {
    "train_input_path": ("train_input_path", TRAIN_PATH, "files to train on, instead of the config's"),
    "eval_input_path": ("eval_input_path", None, "files to evaluate on, instead of the config's"),
    "fine_tune_checkpoint": (
        "train_config.fine_tune_checkpoint",
        "train.start_from.folder",
        "folder of a run to take the first weights from",
    ),
}
"""By option: the fields of a config of TorchEasyRec and of Sparrow that it sets (see also `given_config`); its help."""
PATHS: Final = {
    name: arg(f"--{name}", f"--{name.replace('_', '-')}", metavar="PATH", help=text)
    for name, (_, _, text) in _PATHS.items()
}
CONFIG: Final = (
    arg("config"),
    OVERRIDES,
    *PATHS.values(),
    arg("--edit_config_json", "--edit-config-json", metavar="JSON", help="fields of a TorchEasyRec config to set"),
)
"""The config, its overrides, and the options that set its paths."""


def is_torcheasyrec(path: str) -> bool:
    """Return whether a file is a config of TorchEasyRec."""
    return Path(path).suffix == ".config"


def overrides(options: argparse.Namespace) -> list[str]:
    """Return the overrides of a command, those in TorchEasyRec's own words included."""
    is_theirs = is_torcheasyrec(options.config)
    found = list(options.overrides)
    if options.edit_config_json is not None:
        if not is_theirs:
            raise Mistake("--edit_config_json changes configs of TorchEasyRec only; write FIELD=VALUE instead")
        from sparrow import config

        found += [f"{edit.path}={edit.value}" for edit in config.from_json(options.edit_config_json)]
    for option, (theirs, ours, _) in _PATHS.items():
        if (value := getattr(options, option)) is None:
            continue
        if is_theirs:
            found.append(f"{theirs}={value}")
        elif ours is not None:
            fields = _train_paths(options.config) if ours == TRAIN_PATH else [ours]
            found += [f"{field}={json.dumps(value)}" for field in fields]
    return found


def _train_paths(path: str) -> list[str]:
    """Return the fields with the path of the files to train on: sources inside of sources have theirs.

    Where rows of these files are held out to evaluate on, by a source of its own, the evaluation follows.
    """
    import yaml

    try:
        data = yaml.safe_load(Path(path).read_text(encoding="utf-8"))["data"]
        train, evaluate = data["train"], data.get("evaluate")
        if "source" not in train:
            return [TRAIN_PATH]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError):  # reported where it is loaded
        return [TRAIN_PATH]
    is_other_part = isinstance(evaluate, dict) and evaluate.get("source") == train["source"]
    return ["data.train.source.path", *(["data.evaluate.source.path"] if is_other_part else [])]


def given_config(options: argparse.Namespace) -> Config:
    """Return the config of a command; notes on fields without effect go to the standard error."""
    from sparrow import config

    loaded = config.load(options.config, overrides(options), lambda line: note(f"sparrow: note: {line}"))
    if options.eval_input_path is None or is_torcheasyrec(options.config):
        return loaded
    return config.evaluated_on(loaded, options.eval_input_path)


def loaded(options: argparse.Namespace) -> Any:
    """Return the saved model, with overrides to its config."""
    from sparrow import config, runs
    from sparrow.errors import ConfigError

    changed = None
    try:
        if options.overrides:
            saved = runs.saved_config(options.model_dir, options.step)
            changed = config.loads(config.dumps(saved), overrides=options.overrides)
        return runs.load(options.model_dir, changed, options.step, log=note)
    except ConfigError as error:
        if options.imports or ".name: unknown" not in str(error):
            raise
        raise Mistake(f"{error}\na run with parts of your own needs --import FILE, as when it was trained") from None


def make_folder(folder: AnyPath) -> None:
    """Make a folder for results, with its parents."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Mistake(f"{folder}: cannot be made: {error.strerror}") from None


def write_table(table: Any, path: str) -> None:
    """Write an Arrow table into a Parquet file, completely or not at all, and make its folder."""
    import pyarrow.parquet as pq

    make_folder(at(path).parent)
    with replacing(at(path)) as partial:
        pq.write_table(table, partial)
