"""Runs on several devices: the mesh of a config, and batches that are split over it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh

from sparrow import processes
from sparrow.config import Config, ConfigError, Problem
from sparrow.embedding import Embedder, Ragged, Shards, from_host, in_device_order

AXIS = "data"


def mesh_of(config: Config) -> Mesh | None:
    """Return the mesh of ``train.mesh``, after checking that the devices and the batches fit; None: one device.

    Several processes without ``train.mesh`` take all of their devices.
    """
    if config.train.mesh is None and processes.count() == 1:
        return None
    if config.train.mesh is not None:
        processes.want_cpu_devices(config.train.mesh.data)
    devices = jax.devices()
    count = len(devices) if config.train.mesh is None else config.train.mesh.data
    problems = _device_problems(count)
    sizes = {("train", "batch_size"): config.train.batch_size, ("evaluate", "batch_size"): config.evaluate.batch_size}
    for path, size in sizes.items():
        if size is not None and size % count:
            text = f"{size} examples cannot be split evenly over the {count} devices of train.mesh"
            problems.append(Problem(path, f"{text}; give a multiple of {count}"))
    if problems:
        raise ConfigError(problems)
    if processes.count() == 1:
        return None if count == 1 else jax.make_mesh((count,), (AXIS,), (AxisType.Auto,), devices=devices[:count])
    each = count // processes.count()
    # The devices of a process are neighbours, so that its examples are, too.
    own = [[device for device in devices if device.process_index == p][:each] for p in range(processes.count())]
    return Mesh(np.array(own).reshape(-1), (AXIS,), axis_types=(AxisType.Auto,))


def _device_problems(count: int) -> list[Problem]:
    field, group = ("train", "mesh", "data"), processes.count()
    each, rest = divmod(count, group)
    if rest:
        text = f"{count} devices cannot be shared evenly by {group} processes; give a multiple of {group}"
        return [Problem(field, text)]
    there = min(sum(device.process_index == p for device in jax.devices()) for p in range(group))
    if each <= there:
        return []
    text = f"{count} devices are asked for, and there are {there * group}; ask for {there * group}"
    return [Problem(field, f"{text}, or leave train.mesh out")]


def on_these_devices(config: Config, log: Callable[[str], None]) -> Config:
    """Return the config of a saved model; without its mesh, which is logged, where there are fewer devices."""
    wanted = config.train.mesh
    if wanted is not None:
        processes.want_cpu_devices(wanted.data)
    there = len(jax.devices())
    if wanted is None or (wanted.data <= there and wanted.data % processes.count() == 0):
        return config
    where = "one" if processes.count() == 1 else f"all {there}"
    log(f"the model was trained on {wanted.data} devices, and there are {there}: it is loaded on {where}")
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


def own_share(shards: Shards, ids: Mapping[str, Any]) -> dict[str, Any]:
    """Return the examples that this process feeds, of features that were `filled`; with one process, all of them."""
    if shards.processes == 1:
        return dict(ids)
    first, last = shards.local[0], shards.local[-1] + 1
    return {name: _cut(given, first, last, shards.count) for name, given in ids.items()}


def _cut(given: Any, first: int, last: int, parts: int) -> Any:
    """Return parts ``first`` to ``last`` of the examples.

    >>> _cut(Ragged(np.array([3, 1, 4]), np.array([0, 2, 2, 3])), 1, 3, 3).to_lists()
    [[], [4]]
    """
    each = _examples(given) // parts
    begin, end = first * each, last * each
    if not isinstance(given, Ragged):
        return given[begin:end]
    offsets = np.asarray(given.offsets)[begin : end + 1]
    values = slice(int(offsets[0]), int(offsets[-1]))
    weights = None if given.weights is None else given.weights[values]
    return dataclasses.replace(given, values=given.values[values], offsets=offsets - offsets[0], weights=weights)


def placed(embedder: Embedder, arrays: Any, has_own_rows: bool = False) -> Any:
    """Return host arrays on the mesh: split where the devices can share the examples evenly, else on every device.

    Every process holds the arrays of the complete batch, and copies the parts of its own devices; or it
    ``has_own_rows``, which its devices share.
    """
    shards = embedder.shards
    assert shards is not None
    if has_own_rows:
        return shards.put_parts(arrays)
    count = shards.count
    places = jax.tree.map(lambda array: shards.everywhere if len(array) % count else shards.split_sharding, arrays)
    if shards.processes == 1:
        return jax.device_put(arrays, places)
    return jax.tree.map(from_host, arrays, places)


def for_this_host(embedder: Embedder, tree: Any) -> Any:
    """Return, inside of a compiled program, arrays that are split over processes on every device instead."""
    several = embedder.shards is not None and embedder.shards.processes > 1
    return kept_everywhere(embedder, tree) if several else tree


def on_host(embedder: Embedder, array: jax.Array) -> Any:
    """Return an array of a batch on the host of every process; all processes call this together."""
    shards = embedder.shards
    if shards is None or shards.processes == 1:
        return np.asarray(array)
    return np.asarray(jax.jit(lambda x: x, out_shardings=shards.everywhere)(array))


def summed_in_order(embedder: Embedder, f: Callable[..., Any], examples: int) -> Callable[..., Any]:
    """Return ``f(sums, outputs, columns)``; its sums over ``examples`` have the same bits in any division."""
    return in_device_order(embedder.shards, f, split=(False, True, True), examples={examples})


def kept_everywhere(embedder: Embedder, tree: Any) -> Any:
    """Return, inside of a compiled program, the tree with every leaf on all devices; on one device, the tree.

    XLA may choose to split what a step returns; the next step would then be another program.
    """
    if embedder.shards is None:
        return tree
    return jax.lax.with_sharding_constraint(tree, embedder.shards.everywhere)  # type: ignore[no-untyped-call]
