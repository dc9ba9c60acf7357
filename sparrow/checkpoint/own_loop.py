"""`StateCheckpoints`: checkpoints of a training loop that is not Sparrow's."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar

import jax
import numpy as np

from sparrow.checkpoint.blocks import Array, Key
from sparrow.checkpoint.errors import CheckpointError, Damaged
from sparrow.checkpoint.folder import Checkpoints, LogLine, whole
from sparrow.checkpoint.moved import all_ids, check_tables, ids_arrays, with_rows
from sparrow.checkpoint.saved import Saved
from sparrow.checkpoint.tables import check_shape, is_scalar, named, placed, rows_of, unnamed
from sparrow.embedding import Embedder, EmbeddingState, devices_of
from sparrow.embedding.sharding import placement
from sparrow.trees import named_leaves, path_name

T = TypeVar("T")

_ABOUT: Final = "own"


class StateCheckpoints:
    """Checkpoints of any pytree that holds the state of an embedder, such as `sparrow.optimizer.OptimizerState`.

    >>> import tempfile, sparrow as sp
    >>> table = sp.TableSpec(name="t", vocabulary_size=4, embedding_dim=2, optimizer=sp.rules.SGD(0.1))
    >>> emb = sp.Embedder([sp.FeatureSpec(name="f", table_spec=table)])
    >>> state = {"tables": emb.init(jax.random.key(0)), "count": jax.numpy.zeros(())}
    >>> with StateCheckpoints(tempfile.mkdtemp(), emb, keep=2) as checkpoints:
    ...     checkpoints.save(10, state, {"epoch": 1})
    ...     checkpoints.wait()
    ...     state, about = checkpoints.restore(state)
    >>> about
    {'epoch': 1, 'step': 10}
    """

    def __init__(
        self, folder: str | os.PathLike[str], embedder: Embedder, *, keep: int | None = 3, log: LogLine = print
    ) -> None:
        """Open a folder, and make it where it does not exist.

        Args:
          folder: the folder of the checkpoints; each is a folder in it, named by its step.
          embedder: the embedder whose state the saved trees hold.
          keep: the number of newest checkpoints to keep; None: all.
          log: receives a line for each damaged checkpoint that `restore` skips.
        """
        self._embedder, self._log = embedder, log
        self._folder = Path(folder)
        self._writer = Checkpoints(self._folder, keep, log)

    def save(self, step: int, state: Any, about: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Save a state, and plain values such as the position in the data. Files are completed in the background.

        The state may be donated to the next step as soon as this returns. Its leaves are arrays and numbers; a number
        of Python is restored as one.
        """
        embedding, others = split(state)
        arrays = named(others) | ids_arrays(self._embedder, embedding)
        self._writer.save(step, rows_of(self._embedder, embedding), arrays, {_ABOUT: dict(about)})

    def restore(self, like: T) -> tuple[T, dict[str, Any]] | None:
        """Return the newest complete state and its plain values, or None where nothing is saved.

        ``like`` is a fresh state of the same form; its tables are overwritten in place. Tables may be stacked or spread
        over devices in another way than they were.
        """
        for saved in whole(self._folder, self._log):
            try:
                return self._restored(like, saved), {**saved.about[_ABOUT], "step": saved.step}
            except Damaged as error:
                self._log(f"the checkpoint of step {saved.step} is damaged: {error}")
        return None

    def wait(self) -> None:
        """Wait until the current checkpoint is complete."""
        self._writer.wait()

    def close(self) -> None:
        """Wait, and end the background threads."""
        self._writer.close()

    def __enter__(self) -> StateCheckpoints:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _restored(self, like: T, saved: Saved) -> T:
        embedding, others = split(like)
        arrays, embedder = saved.arrays(), self._embedder
        ids = all_ids(embedder, arrays)
        check_tables({key: held.shape for key, held in rows_of(embedder, embedding).items()}, saved, ids)
        others = unnamed(others, arrays)
        on_devices = embedder.on_its_devices(others)
        others = jax.tree.map(lambda leaf, put: leaf if is_scalar(leaf) else put, others, on_devices)
        restored: T = joined(others, with_rows(embedder, embedding, saved, ids))
        return restored


def is_embedding(node: Any) -> bool:
    """Return whether this is the state of an embedder."""
    return isinstance(node, EmbeddingState)


def split(tree: Any) -> tuple[EmbeddingState, Any]:
    """Return the embedder's state, and the tree with no more of it than its numbers."""
    found = [leaf for leaf in jax.tree.leaves(tree, is_leaf=is_embedding) if is_embedding(leaf)]
    if len(found) != 1:
        raise CheckpointError(f"a saved state must hold the state of one embedder, this one holds {len(found)}")
    beside: dict[str, Any] = {"table_rows": {}, "ids": {}, "caches": {}, "touched": {}, "layout": {}}
    bare = dataclasses.replace(found[0], tables={}, slots={}, **beside)
    return found[0], jax.tree.map(lambda leaf: bare if is_embedding(leaf) else leaf, tree, is_leaf=is_embedding)


def joined(others: Any, embedding: EmbeddingState) -> Any:
    """Return the tree of `split` with tables and slots in it."""

    def whole_of(leaf: Any) -> Any:
        return dataclasses.replace(embedding, step=leaf.step, seed=leaf.seed) if is_embedding(leaf) else leaf

    return jax.tree.map(whole_of, others, is_leaf=is_embedding)


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

    def read(key: Key) -> _InMemory:
        stack, layout = stacks[key.table]
        name = f"tables/{stack.name}" if key.slot is None else f"slots/{stack.name}/{key.slot}"
        if (array := arrays.get(prefix + name)) is None:
            raise CheckpointError(f"the checkpoint has no {key}")
        width = tuple(size // layout.columns for size in held[key].shape[1:])
        check_shape(key, array.shape, (layout.local_rows * layout.shards, *width))
        span, pieces = stack.rows_of(key.table), []
        for piece in range(1 if array.ndim == 1 else layout.columns):
            owners, local = layout.place(np.arange(span.start, span.stop) + piece * layout.num_rows)
            pieces.append(array[owners * layout.local_rows + local])
        return _InMemory(pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis=1))

    others = embedder.on_its_devices(unnamed(others, arrays))
    restored: T = joined(others, placed(embedder, embedding, list(held), read))
    return restored


@dataclasses.dataclass(frozen=True)
class _InMemory:
    """Rows in their logical order, as `placed` reads them; Orbax checks what it reads."""

    rows: Array

    def __iter__(self) -> Iterator[tuple[int, Array]]:
        yield 0, self.rows

    def between(self, first: int, last: int) -> Array:
        return self.rows[first:last]

    def check(self) -> None:
        """Do nothing."""
