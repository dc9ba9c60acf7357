"""The backends, and the choice of one for a stack of tables."""

from __future__ import annotations

from typing import Any, Protocol

import jax
import jax.numpy as jnp

from sparrow.kernels import cuda, feed, native, xla
from sparrow.kernels.device_kind import platform, preferred
from sparrow.kernels.types import EntryGradients, Lookups, RowStep, StepScalars
from sparrow.kernels.warning import warn_once
from sparrow.registry import nearest


class Backend(Protocol):
    """The functions of a backend module; `sparrow.kernels.xla` describes them."""

    name: str

    def unavailable(self) -> str | None: ...
    def unsupported(self, step: RowStep) -> str | None: ...
    def lookup(self, table: jax.Array, lookups: Lookups, dtype: Any = jnp.float32) -> jax.Array: ...
    def lookup_and_sort(
        self, table: jax.Array, lookups: Lookups, dtype: Any = jnp.float32
    ) -> tuple[jax.Array, Lookups]: ...
    def update(
        self, step: RowStep, table: jax.Array, slots: tuple[jax.Array, ...], grads: EntryGradients, scalars: StepScalars
    ) -> tuple[jax.Array, tuple[jax.Array, ...]]: ...


BACKENDS: dict[str, Backend] = {"xla": xla, "native": native, "cuda": cuda}
SPARSECORE = "sparsecore"


def no_sparsecore() -> str:
    """Return the reason why the backend of TPUs, which jax-tpu-embedding has, does not run here."""
    found = platform()
    where = (
        "Sparrow does not drive its SparseCores" if found == "tpu" else f"there is no TPU here (JAX runs on {found})"
    )
    return f"{where}; sparrow.embedding.sparsecore gives rules and specs to jax-tpu-embedding, which does"


def backends() -> dict[str, str]:
    """Which backends there are: "available", or why not; and which code feeds them: "native", or "numpy" and why.

    >>> backends()["xla"]
    'available'
    """
    found = {name: backend.unavailable() or "available" for name, backend in BACKENDS.items()}
    found[SPARSECORE] = no_sparsecore()
    reason = feed.unavailable()
    return found | {"feed": "native" if reason is None else f"numpy: {reason}"}


def choose(name: str, step: RowStep) -> Backend:
    """Return the backend ``name`` ("auto": the fastest available), or `xla` with one warning where it cannot run."""
    if name == "auto":
        backend = BACKENDS[preferred()]
        if reason := backend.unavailable():
            warn_once(f"tables run on the slower 'xla' backend, because '{backend.name}' cannot run here: {reason}")
            return xla
    elif name in BACKENDS:
        backend = BACKENDS[name]
        if reason := backend.unavailable():
            raise ValueError(f"backend '{name}' is not available here: {reason}")
    elif name == SPARSECORE:
        raise ValueError(f"backend '{name}' is not available here: {no_sparsecore()}")
    else:
        raise ValueError(f"unknown backend '{name}': {nearest(name, [*BACKENDS, 'auto'])}")
    if reason := backend.unsupported(step):
        warn_once(f"{step.rule.name} runs on the slower 'xla' backend, because '{backend.name}' cannot: {reason}")
        return xla
    return backend
