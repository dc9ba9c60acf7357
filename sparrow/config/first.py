"""`first_config`: a config for a file of examples, with the reason for each guess in its comments."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from sparrow.config.guessing import Guess, guess
from sparrow.config.loading.files import loads
from sparrow.data import DataError

SAMPLE: Final = 100_000
"""Rows of the file that are looked at."""
TEXTS: Final = {".csv": ",", ".tsv": "\t"}
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_PLAIN: Final = ("true", "false", "null", "yes", "no", "on", "off", "y", "n")


def first_config(path: str | Path, *, target: str | None = None, evaluate: str | Path | None = None) -> str:
    """Return the text of a config that trains DeepFM on a Parquet or CSV file.

    Args:
      path: the file.
      target: the column to predict; by default one that is called like it, such as "click" or "label".
      evaluate: a file to evaluate on.
    """
    path = Path(path)
    table, rows, is_sample = _read(path)
    try:
        target, task, guesses = guess(table, target, rows)
    except DataError as error:
        raise DataError(error.why, str(path), column=error.column) from None
    text = _text(path, target, task, guesses, rows, is_sample, evaluate)
    loads(text)  # whatever is written can be read
    return text


def _read(path: Path) -> tuple[pa.Table, int, bool]:
    """Return the first rows of a file, the number of all of them, and whether there are more than these."""
    if not path.is_file():
        raise DataError("there is no such file", str(path))
    try:
        if path.suffix in TEXTS:
            options = csv.ParseOptions(delimiter=TEXTS[path.suffix])
            with csv.open_csv(path, parse_options=options) as reader:
                batch = reader.read_next_batch()
                table = pa.Table.from_batches([batch]).slice(0, SAMPLE)
            rows = max(table.num_rows, int(table.num_rows * path.stat().st_size / max(batch.nbytes, 1)))
            rows = table.num_rows if path.stat().st_size < (1 << 20) else rows
            return table, rows, rows > table.num_rows
        with pq.ParquetFile(path) as file:
            rows = file.metadata.num_rows
            batches = file.iter_batches(SAMPLE)
            table = pa.Table.from_batches([next(batches)] if rows else [], file.schema_arrow)
    except (pa.ArrowException, OSError, StopIteration, UnicodeDecodeError) as error:
        kind = "text file with a header" if path.suffix in TEXTS else "Parquet file"
        raise DataError(f"cannot be read as a {kind}: {str(error).splitlines()[0]}", str(path)) from None
    if not rows:
        raise DataError("holds no rows", str(path))
    return table, rows, rows > table.num_rows


def _text(
    path: Path,
    target: str,
    task: dict[str, Any],
    guesses: list[Guess],
    rows: int,
    is_sample: bool,
    evaluate: str | Path | None,
) -> str:
    used = [held.feature for held in guesses if held.feature is not None]
    ids = [feature["name"] for feature in used if "embedding_dim" in feature]
    batch_size = max(16, min(4096, 1 << max(0, (rows // 50).bit_length() - 1)))
    seen = f"the first {SAMPLE:,} of {'about ' * (path.suffix in TEXTS)}{rows:,}" if is_sample else f"all {rows:,}"
    lines = [
        f"# A first config for {path.name}, guessed from {seen} rows.",
        "# Read the guesses, and change what you know better.",
        "data:",
        f"  train: {_source(path)}",
        f"  evaluate: {_source(Path(evaluate))}"
        if evaluate is not None
        else f"  # evaluate: {_source(Path('other' + path.suffix))}    # rows that are not trained on",
        f"  shuffle_rows: {min(100_000, max(1000, rows))}",
        "  features:",
    ]
    for held in guesses:
        if held.feature is None:
            lines.append(f"    # {held.column} is left out: it {held.why}")
        else:
            lines.append(f"    - {_flow(held.feature)}    # {held.why}")
    lines += [
        "model:",
        "  architecture: {name: deepfm, deep: {hidden_units: [128, 64]}}",
        "  groups:    # the features of each part of the model",
        f"    wide: {_flow(ids)}",
        f"    fm: {_flow(ids)}",
        f"    deep: {_flow([feature['name'] for feature in used])}",
        "tasks:",
        f"  {_flow(target)}: {_flow(task)}",
        "train:",
        f"  batch_size: {batch_size}",
        "  epochs: 1",
        "  sparse_optimizer: {name: rowwise_adagrad, learning_rate: 0.05}    # of the tables",
        "  dense_optimizer: {optimizer: adam, learning_rate: 0.001}    # of the layers",
        f"  log_every_steps: {max(1, rows // batch_size // 20)}",
    ]
    return "\n".join(lines) + "\n"


def _source(path: Path) -> str:
    if path.suffix not in TEXTS:
        return _flow({"name": "parquet", "path": str(path)})
    separator = TEXTS[path.suffix]
    return _flow({"name": "csv", "path": str(path)} | ({} if separator == "," else {"separator": separator}))


def _flow(value: Any) -> str:
    """Return a value as YAML on one line.

    >>> _flow({"name": "price", "dim": 2, "log": True, "path": "a b"})
    '{name: price, dim: 2, log: true, path: "a b"}'
    """
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_flow(key)}: {_flow(held)}" for key, held in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, str) and _WORD.fullmatch(value) and value.lower() not in _PLAIN:
        return value
    return json.dumps(value)
