"""The backends of id maps, and the choice of one."""

from __future__ import annotations

from typing import Protocol

import jax

from sparrow.kernels.cuda import ids as cuda
from sparrow.kernels.device_kind import platform
from sparrow.kernels.ids import xla
from sparrow.kernels.ids.types import Assigned, IdState, Settings, Undo
from sparrow.kernels.native import ids as native
from sparrow.kernels.warning import warn_once


class IdBackend(Protocol):
    """The functions of a backend module. ``ids`` are (N, 2) uint32, ``segments`` (N,) int32, below 0 where absent."""

    @property
    def name(self) -> str:
        """Return the name of the backend."""

    def unavailable(self) -> str | None:
        """Why this backend cannot run here; None: it can."""

    def find(
        self, s: Settings, state: IdState, ids: jax.Array, segments: jax.Array, step: jax.Array | int
    ) -> jax.Array:
        """(N,) int32: the row of each id; expired ids have none."""

    def assign(
        self, s: Settings, state: IdState, ids: jax.Array, segments: jax.Array, step: jax.Array | int
    ) -> Assigned:
        """Find the rows of ids, and give rows to new ones; with the state donated, in place."""

    def undone(self, s: Settings, state: IdState, undo: Undo, ids: jax.Array, when: jax.Array) -> IdState:
        """Return the state before a call with ``ids``, where ``when`` is true; ``short`` stays."""

    def indexed(self, s: Settings, state: IdState) -> IdState:
        """Return the state with an index that is built from its ids."""


BACKENDS: dict[str, IdBackend] = {"xla": xla, "native": native, "cuda": cuda}


def choose(name: str) -> IdBackend:
    """Return the map of the backend ``name`` ("auto": the fastest), or `xla` with one warning where it cannot run."""
    wanted = {"cpu": "native", "gpu": "cuda"}.get(platform(), "xla") if name == "auto" else name
    backend = BACKENDS.get(wanted, xla)
    if reason := backend.unavailable():
        warn_once(f"ids are found by the slower 'xla' backend, because '{wanted}' cannot run here: {reason}")
        return xla
    return backend
