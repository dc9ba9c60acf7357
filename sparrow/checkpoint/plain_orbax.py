"""`restore_orbax`: a plain Orbax checkpoint of a state, onto any number of devices."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeVar

import jax
import numpy as np

from sparrow.checkpoint.blocks import Array, Key
from sparrow.checkpoint.errors import CheckpointError
from sparrow.checkpoint.leaves import unnamed
from sparrow.checkpoint.own_loop import is_embedding, joined, split
from sparrow.checkpoint.tables import check_shape, placed, rows_of
from sparrow.embedding import Embedder, devices_of
from sparrow.embedding.sharding import layout as layouts
from sparrow.embedding.sharding import placement
from sparrow.trees import named_leaves, path_name

T = TypeVar("T")

ROWS: Final = 1 << 16
"""Rows that are put in order at once."""


def restore_orbax(folder: str | os.PathLike[str], like: T, embedder: Embedder) -> T:
    """Return the state that Orbax's own checkpointers saved, on the devices of ``embedder``.

    Rows of a state lie in an order that depends on the number of devices, so that Orbax alone restores it onto as many
    as it was saved on, and refuses others. This puts rows into the order of the devices here.
    Each process reads complete arrays into the memory of its host: `StateCheckpoints` needs a block at a time.

    Args:
      folder: the folder that, for example, ``StandardCheckpointer.save`` was given.
      like: a fresh state of the same form; its tables are overwritten in place.
      embedder: the embedder whose state it holds.
    """
    import orbax.checkpoint as ocp

    embedding, others = split(like)
    if embedding.ids or embedding.caches:
        raise CheckpointError(
            "the state holds dynamic tables, or tables in host memory, whose rows a plain Orbax checkpoint cannot move "
            "to other devices: restore it with Orbax on as many as it was saved on"
        )
    with ocp.PyTreeCheckpointer() as checkpointer:
        metadata = checkpointer.metadata(Path(folder).absolute())
        tree = getattr(metadata.item_metadata, "tree", None)
        if tree is None:
            raise CheckpointError(
                f"{folder} is not a checkpoint of Orbax; give it the folder that it saved the state to"
            )
        wanted = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree)
        arrays = named_leaves(checkpointer.restore(Path(folder).absolute(), restore_args=wanted))
    paths = jax.tree_util.tree_leaves_with_path(like, is_leaf=is_embedding)
    [prefix] = [f"{path_name(path)}/" if path else "" for path, leaf in paths if is_embedding(leaf)]
    saved = {name.removeprefix(f"{prefix}layout/"): array for name, array in arrays.items()}
    devices = devices_of(saved)
    texts = [array.tobytes().decode().strip("\0") for name, array in saved.items() if devices_of([name]) == devices > 1]
    stacks = placement.saved_stacks(list(embedder.tables.values()), texts[0] if texts else "", devices)
    held = rows_of(embedder, embedding)

    def read(key: Key) -> _Moved:
        stack, layout = stacks[key.table]
        name = f"tables/{stack.name}" if key.slot is None else f"slots/{stack.name}/{key.slot}"
        if (array := arrays.get(prefix + name)) is None:
            raise CheckpointError(f"the checkpoint has no {key}")
        width = tuple(size // layout.columns for size in held[key].shape[1:])
        check_shape(key, array.shape, (layout.local_rows * layout.shards, *width))
        return _Moved(array, layout, stack.rows_of(key.table))

    others = embedder.on_its_devices(unnamed(others, arrays))
    restored: T = joined(others, placed(embedder, embedding, list(held), read))
    return restored


@dataclasses.dataclass(frozen=True)
class _Moved:
    """Rows of one table in a stack's array, in their logical order."""

    array: Array
    layout: layouts.Layout
    rows: slice

    def __iter__(self) -> Iterator[tuple[int, Array]]:
        for first in range(0, self.rows.stop - self.rows.start, ROWS):
            yield first, self.between(first, min(first + ROWS, self.rows.stop - self.rows.start))

    def between(self, first: int, last: int) -> Array:
        """Return the rows ``first`` to ``last`` of the table."""
        rows, pieces = np.arange(self.rows.start + first, self.rows.start + last), []
        for piece in range(1 if self.array.ndim == 1 else self.layout.columns):
            owners, local = self.layout.place(rows + piece * self.layout.num_rows)
            pieces.append(self.array[owners * self.layout.local_rows + local])
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis=1)

    def check(self) -> None:
        """Do nothing: Orbax checks what it reads."""
