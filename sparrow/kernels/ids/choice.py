"""The backends of id maps, and the choice of one."""

from __future__ import annotations

from typing import Protocol

import jax

from sparrow.kernels.cuda import ids as cuda
from sparrow.kernels.device_kind import preferred
from sparrow.kernels.ids import xla
from sparrow.kernels.ids.types import Assigned, IdState, Settings, Undo
from sparrow.kernels.native import ids as native
from sparrow.kernels.warning import warn_once


class IdBackend(Protocol):
    """The functions of a backend module; `sparrow.kernels.ids.xla` describes them.

    ``ids`` are (N, 2) uint32, ``segments`` (N,) int32, below 0 where absent.
    """

    @property
    def name(self) -> str: ...
    def unavailable(self) -> str | None: ...
    def find(
        self, s: Settings, state: IdState, ids: jax.Array, segments: jax.Array, step: jax.Array | int
    ) -> jax.Array: ...
    def assign(
        self, s: Settings, state: IdState, ids: jax.Array, segments: jax.Array, step: jax.Array | int
    ) -> Assigned: ...
    def undone(self, s: Settings, state: IdState, undo: Undo, ids: jax.Array, when: jax.Array) -> IdState: ...
    def indexed(self, s: Settings, state: IdState) -> IdState: ...


BACKENDS: dict[str, IdBackend] = {"xla": xla, "native": native, "cuda": cuda}


def choose(name: str) -> IdBackend:
    """Return the map of the backend ``name`` ("auto": the fastest), or `xla` with one warning where it cannot run."""
    backend = BACKENDS.get(preferred() if name == "auto" else name, xla)
    if reason := backend.unavailable():
        warn_once(f"ids are found by the slower 'xla' backend, because '{backend.name}' cannot run here: {reason}")
        return xla
    return backend
