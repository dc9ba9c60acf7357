"""The parts of a model from the open files of its export, each checked against the others."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from sparrow.data import DataError, Feature, shown
from sparrow.data.features import registry
from sparrow.embedding import FeatureSpec, TableSpec
from sparrow.kernels.quantized import BITS, QuantizedTable, record_bytes
from sparrow.rules import SGD
from sparrow.serving.description import NAME, PARAMETERS, STATE, TABLES, Description
from sparrow.serving.lookup import Table, width_of
from sparrow.serving.opened import Opened
from sparrow.serving.program import deserialized
from sparrow.serving.tensors import Array


def read_feature(held: Opened, fields: dict[str, Any]) -> Feature:
    """Return a feature from its plain values, with its words."""
    name, words = fields.get("name"), fields.get("vocabulary")
    if isinstance(words, str):
        data = held.read(words)  # from the list of the export's own files only
        fields = {**fields, "vocabulary": str(held.folder / words)}
    try:
        feature = registry.from_dict(fields)
    except (ValueError, TypeError) as error:
        why = f"feature {shown(name)} cannot be read: {error}; is it one of your own? Import its code first"
        raise DataError(why, str(held.folder)) from None
    if isinstance(words, str):  # read now: before the first use of the words, another export may have replaced the file
        feature.hold_words(feature.parse_words(data, str(held.folder / words)))
    return feature


def parameters_of(held: Opened) -> dict[str, jax.Array]:
    """Return the parameters on the device, once for all functions."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    data = held.read(PARAMETERS)
    try:
        return jax.device_put(load(data))  # type: ignore[no-any-return]
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"is not a safetensors file: {error}; export again", str(held.folder / PARAMETERS)) from None


def tables_of(about: Description, held: Mapping[str, Array]) -> dict[str, Table]:
    """Return the tables; those of few bits as such."""
    return {
        name: QuantizedTable(array, about.tables[name].dim, BITS[about.tables[name].dtype])
        if name in about.tables and about.tables[name].dtype in BITS
        else array
        for name, array in held.items()
    }


def lookups(about: Description, tables: Mapping[str, Array], folder: Path) -> dict[str, FeatureSpec]:
    """Return the lookups, whose tables have the shapes that the description declares."""
    made = {}
    for name, entry in about.tables.items():
        held = tables.get(name)
        declared: tuple[tuple[int, int], str] = ((entry.rows, entry.dim), entry.dtype)
        if entry.dtype in BITS:
            declared = (entry.rows, record_bytes(entry.dim, BITS[entry.dtype])), "uint8"
        if held is None or (held.shape, held.dtype.name) != declared:
            found = "is not there" if held is None else f"is {held.dtype.name} of shape {held.shape}"
            why = f"table {shown(name)} {found}, and is described as {declared[1]} of shape {declared[0]}; export again"
            raise DataError(why, str(folder / TABLES))
        made[name] = _spec(
            folder,
            TableSpec,
            name=name,
            vocabulary_size=entry.rows,
            embedding_dim=entry.dim,
            optimizer=SGD(0.0),  # a table must have a rule: this one changes nothing
            combiner=entry.combiner,
            dtype="float32" if entry.dtype in BITS else entry.dtype,
        )
    for name, lookup in about.lookups.items():
        if lookup.table not in made:
            raise DataError(f"looks {shown(name)} up in a table that is not there; export again", str(folder / NAME))
    return {
        name: _spec(
            folder,
            FeatureSpec,
            name=name,
            table_spec=made[entry.table],
            invalid_ids=entry.invalid_ids,
            combiner=entry.combiner,
        )
        for name, entry in about.lookups.items()
    }


def _spec(folder: Path, kind: Any, **fields: Any) -> Any:
    try:
        return kind(**fields)
    except (ValueError, TypeError) as error:
        raise DataError(f"does not describe an export of Sparrow: {error}", str(folder / NAME)) from None


def program_of(
    held: Opened,
    name: str,
    features: Sequence[Feature],
    parameters: Mapping[str, jax.Array],
    custom_calls: Collection[str],
) -> Any:
    """Return the program of the function ``name``, which takes the arrays that the export has for it."""
    about, entry = held.description, held.description.functions[name]
    known = {feature.name: feature for feature in features}

    def width(feature: str, dim: int) -> int:  # each reads a feature of the export
        return width_of(entry.lengths.get(feature, known[feature].sequence_length), dim)

    try:
        arguments = (
            {key: (parameters[key].shape, str(parameters[key].dtype)) for key in entry.parameters},
            {
                key: ((None, width(about.lookups[key].feature, about.tables[about.lookups[key].table].dim)), "float32")
                for key in entry.lookups
            },
            {key: ((None, width(key, known[key].width)), "float32") for key in entry.numbers}
            | ({STATE: ((None, entry.state), "float32")} if entry.state else {}),
        )
    except KeyError as error:
        why = f"the function '{name}' takes {error}, which the export lacks; export again"
        raise DataError(why, str(held.folder / NAME)) from None
    outputs = {
        key: (tuple(None if size == "batch" else size for size in output.shape), output.dtype)
        for key, output in entry.outputs.items()
    }
    return deserialized(
        held.read(entry.file),
        where=str(held.folder / entry.file),
        written_by=about.versions.get("jax", "of another version"),
        arguments=arguments,
        outputs=outputs,  # type: ignore[arg-type]
        custom_calls=custom_calls,
    )
