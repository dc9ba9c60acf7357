"""`first_config`: the config that `guess` makes for a file, as text, with the reason for each guess in its comments."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import yaml

from sparrow import config as configs
from sparrow.config import ConfigError
from sparrow.data import DataError, opened
from sparrow.frames.guessing import Guess, guess
from sparrow.frames.rows import SAMPLE
from sparrow.registry import dump_yaml, nearest

TARGETS: Final = ("label", "target", "click", "clicked", "is_click", "y", "like", "liked", "buy", "purchase", "rating")
"""Columns that look like the thing to predict."""
COMMENTS: Final = {
    "split": "a tenth of the rows is held out to evaluate on, unless share names another part",
    "epochs": "training ends earlier, after evaluations without a gain",
    "sparse_optimizer": "of the tables",
    "table_optimizers": "of the tables of the linear part",
    "dense_optimizer": "of the layers",
}
INLINE: Final = 20
"""Vocabularies of more words are built by the run."""


def first_config(
    path: str | Path,
    *,
    target: str | None = None,
    evaluate: str | Path | None = None,
    loss: str | None = None,
    model: str | None = None,
    user: Sequence[str] = (),
    item: Sequence[str] = (),
    time: str | None = None,
) -> str:
    """Return the text of a config that trains a model on a Parquet or text file.

    Args:
      path: the file.
      target: the column to predict; by default one that is called like it, such as "click" or "label"; none with
        ``user`` and ``item``.
      evaluate: a file to evaluate on; by default a part of the rows is held out.
      loss: the loss; by default by the values of the target.
      model: the model; by default as `guess` chooses it.
      user: the columns that describe a user, the id first, for a log of choices.
      item: the columns that describe an item, the id first.
      time: the column of the time, for models of histories.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError("there is no such file", str(path))
    try:
        names = opened(path).column_names()
        column = None if target is None and user and item else _target(names, target)
        held: Any = True if evaluate is None else Path(evaluate)
        made = guess(path, column, model, evaluate=held, loss=loss, user=user, item=item, time=time)
    except ConfigError as error:
        raise DataError(str(error), str(path)) from None
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read: {str(error).splitlines()[0]}", str(path)) from None
    made = _brief(made)
    text = _text(path, made)
    assert configs.loads(text) == made.config, "the text of a first config must be the config"
    return text


def _brief(made: Guess) -> Guess:
    """Return a guess whose long vocabularies are built by the run instead of listed."""

    def brief(feature: Any) -> Any:
        words = getattr(feature, "vocabulary", None)
        return replace(feature, vocabulary="auto") if isinstance(words, tuple) and len(words) > INLINE else feature

    data = made.config.data
    assert data is not None
    config = made.config.model_copy(
        update={"data": data.model_copy(update={"features": tuple(map(brief, data.features))})}
    )
    return replace(made, config=config)


def _target(names: list[str], target: str | None) -> str:
    if target is not None:
        if target not in names:
            raise DataError(f"there is no such column: {nearest(target, names)}", column=target)
        return target
    found = [name for wanted in TARGETS for name in names if name.lower() == wanted]
    if not found:
        raise DataError(f"name the column to predict with --target; there are {', '.join(names)}")
    return found[0]


def _text(path: Path, made: Guess) -> str:
    plain: dict[str, Any] = yaml.safe_load(made.yaml())
    data = plain.pop("data")
    features = {feature["name"]: feature for feature in data.pop("features")}
    lines = [
        f"# A first config for {path.name}, guessed from its rows, the first {SAMPLE:,} where it has more.",
        "# Read the guesses, and change what you know better.",
        "data:",
        *_fields(data, COMMENTS),
        "  features:",
    ]
    for reading in made.readings:
        if reading.feature is None:
            lines.append(f"    # {_flow(reading.column)}: {reading.words}")
        else:
            lines.append(f"    - {_flow(features.pop(reading.feature.name))}    # {reading.words}")
    lines += [f"    - {_flow(feature)}    # the events before, in their order" for feature in features.values()]
    comments = {"train": COMMENTS, "tasks": {target.column: target.words for target in made.targets}}
    for section, values in plain.items():
        lines += [f"{section}:", *_fields(values, comments.get(section, {}))]
    return "\n".join(lines) + "\n"


def _fields(values: Mapping[str, Any], comments: Mapping[str, str]) -> list[str]:
    """Return the lines of the fields of a section, with the comments on them."""
    return [
        f"  {_flow(name)}: {_flow(value)}" + f"    # {comments.get(name)}" * (name in comments)
        for name, value in values.items()
    ]


def _flow(value: Any) -> str:
    """Return a value as YAML on one line.

    >>> _flow({"name": "price", "dim": 2, "log": True, "path": "a, b"})
    "{name: price, dim: 2, log: true, path: 'a, b'}"
    """
    return dump_yaml([value], default_flow_style=True, width=math.inf).strip()[1:-1]
