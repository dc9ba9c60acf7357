"""Tables: the options that TorchEasyRec sets on each feature (``trainable``, ``init_fn``, ``data_type``) as ours."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from sparrow.config.building.assemble import WIDE
from sparrow.config.sections.tables import HostMemoryOptions, TableOptions
from sparrow.config.sections.train import TableOptimizer
from sparrow.config.torcheasyrec.blocks import Block
from sparrow.config.torcheasyrec.vocabularies import cached_share, initial_values
from sparrow.data import Feature
from sparrow.embedding import Constant, Initializer, Normal, Uniform
from sparrow.rules import SGD

_DTYPES: Final[Mapping[str, Any]] = {"FP32": "float32", "FP16": "float16", "BF16": "bfloat16"}
_OF_TABLE: Final = ("trainable", "init_fn", "data_type")

# By torch's name: the arguments in order with torch's defaults, and the initializer that they make.
_INITIALIZERS: Final[Mapping[str, tuple[dict[str, float | None], Any]]] = {
    "uniform_": ({"a": 0.0, "b": 1.0}, lambda a, b: Uniform(a, b)),
    "normal_": ({"mean": 0.0, "std": 1.0}, lambda mean, std: Normal(mean, std)),
    "trunc_normal_": ({"mean": 0.0, "std": 1.0, "a": -2.0, "b": 2.0}, lambda mean, std, a, b: Normal(mean, std, a, b)),
    "constant_": ({"val": None}, lambda val: Constant(val)),
    "zeros_": ({}, lambda: Constant(0.0)),
    "ones_": ({}, lambda: Constant(1.0)),
}


def by_table(found: list[tuple[Feature, Block]]) -> dict[str, Block]:
    """Return the message with the options of each table; features that share a table must agree on them."""
    blocks: dict[str, Block] = {}
    for feature, block in found:
        if (use := feature.table_use) is None:
            for field in _OF_TABLE:
                block.note("the feature has no table", field)
            continue
        first = blocks.setdefault(use.table, block)
        for field in _OF_TABLE:
            if first[field] != block[field]:
                block.fail(f"differs between features that share the table '{use.table}'", field)
    return blocks


def frozen(tables: Mapping[str, Block], wide: Collection[str]) -> tuple[TableOptimizer, ...]:
    """Return the learning rate 0 for each table that is not trainable, and for its twin of a ``wide`` group."""
    fixed = [table for table, block in tables.items() if not block["trainable"]]
    names = tuple(re.escape(name) for table in fixed for name in (table, *[table + WIDE] * (table in wide)))
    return (TableOptimizer(tables=names, optimizer=SGD(0.0)),) if names else ()


def options(tables: Mapping[str, Block], wide: Collection[str], model: Block) -> tuple[TableOptions, ...]:
    """Return initial values, precision and memory of the tables, and of their twins for a ``wide`` group."""
    given = "wide_init_fn" in model.given
    of_twins = initializer(model, "wide_init_fn") if given else None
    made: dict[tuple[Initializer | None, Any, float | None], list[str]] = {}
    for table, block in tables.items():
        values, dtype = initial_values(block) or initializer(block, "init_fn"), _dtype(block)
        cache = cached_share(block)
        made.setdefault((values, dtype, cache), []).append(table)
        if table in wide:
            made.setdefault((of_twins if given else values, dtype, cache), []).append(table + WIDE)
    made.pop((None, "float32", None), None)
    return tuple(
        TableOptions(
            tables=tuple(map(re.escape, names)),
            initializer=values,
            dtype=dtype,
            memory=None if cache is None else HostMemoryOptions(kind="host", cache=cache),
        )
        for (values, dtype, cache), names in made.items()
    )


def initializer(block: Block, field: str) -> Initializer | None:
    """Return the initializer of a function of torch with arguments, such as ``nn.init.uniform_,a=-0.01,b=0.01``."""
    written: str | None = block[field]
    if written is None:
        return None
    name, *arguments = (part.strip() for part in written.split(","))
    function = name.removeprefix("torch.").removeprefix("nn.init.")
    if function not in _INITIALIZERS or function == name:
        names = ", ".join(f"nn.init.{name}" for name in _INITIALIZERS)
        block.fail(f"not supported: {written!r}; the functions are {names}", field)
    known, make = _INITIALIZERS[function]
    values = dict(known)
    for place, argument in enumerate(arguments):
        key, is_named, value = argument.rpartition("=")
        key = key.strip() if is_named else list(known)[place] if place < len(known) else ""
        if key not in known:
            block.fail(f"{name} takes {', '.join(known) or 'no arguments'}, got {argument!r}", field)
        try:
            values[key] = float(value)
        except ValueError:
            block.fail(f"{key} must be a number, got {value!r}", field)
    if None in values.values():
        block.fail(f"{name} needs {', '.join(known)}", field)
    try:
        made: Initializer = make(**values)
    except ValueError as error:
        block.fail(str(error), field)
    return made


def _dtype(block: Block) -> Any:
    written = block["data_type"]
    if written not in _DTYPES:
        block.fail(f"not supported: {written!r}; {', '.join(_DTYPES)} are", "data_type")
    return _DTYPES[written]
