"""Checkpoints: a run's state on disk, complete or not at all, with damage detected before use.

A checkpoint is a folder, written under a temporary name and then renamed::

    <step>/tables/            one .npy file per table and per slot, by logical name
    <step>/state.safetensors  every other array, by name
    <step>/about.json         the step, the files, and plain values that the caller adds
    <step>/manifest.json      size and checksum of every file above, written last

or a link: what changed since another one (`sparrow.checkpoint.links`). Both are opened by `Saved`.

`StateCheckpoints` is for a training loop of your own. Nothing here knows of configs: `Checkpoints` saves and finds
them, `Saved` reads one, `rows_of` and `placed` name the tables of an `Embedder`, `named` and `unnamed` everything else.
"""

from sparrow.checkpoint.blocks import Key, TableRows
from sparrow.checkpoint.errors import CheckpointError, Damaged, Vanished
from sparrow.checkpoint.folder import Checkpoints, passed_over, saved_steps, whole
from sparrow.checkpoint.links import changed_arrays, changed_of
from sparrow.checkpoint.moved import MovedRows, all_ids, check_tables, ids_arrays, ids_of, with_rows
from sparrow.checkpoint.own_loop import StateCheckpoints, restore_orbax
from sparrow.checkpoint.saved import Saved
from sparrow.checkpoint.tables import check_shape, named, placed, plain, rows_of, unnamed

__all__ = ["CheckpointError", "Damaged", "StateCheckpoints", "restore_orbax"]


def __dir__() -> list[str]:
    return __all__
