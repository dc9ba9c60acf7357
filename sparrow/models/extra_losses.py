"""Losses that a model computes by itself, besides those of the tasks.

A model hands such a loss on as an output whose name begins with ``loss/``: one value per example, or one number. In
training its mean is added to the total loss; outputs of that name are left out of evaluation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import jax

PREFIX: Final = "loss/"


def extra_loss(name: str) -> str:
    """Return the name of the output that holds the loss ``name``.

    >>> extra_loss("hint")
    'loss/hint'
    """
    return PREFIX + name


def extra_losses(outputs: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """Return the losses among the outputs of a model, by their names.

    >>> import jax.numpy as jnp
    >>> list(extra_losses({"logits": jnp.zeros(2), "loss/hint": jnp.zeros(2)}))
    ['hint']
    """
    return {name.removeprefix(PREFIX): values for name, values in outputs.items() if name.startswith(PREFIX)}
