"""Options of XLA for the programs of a run."""

from __future__ import annotations

import functools
from typing import Any, Final

import jax

CUBLAS: Final = {"xla_gpu_enable_triton_gemm": False}
"""All matrix products go to cuBLAS, which adds the bias and takes the maximum, too."""


def compiler_options() -> dict[str, Any] | None:
    """Return the options for the devices of this process; None: XLA's own choices, as on a CPU."""
    version = str(jax.devices()[0].client.platform_version)
    return options_for(version)


def options_for(platform_version: str) -> dict[str, Any] | None:
    """Return the options for a platform with that name; only CUDA has some, and only where XLA knows them.

    >>> options_for("cpu") is None
    True
    """
    return dict(CUBLAS) if "cuda" in platform_version.lower() and is_known(tuple(CUBLAS.items())) else None


@functools.cache
def is_known(options: tuple[tuple[str, Any], ...]) -> bool:
    """Return whether the XLA in use takes the options: names come and go with its versions."""
    try:
        jax.jit(lambda: 0, compiler_options=dict(options)).lower().compile()
    except (ValueError, TypeError, jax.errors.JaxRuntimeError):
        return False
    return True
