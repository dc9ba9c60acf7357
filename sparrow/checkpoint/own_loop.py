"""`StateCheckpoints`: checkpoints of a training loop that is not Sparrow's."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar

import jax

from sparrow.checkpoint.errors import CheckpointError, Damaged
from sparrow.checkpoint.folder import Checkpoints, LogLine, whole
from sparrow.checkpoint.leaves import is_scalar, named, unnamed
from sparrow.checkpoint.saved import Saved
from sparrow.checkpoint.tables import check_shape, placed, rows_of
from sparrow.embedding import Embedder, EmbeddingState

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
        self._writer.save(step, rows_of(self._embedder, embedding), named(others), {_ABOUT: dict(about)})

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
        rows = rows_of(self._embedder, embedding)
        for key, held in rows.items():
            if key not in saved.tables:
                raise CheckpointError(f"the checkpoint has no {key}")
            check_shape(key, saved.tables[key].shape, held.shape)
        others = unnamed(others, saved.arrays())
        on_devices = self._embedder.on_its_devices(others)
        others = jax.tree.map(lambda leaf, put: leaf if is_scalar(leaf) else put, others, on_devices)
        restored: T = joined(others, placed(self._embedder, embedding, list(rows), saved.rows))
        return restored


def is_embedding(node: Any) -> bool:
    """Return whether this is the state of an embedder."""
    return isinstance(node, EmbeddingState)


def split(tree: Any) -> tuple[EmbeddingState, Any]:
    """Return the embedder's state, and the tree without its tables and slots."""
    found = [leaf for leaf in jax.tree.leaves(tree, is_leaf=is_embedding) if is_embedding(leaf)]
    if len(found) != 1:
        raise CheckpointError(f"a saved state must hold the state of one embedder, this one holds {len(found)}")
    bare = dataclasses.replace(found[0], tables={}, slots={}, table_rows={}, touched={}, layout={})
    return found[0], jax.tree.map(lambda leaf: bare if is_embedding(leaf) else leaf, tree, is_leaf=is_embedding)


def joined(others: Any, embedding: EmbeddingState) -> Any:
    """Return the tree of `split` with tables and slots in it."""

    def whole_of(leaf: Any) -> Any:
        return dataclasses.replace(embedding, step=leaf.step, seed=leaf.seed) if is_embedding(leaf) else leaf

    return jax.tree.map(whole_of, others, is_leaf=is_embedding)
