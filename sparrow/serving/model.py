"""`load`: an export as a model that predicts, without the code it was made with."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from sparrow.data import DataError, Feature
from sparrow.data.features import registry
from sparrow.embedding import FeatureSpec, TableSpec
from sparrow.registry import nearest
from sparrow.rules import SGD
from sparrow.serving.description import NAME, Description
from sparrow.serving.function import Array, Arrays, Function
from sparrow.serving.tensors import fingerprint, memory_map

TABLES: Final = "tables.safetensors"
PARAMETERS: Final = "parameters.safetensors"
PREDICT: Final = "predict"


class ExportedModel:
    """A trained model that was exported. `load` makes it.

    Tables stay in their file: a prediction reads the rows that it needs.

    Attributes:
      folder: the export.
      description: all that ``export.json`` says.
      features: the inputs, as `sparrow.data` reads them.
    """

    def __init__(self, folder: Path, description: Description) -> None:
        from safetensors.numpy import load_file

        self.folder, self.description = folder, description
        self.features: tuple[Feature, ...] = tuple(_feature(folder, fields) for fields in description.features)
        self._tables = memory_map(folder / TABLES)
        self._parameters = load_file(folder / PARAMETERS)
        self._functions: dict[str, Function] = {}
        tables = {
            name: TableSpec(
                name=name,
                vocabulary_size=entry.rows,
                embedding_dim=entry.dim,
                optimizer=SGD(0.0),  # a table must have one: this is the rule that changes nothing
                combiner=entry.combiner,  # type: ignore[arg-type]
                dtype=entry.dtype,
            )
            for name, entry in description.tables.items()
        }
        self._specs = {
            name: FeatureSpec(name=name, table_spec=tables[entry.table], invalid_ids=entry.invalid_ids)  # type: ignore[arg-type]
            for name, entry in description.lookups.items()
        }

    @property
    def signature(self) -> dict[str, Any]:
        """For each function: the columns that it needs and what they hold, the arrays it gives and what they mean."""
        return {
            name: {
                "inputs": {column: entry.holds for column, entry in function.inputs.items()},
                "outputs": {
                    output: {"shape": tuple(entry.shape), "dtype": entry.dtype, "meaning": entry.meaning}
                    for output, entry in function.outputs.items()
                },
            }
            for name, function in self.description.functions.items()
        }

    @property
    def towers(self) -> tuple[str, ...]:
        """What `vectors` gives: "query" and "item" for a model of two towers, else nothing."""
        return tuple(name for name in self.description.functions if name != PREDICT)

    def predict(self, rows: Any, batch_size: int | None = None) -> Arrays:
        """The predictions of each task: (rows,), or (rows, classes).

        Args:
          rows: an Arrow table, columns by name, or a `sparrow.data.Batch`; as many as you like, or none.
          batch_size: how many are computed at a time; as in evaluation, unless given.
        """
        function = self.function(PREDICT)
        made = function(rows, self._batch_size(batch_size))
        return {entry.task: made[name] for name, entry in function.entry.outputs.items() if entry.task is not None}

    def vectors(self, tower: str, rows: Any, batch_size: int | None = None) -> Array:
        """The vectors of one tower, (rows, dim). ``rows`` needs the columns of that tower alone."""
        if tower not in self.towers:
            raise ValueError(f"the export has no tower '{tower}': {nearest(tower, self.towers)}")
        return self.function(tower)(rows, self._batch_size(batch_size))[tower]

    def function(self, name: str) -> Function:
        """A function of the export, read and compiled once."""
        if name not in self._functions:
            self._functions[name] = Function(
                self.folder, self.description, name, self.features, self._specs, self._tables, self._parameters
            )
        return self._functions[name]

    def _batch_size(self, given: int | None) -> int:
        if given is not None and (not isinstance(given, int) or given < 1):
            raise ValueError(f"batch_size must be an integer of at least 1, got {given!r}")
        return given or self.description.batch_size

    def __repr__(self) -> str:
        about = self.description
        return f"ExportedModel({about.model} of step {about.step}; {', '.join(about.tasks)}; {self.folder})"


def is_export(folder: str | Path) -> bool:
    """Whether the folder holds an export, whole or not."""
    return (Path(folder) / NAME).is_file()


def load(folder: str | Path, *, verify: bool = True) -> ExportedModel:
    """Opens an export.

    Args:
      folder: what `sparrow export` wrote.
      verify: whether to read the tables through once and compare their checksum. The sizes of all files and the
        checksums of all others are always compared.
    """
    folder = Path(folder)
    description = Description.read(folder)
    for name, expected in description.files.items():
        path = folder / name
        if not path.is_file():
            raise DataError("the export lacks this file; export again", str(path))
        if (size := path.stat().st_size) != expected.bytes:
            raise DataError(f"holds {size} bytes and was written with {expected.bytes}; export again", str(path))
        if (verify or name != TABLES) and fingerprint(path) != expected:
            raise DataError("is damaged: its checksum is not the one it was written with; export again", str(path))
    return ExportedModel(folder, description)


def _feature(folder: Path, fields: dict[str, Any]) -> Feature:
    if isinstance(words := fields.get("vocabulary"), str):
        fields = {**fields, "vocabulary": str(folder / words)}
    try:
        return registry.from_dict(fields)
    except ValueError as error:
        why = f"feature '{fields['name']}' cannot be read: {error}; is it one of your own? Import its code first"
        raise DataError(why, str(folder)) from None
