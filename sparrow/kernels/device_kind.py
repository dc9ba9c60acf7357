"""Where programs run, and the backend for it."""

from __future__ import annotations

import jax


def platform() -> str:
    """Return the kind of device that JAX uses by default: "cpu", "gpu" or "tpu".

    >>> with jax.default_device("cpu"):
    ...     platform()
    'cpu'
    """
    device = jax.config.jax_default_device  # type: ignore[attr-defined]
    if device is None:
        return jax.default_backend()
    return device if isinstance(device, str) else str(device.platform)


def preferred() -> str:
    """Return the name of the fastest backend for this kind of device."""
    return {"cpu": "native", "gpu": "cuda"}.get(platform(), "xla")
