"""Runs on several devices: the mesh of a config, and batches that are split over it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh

from sparrow import processes
from sparrow.config import Config, ConfigError, Problem
from sparrow.embedding import Embedder, in_device_order

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
    # The devices of a process are neighbors, so that its examples are, too.
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
