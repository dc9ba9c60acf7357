"""A link of a chain: what changed since its parent, which is another link or a full checkpoint.

===========================  ==========================================================================================
``changed.safetensors``      by table: the rows that changed, their new values, and those of the slots
``state.safetensors``        of every other array: nothing where its bits are the same, the elements that differ where
                             they are few, else all of it
``about.json``               as in a full checkpoint; ``parent`` has the step and the id of the parent, ``arrays`` the
                             names of all other arrays
===========================  ==========================================================================================

The id of a checkpoint is drawn when it is saved, and stays when a chain is made one full checkpoint (`compact`): a link
belongs to one parent alone.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.numpy

from sparrow.checkpoint.blocks import Array, write
from sparrow.checkpoint.content import ABOUT, IN_WORK, TABLES, write_arrays, write_last, write_state
from sparrow.checkpoint.holding import remove
from sparrow.embedding import ChangedRows
from sparrow.files import exchange, sync

CHANGED: Final = "changed.safetensors"
ID: Final = "id"
PARENT: Final = "parent"
ARRAYS: Final = "arrays"


def changed_arrays(changed: Mapping[str, ChangedRows]) -> dict[str, Array]:
    """Return the arrays of a file with the changed rows of tables."""
    arrays: dict[str, Array] = {}
    for table, own in changed.items():
        arrays[f"rows/{table}"] = own.rows
        arrays |= {f"{slot}/{array.dtype}/{table}": _plain(array) for slot, array in own.arrays.items()}
    return arrays


def changed_of(data: bytes) -> dict[str, ChangedRows]:
    """Return the changed rows, from the bytes of a file; raise ValueError where they do not fit each other."""
    try:
        arrays = safetensors.numpy.load(data)
    except safetensors.SafetensorError as error:
        raise ValueError(str(error)) from None
    made: dict[str, ChangedRows] = {}
    for name in [name.removeprefix("rows/") for name in arrays if name.startswith("rows/")]:
        rows, own = arrays[f"rows/{name}"], {}
        for key, array in arrays.items():
            slot, kind, table = [*key.split("/", 2), "", ""][:3]
            if table == name and slot != "rows":
                own[slot] = array.view(_dtype(kind))
        if rows.dtype != np.int32 or rows.ndim != 1 or any(a.shape[:1] != rows.shape for a in own.values()):
            raise ValueError(f"the rows of table '{name}' do not fit their values")
        if len(rows) and (rows[0] < 0 or (np.diff(rows) <= 0).any()):
            raise ValueError(f"the rows of table '{name}' are not in order")
        made[name] = ChangedRows(rows, own)
    return made


def _plain(array: Array) -> Array:
    """Return an array as one that NumPy knows: of bfloat16, its bits."""
    array = np.require(array, requirements="C")
    return array if array.dtype.kind in "biuf" else array.view(f"u{array.itemsize}")


def _dtype(name: str) -> Any:
    try:
        return jnp.dtype(name)
    except TypeError:
        raise ValueError(f"{name} is no dtype") from None


def merged(links: Sequence[Mapping[str, ChangedRows]]) -> dict[str, ChangedRows]:
    """Return the changes of all links, the oldest first, as those of one."""
    if len(links) == 1:
        return dict(links[0])
    made = {}
    for table in dict.fromkeys(name for link in links for name in link):
        own = [link[table] for link in reversed(links) if table in link]
        rows, first = np.unique(np.concatenate([one.rows for one in own]), return_index=True)  # the newest of each
        arrays = {slot: np.concatenate([one.arrays[slot] for one in own])[first] for slot in own[0].arrays}
        made[table] = ChangedRows(rows, arrays)
    return made


def overlaid(changed: ChangedRows | None, slot: str, first: int, block: Array) -> Array:
    """Return a block of rows from row ``first`` on, with the changed ones in their places."""
    if changed is None:
        return block
    begin, end = np.searchsorted(changed.rows, [first, first + len(block)])
    if begin == end:
        return block
    block = block.copy()
    block[changed.rows[begin:end] - first] = changed.arrays[slot][begin:end]
    return block


def difference(before: Mapping[str, Array], now: Mapping[str, Array]) -> dict[str, Array]:
    """Return the arrays of a link: of each array the elements whose bits differ, or all of it where those are many."""
    made: dict[str, Array] = {}
    for name, array in now.items():
        old = before.get(name)
        if old is None or old.shape != array.shape or old.dtype != array.dtype:
            made[f"all/{name}"] = array
            continue
        differ = np.flatnonzero(_bits(array) != _bits(old))
        if len(differ) * (8 + array.itemsize) > array.nbytes // 2:
            made[f"all/{name}"] = array
        elif len(differ):
            made[f"at/{name}"] = differ
            made[f"to/{name}"] = np.ascontiguousarray(array).reshape(-1)[differ]
    return made


def patched(before: Mapping[str, Array], link: Mapping[str, Array], names: Iterable[str]) -> dict[str, Array]:
    """Return the arrays that `difference` was taken of; raise ValueError where one is missing."""
    made: dict[str, Array] = {}
    for name in names:
        if f"all/{name}" in link:
            made[name] = link[f"all/{name}"]
            continue
        if name not in before:
            raise ValueError(f"the array '{name}' is missing")
        made[name] = before[name]
        if f"at/{name}" in link:
            flat = np.array(before[name]).reshape(-1)
            flat[link[f"at/{name}"]] = link[f"to/{name}"]
            made[name] = flat.reshape(before[name].shape)
    return made


def _bits(array: Array) -> npt.NDArray[Any]:
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(f"u{flat.itemsize}")


def write_link(
    path: Path, changed: Mapping[str, ChangedRows], arrays: Mapping[str, Array], about: Mapping[str, Any]
) -> None:
    """Write a link under a temporary name, wait for the disk, and give it its name."""
    partial = path.with_name(f"{path.name}{IN_WORK}-link")
    shutil.rmtree(partial, ignore_errors=True)
    (partial / TABLES).mkdir(parents=True)
    written = {CHANGED: write_arrays(partial / CHANGED, changed_arrays(changed))}
    write_last(partial, about, written | write_state(partial, arrays))
    partial.rename(path)
    sync(path.parent)


def parent_of(path: Path) -> int | None:
    """Return the step of the parent of a checkpoint; None: it has none, or cannot be read."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        return int(json.loads((path / ABOUT).read_bytes())[PARENT]["step"])
    return None


def ancestors(folder: Path, steps: Iterable[int]) -> set[int]:
    """Return the steps of all links and full checkpoints that the checkpoints of ``steps`` need."""
    found: set[int] = set()
    for step in steps:
        at = parent_of(folder / str(step))
        while at is not None and at not in found:
            found.add(at)
            at = parent_of(folder / str(at))
    return found


def compact(saved: Any) -> None:
    """Replace a link by a full checkpoint of the same step and id, made of its chain's files alone.

    ``saved``: the opened link. Under its name there is the link or the full checkpoint at every moment, where the file
    system can swap names.
    """
    path: Path = saved.path
    partial = path.with_name(f"{path.name}{IN_WORK}-compact")
    shutil.rmtree(partial, ignore_errors=True)
    (partial / TABLES).mkdir(parents=True)
    written = {}
    for key, table in saved.tables.items():
        blocks = (block for _, block in saved.rows(key))
        written[table.file] = write(partial / table.file, table.shape, jnp.dtype(table.dtype), blocks)
        sync(partial / table.file)
    written |= write_state(partial, saved.arrays())
    about = {name: value for name, value in saved.about.items() if name not in (PARENT, ARRAYS, "form")}
    write_last(partial, {**about, "tables": saved.base.about["tables"]}, written)
    if exchange(partial, path):
        shutil.rmtree(partial, ignore_errors=True)  # the link: its readers hold all of it in memory
    elif remove(path, path.with_name(f"{path.name}.deleted")):
        partial.rename(path)
    sync(path.parent)
