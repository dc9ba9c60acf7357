"""`Description`: the content of ``export.json``, for the loader and for people."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any, Final

from sparrow.data import DataError, shown
from sparrow.registry import read
from sparrow.serving.tensors import Fingerprint

NAME: Final = "export.json"
TABLES: Final = "tables.safetensors"
PARAMETERS: Final = "parameters.safetensors"
IDS: Final = "ids.safetensors"
INDEX: Final = "index"
"""The folder of the items to recommend."""
"""The ids of dynamic tables: by table ``ids``, their ``rows``, and the row of unknown ones, -1 where they have none."""
PROGRAM: Final = ".stablehlo"
"""A function's file is its name and this."""

PREDICT: Final = "predict"
"""The function that every export has."""

HISTORY: Final = "history"
"""The function of an export with states that gives the state of a user's history."""
APPEND: Final = "append"
"""The one that continues a state by further events."""
SCORE: Final = "score"
"""The one that scores candidates after a state."""
STATES: Final = (HISTORY, APPEND, SCORE)
STATE: Final = "state/history"
"""The name of a state among the inputs and outputs of these functions."""
LEFT: Final = "state/left"
"""The output with the number of further events that fit into a state."""

FORMAT_VERSION: Final = 4
"""The format version of an export. It changes when an older loader could not read, or would misread, its files."""


LARGEST: Final = 64 << 20
"""A longer file is not read."""


@dataclasses.dataclass(frozen=True)
class TableEntry:
    """A table: its shape, and the pooling of the rows of a bag."""

    rows: int
    dim: int
    dtype: str
    combiner: str


@dataclasses.dataclass(frozen=True)
class LookupEntry:
    """One activation: which feature's ids are looked up in which table, and how.

    Attributes:
      feature: the feature whose ids are looked up.
      table: the table.
      invalid_ids: the treatment of ids outside the table.
      combiner: the pooling of a bag; "table": the table's; null: the rows stay in order.
    """

    feature: str
    table: str
    invalid_ids: str
    combiner: str | None


@dataclasses.dataclass(frozen=True)
class Input:
    """A column that rows must have.

    Attributes:
      holds: its content in words.
      features: the features that are made from it.
      ids: "integers" or "strings", as in training, where 17 and "17" are different ids; null: they are not, or it is
        not known.
    """

    holds: str
    features: list[str]
    ids: str | None


@dataclasses.dataclass(frozen=True)
class Output:
    """An output of a function, whose name is also the name of its column in a file.

    Attributes:
      shape: "batch" stands for the number of rows.
      dtype: the dtype of the array.
      meaning: its meaning in words.
      task: the task that it predicts; None: it is no prediction.
    """

    shape: list[str | int]
    dtype: str
    meaning: str
    task: str | None


@dataclasses.dataclass(frozen=True)
class FunctionEntry:
    """A function of StableHLO: ``function(parameters, activations, numbers)``, each a dict of arrays by name.

    Attributes:
      file: read by `jax.export.deserialize`.
      inputs: the columns it needs, by name.
      outputs: the arrays that it returns, by name.
      parameters: the arrays of the parameters' file that it takes.
      lookups: the activations that it takes, (batch, dim) float32. A feature in order has its rows one after the
        other, then their number: (batch, max_length * dim + 1).
      numbers: the dense features that it takes, (batch, dim) float32, or in order as above.
      lengths: by feature, the elements of one in order, where it is not the feature's own max_length: new events of a
        history, candidates of a state.
      state: the width of the state that it takes besides, (batch, state) float32; 0: it takes none.
    """

    file: str
    inputs: dict[str, Input]
    outputs: dict[str, Output]
    parameters: list[str]
    lookups: list[str]
    numbers: list[str]
    lengths: dict[str, int]
    state: int


@dataclasses.dataclass(frozen=True)
class Description:
    """The facts that the loader needs besides the files.

    Attributes:
      model: the model's name in its config.
      step: the optimizer steps it was trained for.
      ema: whether the parameters are the average over the steps.
      created: the time of the export, UTC.
      versions: the versions of the libraries that wrote it.
      platforms: the devices that its functions run on.
      batch_size: the number of rows to compute at a time, by default.
      independent_rows: whether a row's outputs depend on that row alone, so that rows may be added to fill a batch.
      tasks: the label of each task, and the output that predicts it.
      features: the features as `sparrow.data` writes them; files of words are relative to the export.
      tables: the tables by name, all in ``tables.safetensors``.
      lookups: the lookups by the name of the activation.
      functions: "predict", one for each tower where there are two, and those of `STATES` where they were asked for.
      same_lengths: by group, the features whose sequences must have one length.
      files: the files by path in the export.
      newest_event: the time of the newest event of a stream that it was trained on, in seconds since 1970; None, and
        not in the file: not known.
    """

    model: str
    step: int
    ema: bool
    created: str
    versions: dict[str, str]
    platforms: list[str]
    batch_size: int
    independent_rows: bool
    tasks: dict[str, dict[str, str]]
    functions: dict[str, FunctionEntry]
    features: list[dict[str, Any]]
    tables: dict[str, TableEntry]
    lookups: dict[str, LookupEntry]
    same_lengths: dict[str, list[str]]
    files: dict[str, Fingerprint]
    newest_event: float | None = None

    def to_json(self) -> str:
        known = {name: value for name, value in dataclasses.asdict(self).items() if value is not None}
        fields = {"form": FORMAT_VERSION, **known}
        return json.dumps({**fields, "checksum": _checksum(fields)}, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def read(cls, folder: Path) -> Description:
        """Return the description of the export in ``folder``, or raise one `DataError` for any mistake in it."""
        path = folder / NAME
        try:
            if not folder.is_dir():
                raise DataError("there is no such folder", str(folder))
            if path.stat().st_size > LARGEST:
                raise DataError(f"is larger than {LARGEST} bytes, and so no description of an export", str(path))
            fields = json.loads(path.read_text(encoding="utf-8"))
            json.dumps(fields, ensure_ascii=False).encode()  # half a character, which JSON can write, has no bytes
        except FileNotFoundError:
            if (folder / "checkpoints").is_dir():
                raise DataError("is a run; export it first, with sparrow export or run.export", str(folder)) from None
            raise DataError(f"is not an export: it holds no {NAME}", str(folder)) from None
        except (OSError, ValueError, RecursionError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"cannot be read, it may be damaged: {error}; export again", str(path)) from None
        if not isinstance(fields, dict) or "form" not in fields:
            raise DataError("does not describe an export of Sparrow", str(path))
        if (found := fields.pop("form")) != FORMAT_VERSION:
            versions = fields.get("versions")
            version = versions.get("sparrow") if isinstance(versions, dict) else None
            why = f"was written in format version {shown(found)} (sparrow {shown(version or 'of another version')})"
            raise DataError(f"{why}, and this version reads format version {FORMAT_VERSION}; export again", str(path))
        if fields.pop("checksum", None) != _checksum({"form": FORMAT_VERSION, **fields}):
            raise DataError(
                "was changed or damaged after it was written: its checksum differs; export again", str(path)
            )
        try:
            made: Description = read(cls, fields)
            if PREDICT not in made.functions or made.batch_size < 1:
                raise ValueError(f"it needs a function '{PREDICT}' and a batch_size of at least 1")
        except ValueError as error:
            raise DataError(f"does not describe an export of Sparrow: {error}", str(path)) from None
        return made


def _checksum(fields: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
