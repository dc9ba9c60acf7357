"""Where programs run."""

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
