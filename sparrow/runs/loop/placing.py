"""``train.mesh.placement: auto``: the places of tables, chosen from the first batch of the data before a run begins."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from sparrow import processes
from sparrow.checkpoint import whole
from sparrow.config import Assembly, Config, ConfigError, assemble, plain, train_pipeline
from sparrow.data import without_presence
from sparrow.embedding import Embedder, Placement, choose_placement
from sparrow.feed import filled
from sparrow.runs.saved.loading import config_of
from sparrow.runs.saved.run_folder import RunFolder


def placed(config: Config, folder: RunFolder | None, log: Callable[[str], None]) -> Config:
    """Return the config with the places of tables instead of ``auto``; a run that goes on keeps those it has.

    ``folder``: of the run that goes on; None: a new one. The choice depends on tables, data and the number of devices,
    and on nothing else, so that all processes make the same, however many there are.
    """
    mesh = config.train.mesh
    if mesh is None or mesh.placement != "auto" or mesh.data == 1 or config.train.batch_size % mesh.data:
        return config
    made = None if folder is None else _kept(folder, mesh.data)
    if made is None:
        processes.want_cpu_devices(mesh.data)  # before the first arrays are made
        assembly = assemble(config)
        embedder = Embedder(assembly.specs)
        choice = choose_placement(embedder, first_lookups(config, assembly, mesh.data), mesh.data)
        made = processes.said_by_all(fields_of(choice.placements))[0]  # a stream may begin differently for each
    log(f"placement of tables: {_words(made)}")
    changed = type(mesh)(data=mesh.data, exchange_dtype=mesh.exchange_dtype, placement=made)
    return config.model_copy(update={"train": config.train.model_copy(update={"mesh": changed})})


def first_lookups(config: Config, assembly: Assembly, devices: int) -> dict[str, Any]:
    """Return the ids of the first batch, by feature, filled up to a multiple of ``devices`` examples."""
    with contextlib.closing(iter(train_pipeline(config))) as batches:  # type: ignore[type-var]
        batch = next(batches)
    ids, _ = filled(batch.ids, devices)
    return {name: without_presence(values) for name, values in assembly.lookups(ids).items()}


def fields_of(placements: dict[str, Placement]) -> Any:
    """Return placements as ``train.mesh.placement`` has them; "rows" where all tables are split by rows.

    >>> fields_of({"days": Placement("replicated"), "users": Placement("columns", columns=4, device=0)})
    {'days': 'replicated', 'users': {'kind': 'columns', 'columns': 4, 'device': 0}}
    """
    made: dict[str, Any] = {}
    for name, own in placements.items():
        numbers = {"columns": own.columns, "devices": own.devices, "device": own.device}
        given = {key: number for key, number in numbers.items() if number is not None}
        made[name] = {"kind": own.kind, **given} if given else own.kind
    return made or "rows"


def _kept(folder: RunFolder, devices: int) -> Any:
    for saved in whole(folder.checkpoints, lambda _: None):
        with contextlib.suppress(ConfigError):
            before = config_of(saved).train.mesh
            if before is not None and before.data == devices and before.placement != "auto":
                return plain(before, defaults=False)["placement"]
        return None
    return None


def _words(placement: Any) -> str:
    if isinstance(placement, str):
        return f"all by {placement}"
    kinds = [own if isinstance(own, str) else own["kind"] for own in placement.values()]
    return ", ".join(f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds))) + ", others by rows"
