"""The contents of an export: parameters by name, tables in blocks of rows, features with their words.

Besides, its inputs and outputs, described in words for people who have not seen the config. Tables may be smaller than
in training: float16, or rows of 8 or 4 bits with a scale and an offset of their own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import jax
import numpy as np

from sparrow.checkpoint import Key, plain, rows_of
from sparrow.config import ConfigError, Problem, Task
from sparrow.data import CANDIDATES, Feature
from sparrow.data.features import registry
from sparrow.embedding import Embedder, EmbeddingState, Ids
from sparrow.exports.functions import Exported
from sparrow.files import AnyPath, Remote, Streamed, at
from sparrow.kernels.quantized import BITS, quantize, record_bytes
from sparrow.retrieval import FILES
from sparrow.serving.deltas import FILES as DELTA_FILES
from sparrow.serving.deltas import FOLDER as DELTAS
from sparrow.serving.description import IDS, INDEX, LEFT, NAME, PARAMETERS, PROGRAM, STATE, TABLES, Input, Output
from sparrow.tasks import meaning
from sparrow.trees import named_leaves

VOCABULARIES: Final = "vocabularies"
_WRITTEN: Final = re.compile(
    rf"({'|'.join(map(re.escape, (NAME, PARAMETERS, TABLES, IDS)))}|[^/]+{re.escape(PROGRAM)}"
    rf"|{DELTAS}/[^/]+/({'|'.join(map(re.escape, DELTA_FILES))})"
    rf"|{VOCABULARIES}/[^/]+\.(txt|json)|{INDEX}/({'|'.join(map(re.escape, FILES))}))"
)
"""The files of an export, also of one whose description is damaged."""


class Parameters:
    """Dense parameters and the other variables of a model, as arrays by name and back.

    >>> parameters = Parameters({"params": {"kernel": jax.numpy.ones(2)}, "rest": {}})
    >>> parameters.arrays
    {'params/kernel': Array([1., 1.], dtype=float32)}
    >>> parameters.tree(parameters.arrays)
    {'params': {'kernel': Array([1., 1.], dtype=float32)}, 'rest': {}}
    """

    def __init__(self, tree: Any) -> None:
        leaves, self._structure = named_leaves(tree), jax.tree.structure(tree)
        # Keys of random numbers are arrays of bits in a file.
        self.arrays: dict[str, Any] = {name: plain(leaf) for name, leaf in leaves.items()}
        self._keys = {n: jax.random.key_impl(leaf) for n, leaf in leaves.items() if self.arrays[n] is not leaf}

    def tree(self, arrays: dict[str, Any]) -> Any:
        leaves = [
            jax.random.wrap_key_data(arrays[name], impl=self._keys[name]) if name in self._keys else arrays[name]
            for name in self.arrays
        ]
        return jax.tree.unflatten(self._structure, leaves)


def used_rows(embedder: Embedder, ids: Mapping[str, Ids]) -> dict[str, int]:
    """Return the rows of each table that an export holds: all, or of a dynamic table up to the last one in use."""
    made = {name: table.vocabulary_size for name, table in embedder.tables.items()}
    return made | {name: max(int(own.rows.max(initial=0)) + 1, 1) for name, own in ids.items()}


def live_ids(embedder: Embedder, state: EmbeddingState) -> dict[str, Ids]:
    """Return the ids of dynamic tables that a lookup finds."""
    return {name: embedder.ids(state, name) for name, table in embedder.tables.items() if table.dynamic is not None}


def exported_ids(embedder: Embedder, ids: Mapping[str, Ids]) -> dict[str, Any]:
    """Return the ids of dynamic tables as `sparrow.serving` reads them."""
    arrays: dict[str, Any] = {}
    for name, own in ids.items():
        dynamic = embedder.tables[name].dynamic
        unknown = 0 if dynamic is not None and dynamic.reserved else -1
        parts = {"ids": own.ids.view(np.int64), "rows": own.rows, "unknown": np.array([unknown], np.int32)}
        arrays |= {f"{name}/{part}": array for part, array in parts.items()}
    return arrays


def streamed_tables(embedder: Embedder, state: EmbeddingState, used: Mapping[str, int]) -> list[Streamed]:
    """Return the logical tables, independent of their stacking; blocks leave the device one at a time.

    ``used``: the rows of each table, from its first on.
    """
    rows = rows_of(embedder, state)
    cut = {name: rows[Key(name)]._replace(num_rows=used[name]) for name in embedder.tables}
    return [Streamed(name, cut[name].shape, table.dtype, cut[name].blocks()) for name, table in embedder.tables.items()]


def foreign_files(folder: AnyPath) -> list[str]:
    """Return the files in an export's folder that no export wrote, by their path in it."""
    listed = set[str]()
    with contextlib.suppress(OSError, ValueError, AttributeError, TypeError, RecursionError):
        listed = set(json.loads((folder / NAME).read_bytes())["files"])
    names = [
        path.relative_to(folder).as_posix()  # type: ignore[arg-type]
        for path in folder.rglob("*")
        if isinstance(path, Remote) or path.is_symlink() or not path.is_dir()
    ]
    return sorted(name for name in names if name not in listed and not _WRITTEN.fullmatch(name))


def described_features(features: Sequence[Feature], folder: Path) -> list[dict[str, Any]]:
    """Return the features as plain values; files of words are copied into ``folder``."""
    copied: dict[str, str] = {}
    described = []
    for feature in features:
        try:
            fields = registry.to_dict(feature)
        except (TypeError, ConfigError) as error:
            raise ConfigError([Problem(("data", "features"), f"cannot be exported: {error}")]) from None
        if isinstance(file := fields.get("vocabulary"), str):
            if file not in copied:
                name = re.sub(r"[^\w.-]", "_", feature.name)
                words = feature.words
                copied[file] = f"{VOCABULARIES}/{len(copied)}_{name}{'.txt' if words is None else words.suffix}"
                (folder / VOCABULARIES).mkdir(exist_ok=True)
                if words is not None:  # the words that the model uses; the file may have changed
                    words.save(folder / copied[file])
                else:
                    (folder / copied[file]).write_bytes(at(file).read_bytes())
            fields["vocabulary"] = copied[file]
        described.append(fields)
    return described


STATE_OUTPUTS: Final = {STATE: "state of the history", LEFT: "number of further events that fit"}


def described_inputs(features: Sequence[Feature], kinds: Mapping[str, str]) -> dict[str, Input]:
    """Return the columns that the features are made from. ``kinds``: of ids in training, by column.

    >>> from sparrow.data import IdFeature
    >>> tags = IdFeature("tags", hash_bucket_size=100, embedding_dim=8)
    >>> described_inputs([IdFeature("item", num_buckets=100, embedding_dim=8), tags], {"tags": "strings"})
    {'item': Input(holds='integers from 0 to 99; may be missing', features=['item'], ids=None),
     'tags': Input(holds='strings; may be missing', features=['tags'], ids='strings')}
    """
    readers: dict[str, list[Feature]] = {}
    for feature in features:
        for column in dict.fromkeys(feature.columns):
            readers.setdefault(column, []).append(feature)
    made = {}
    for column, users in readers.items():
        exact = [feature for feature in users if not feature.is_general]  # general words only where there are no others
        words = "; ".join(dict.fromkeys(feature.holds(column) for feature in exact or users))
        if (kind := kinds.get(column)) is not None:
            words = words.replace("integers or strings", kind, 1)
        made[column] = Input(words, [feature.name for feature in users], kind)
    return made


def described_outputs(tasks: Mapping[str, Task], made: Exported) -> dict[str, Output]:
    """Return the arrays that a function returns."""
    described = {}
    for name, (shape, dtype) in made.outputs.items():
        task = name if name in tasks else None
        tower = name.removesuffix("_vector")
        words = f"vector of the {tower} tower" if task is None else meaning(tasks[task])
        if name in STATE_OUTPUTS:
            words = STATE_OUTPUTS[name]
        elif name == CANDIDATES:
            words = "number of candidates"
        elif CANDIDATES in made.outputs:
            words += " of each candidate"
        described[name] = Output(shape, dtype, words, task)
    return described


TableDtype = Literal["float16", "int8", "int4"]
TABLE_DTYPES: Final = ("float16", *BITS)


def table_dtype(dtype: TableDtype, dim: int) -> TableDtype:
    """Return the dtype of a table of rows of ``dim`` numbers: float16 where codes, scale and offset take more bytes.

    >>> [table_dtype("int8", dim) for dim in (1, 3, 4)]
    ['float16', 'float16', 'int8']
    """
    return "float16" if dtype in BITS and record_bytes(dim, BITS[dtype]) > 2 * dim else dtype


def smaller(table: Streamed, dtype: TableDtype | None) -> Streamed:
    """Return a table as an export holds it in another dtype; None: as it is."""
    if dtype is None:
        return table
    rows, dim = table.shape
    dtype = table_dtype(dtype, dim)
    if dtype not in BITS:
        return dataclasses.replace(table, dtype=dtype, blocks=(_halves(table.name, block) for block in table.blocks))
    bits = BITS[dtype]
    records = (_records(table.name, block, bits) for block in table.blocks)
    return Streamed(table.name, (rows, record_bytes(dim, bits)), "uint8", records)


def _halves(name: str, block: Any) -> Any:
    values = np.asarray(block, np.float32)
    most = float(np.finfo(np.float16).max)
    if values.size and not np.abs(values).max() <= most:
        raise ValueError(f"table '{name}': float16 holds numbers up to {most:g}, and the table has others, or NaN")
    return values.astype(np.float16)


def _records(name: str, block: Any, bits: int) -> Any:
    try:
        return quantize(block, bits)
    except ValueError as error:
        raise ValueError(f"table '{name}': {error}") from None
