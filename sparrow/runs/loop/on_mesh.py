"""Runs on several devices: the mesh of a config, and batches that are split over it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh

from sparrow.config import Config, ConfigError, Problem
from sparrow.embedding import Embedder, Ragged

AXIS = "data"


def mesh_of(config: Config) -> Mesh | None:
    """Return the mesh that ``train.mesh`` asks for, after checking that this machine and the batches fit; or None."""
    if config.train.mesh is None:
        return None
    count, there = config.train.mesh.data, len(jax.devices())
    problems = []
    if jax.process_count() > 1:
        text = f"runs take one process, and there are {jax.process_count()}; start one process that sees all devices"
        problems.append(Problem(("train", "mesh"), text))
    elif count > there:
        text = f"{count} devices are asked for, and there are {there}; ask for {there}, or leave train.mesh out"
        problems.append(Problem(("train", "mesh", "data"), text))
    sizes = {("train", "batch_size"): config.train.batch_size, ("evaluate", "batch_size"): config.evaluate.batch_size}
    for path, size in sizes.items():
        if size is not None and size % count:
            text = f"{size} examples cannot be split evenly over the {count} devices of train.mesh"
            problems.append(Problem(path, f"{text}; give a multiple of {count}"))
    if problems:
        raise ConfigError(problems)
    return None if count == 1 else jax.make_mesh((count,), (AXIS,), (AxisType.Auto,), devices=jax.devices()[:count])


def on_these_devices(config: Config, log: Callable[[str], None]) -> Config:
    """Return the config of a saved model; without its mesh, which is logged, where there are fewer devices."""
    wanted, there = config.train.mesh, len(jax.devices())
    if wanted is None or wanted.data <= there:
        return config
    log(f"the model was trained on {wanted.data} devices, and there are {there}: it is loaded on one")
    return config.model_copy(update={"train": config.train.model_copy(update={"mesh": None})})


@dataclasses.dataclass(frozen=True)
class Split:
    """The layout of a batch whose arrays are on a mesh already.

    Attributes:
      rows: examples of each lookup that was filled up with empty ones, so that the devices share them evenly.
    """

    rows: tuple[tuple[str, int], ...] = ()

    def split(self, parts: Any) -> Any:
        """Return the arrays."""
        return parts


def filled(ids: Mapping[str, Any], devices: int) -> tuple[dict[str, Any], dict[str, int]]:
    """Fill features with empty examples to a multiple of ``devices``; also return the examples of those that needed it.

    >>> filled({"item": np.array([4, 7, 9]), "even": np.arange(4)}, 2)[1]
    {'item': 3}
    """
    counts = {name: _examples(given) for name, given in ids.items()}
    uneven = {name: count for name, count in counts.items() if count % devices or not count}
    return {
        name: _with_empty(given, -counts[name] % devices or devices) if name in uneven else given
        for name, given in ids.items()
    }, uneven


def _examples(given: Any) -> int:
    return len(given.offsets) - 1 if isinstance(given, Ragged) else len(given)


def _with_empty(given: Any, more: int) -> Any:
    if isinstance(given, Ragged):
        offsets = np.asarray(given.offsets)
        last = offsets[-1] if len(offsets) else 0
        return dataclasses.replace(given, offsets=np.concatenate([offsets, np.full(more, last, offsets.dtype)]))
    ids = np.concatenate([np.ma.getdata(given), np.zeros((more, *given.shape[1:]), given.dtype)])
    missing = np.concatenate([np.ma.getmaskarray(given), np.ones((more, *given.shape[1:]), np.bool_)])
    return np.ma.MaskedArray(ids, missing)


def placed(embedder: Embedder, arrays: Any) -> Any:
    """Return host arrays on the mesh: split where the devices can share the examples evenly, else on every device."""
    shards = embedder.shards
    assert shards is not None
    count = shards.count
    places = jax.tree.map(lambda array: shards.everywhere if len(array) % count else shards.split_sharding, arrays)
    return jax.device_put(arrays, places)


def kept_everywhere(embedder: Embedder, tree: Any) -> Any:
    """Return, inside of a compiled program, the tree with every leaf on all devices; on one device, the tree.

    XLA may choose to split what a step returns; the next step would then be another program.
    """
    if embedder.shards is None:
        return tree
    return jax.lax.with_sharding_constraint(tree, embedder.shards.everywhere)  # type: ignore[no-untyped-call]
