"""The parts of a model from the open files of its export, each checked against the others.

Programs of StableHLO are checked before they run: they call nothing outside of the compiler, and fit their export.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import jax

from sparrow.data import DataError, Feature, shown
from sparrow.data.features import registry
from sparrow.embedding import FeatureSpec, TableSpec
from sparrow.kernels.quantized import BITS, QuantizedTable, record_bytes
from sparrow.rules import SGD
from sparrow.serving.description import NAME, PARAMETERS, STATE, TABLES, Description
from sparrow.serving.lookup import Table, width_of
from sparrow.serving.opened import Opened
from sparrow.serving.tensors import Array

CUSTOM_CALLS: Final = frozenset(
    {
        "shape_assertion",  # the number of rows is at least 1
        "stablehlo.dynamic_approx_top_k",
        "stablehlo.dynamic_reduce_window",
        "stablehlo.dynamic_rng_bit_generator",
        "stablehlo.dynamic_top_k",
    }
)
"""The custom calls that programs may hold. XLA replaces each of them by operations of its own: no other code runs."""

_STRING: Final = re.compile(r'@?"(?:[^"\\]|\\.)*"')
_CUSTOM_CALL: Final = re.compile(r'(?<![\w@$.#%!-])(?:\w+\.)?custom_call\b(?:\s*@([\w$.-]+|"(?:[^"\\]|\\.)*"))?')
_GENERIC: Final = re.compile(r'"([\w$]+\.[\w$.]+)"\s*\([%)]')
_OUTSIDE: Final = re.compile(
    r"(?<![\w@$.#%!-])\w+\.((?:infeed|outfeed|send|recv|all_gather|all_reduce|all_to_all|reduce_scatter|"
    r"cross_replica_sum|collective_\w+|partition_id|replica_id))\b"
)

Shape = tuple[tuple[int | None, ...], str]
"""Sizes, None for the number of rows, and the dtype."""
Shapes = Mapping[str, Shape]


def deserialized(
    data: bytes,
    *,
    where: str,
    written_by: str,
    arguments: tuple[Shapes, Shapes, Shapes],
    outputs: Shapes,
    custom_calls: Collection[str] = (),
) -> Any:
    """Return a function of StableHLO, to be called with the arguments; raise `DataError` if it cannot or must not run.

    Args:
      data: the bytes that `jax.export` wrote.
      where: its file, for errors.
      written_by: the version of JAX that wrote it.
      arguments: the arrays that it will be given: parameters, activations, numbers.
      outputs: the arrays that it must return.
      custom_calls: targets of custom calls that it may hold besides `CUSTOM_CALLS`.
    """
    from jax import export

    try:
        exported = export.deserialize(bytearray(data))
        text = exported.mlir_module()
        arrays, out = _shapes(exported)
        single = exported.nr_devices == 1 and not (exported.ordered_effects or exported.unordered_effects)
        version = exported.calling_convention_version
        readable = (
            export.minimum_supported_calling_convention_version
            <= version
            <= export.maximum_supported_calling_convention_version
        )
    except Exception as error:  # a reader of flatbuffers may raise anything for the bytes of another version
        why = f"{type(error).__name__}: {error}"
        raise DataError(
            f"jax {jax.__version__} cannot read a program of jax {written_by} ({why}); export again", where
        ) from None
    if not readable:
        raise DataError(f"has the calling convention {version}, which jax {jax.__version__} does not read", where)
    if export.default_export_platform() not in exported.platforms:
        allowed = ", ".join(exported.platforms)
        raise DataError(f"runs on {allowed}, not on {export.default_export_platform()}", where)
    if foreign := sorted(called(text) - CUSTOM_CALLS - set(custom_calls)):
        remedy = "load an export that you made yourself with custom_calls=(...)"
        raise DataError(f"calls code outside of the program: {', '.join(foreign)}; {remedy}", where)
    if not single or _OUTSIDE.search(_without_strings(text)):
        raise DataError("is a program for several devices, or one that waits for other programs", where)
    if (arrays, out) != (arguments, outputs):
        raise DataError("does not fit the parameters and tables of its export; export again", where)
    return jax.jit(exported.call)


def called(text: str) -> set[str]:
    """Return the targets of all custom calls in a module of StableHLO.

    >>> sorted(called('stablehlo.custom_call @lapack_spotrf_ffi(%0) : () -> () loc("custom_call @no")'))
    ['lapack_spotrf_ffi']
    >>> sorted(called('%1 = "stablehlo.custom_call"(%0) <{call_target_name = "x"}>'))
    ['"stablehlo.custom_call"']
    """
    found = {f'"{name}"' for name in _GENERIC.findall(text) if name.endswith("custom_call")}
    return found | {target or "custom_call" for target in _CUSTOM_CALL.findall(_without_strings(text))}


def _without_strings(text: str) -> str:
    """Return the module's code without quoted strings, except names (@"...")."""
    return _STRING.sub(lambda found: found[0] if found[0].startswith("@") else '""', text)


def _shapes(exported: Any) -> tuple[tuple[Shapes, ...], Shapes]:
    """Return the arguments and outputs of a function by name."""
    arguments, keywords = jax.tree.unflatten(exported.in_tree, exported.in_avals)
    if keywords or len(arguments) != 3:
        raise ValueError(f"the program takes {len(arguments)} arguments")
    return tuple(map(_by_name, arguments)), _by_name(jax.tree.unflatten(exported.out_tree, exported.out_avals))


def _by_name(part: Any) -> Shapes:
    return {
        name: (tuple(size if isinstance(size, int) else None for size in aval.shape), str(aval.dtype))
        for name, aval in part.items()
    }


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
