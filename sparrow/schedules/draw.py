"""A picture of schedules."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def draw(
    schedules: Callable[[Any], Any] | Mapping[str, Callable[[Any], Any]],
    steps: int,
    path: str | os.PathLike[str],
    *,
    title: str = "Learning rate",
) -> None:
    """Draw a schedule, or several under their names, over steps ``0 .. steps - 1``, and write a PNG file.

    >>> import tempfile, pathlib
    >>> from sparrow import schedules
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     picture = pathlib.Path(folder, "rates.png")
    ...     draw({"cosine": schedules.cosine(0.1, 0.0, steps=100)}, 120, picture)
    ...     picture.read_bytes()[1:4]
    b'PNG'
    """
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    from matplotlib.figure import Figure  # not pyplot: no window, no global state

    figure = Figure(figsize=(10, 4), layout="constrained")
    axes = figure.subplots()
    named = schedules if isinstance(schedules, Mapping) else {"": schedules}
    grid = jnp.arange(steps)
    for name, schedule in named.items():
        rates = np.broadcast_to(jax.vmap(schedule)(grid), (steps,))
        # A rate holds for its step, so jumps stay vertical.
        axes.plot(np.arange(steps), rates, drawstyle="steps-post", label=name or None)
    axes.set(title=title, xlabel="optimizer step", ylabel="rate", ylim=(0, None), xlim=(0, steps))
    axes.grid(alpha=0.3)
    if any(named):
        figure.legend(loc="outside right upper")
    figure.savefig(path, format="png", dpi=120)
