"""Two towers whose user is a history: the state after its last element, and in training after every one."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from sparrow.embedding import Rows
from sparrow.losses import Positions
from sparrow.models.inputs import Arrays, Inputs
from sparrow.models.retrievers.matching import TwoTowers, candidates
from sparrow.models.sequences.layout import Layout


class HistoryTowers(TwoTowers):
    """A model of two towers over a history; a subclass makes the layers, `states` and `normalized`.

    With ``every_position`` a training step learns from each element of a history, whose target is the next one, and
    from the last, whose target is the item of the row: the output "positions" is a `sparrow.losses.Positions`. The
    history and the item must hold the same features in the same order, from the same tables. Items are told apart by
    the bits of their rows: tables must not begin with equal rows, such as zeros.

    Attributes:
      every_position: whether a training step learns from every element.
      deterministic: whether this is no training step; ``nnx.Module.eval`` sets it.
    """

    every_position: bool
    deterministic = False

    def states(self, acts: Arrays, numbers: Arrays) -> tuple[jax.Array, Layout, Rows]:
        """Return the state of each token, ``(tokens, dim)``, where they are, and the features of the elements."""
        raise NotImplementedError

    def normalized(self, x: jax.Array) -> jax.Array:
        """Return states as the last layer takes them."""
        return x

    @property
    def why_no_states(self) -> str | None:
        """Why states of a history cannot be kept; None: they can."""
        return None

    @property
    def why_no_append(self) -> str | None:
        """Why further elements cannot be appended to a state; None: they can."""
        return None

    def query(self, acts: Arrays, numbers: Arrays) -> jax.Array:
        x, layout, _ = self.states(acts, numbers)
        return self.user_output(self.normalized(layout.newest(x)))

    def __call__(self, acts: Arrays, numbers: Arrays) -> dict[str, jax.Array]:
        """Return what `TwoTowers` do, and "positions" in training with ``every_position``."""
        if not self.every_position or self.deterministic:
            return super().__call__(acts, numbers)
        x, layout, history = self.states(acts, numbers)
        query = self.user_output(self.normalized(layout.newest(x)))
        made = candidates(type(self).__name__, query, self.item(acts, numbers), self.negatives)
        raw, batch = self.item_tower.group.concat(acts, numbers), query.shape[0]
        following, there = layout.following(x, history, raw[:batch])
        _, examples = layout.of_tokens(x, jnp.arange(batch, dtype=jnp.int32))
        positions = Positions(
            self.user_output(self.normalized(x)),
            self.item_output(self.item_tower.layers(following)),
            row_keys(following),
            there.astype(jnp.float32),
            examples,
        )
        if "negatives" in made:
            positions = positions._replace(negatives=made["negatives"], negative_keys=row_keys(raw[batch:]))
        return {**made, "positions": positions}  # type: ignore[dict-item]


def check_same_features(model: str, inputs: Inputs, history: str, item: str) -> None:
    """Raise ValueError where the elements of a history and an item differ in their features."""
    elements, one = inputs.sequence_group(history).sequences.dims, inputs.group(item).dims
    if elements != one:
        raise ValueError(
            f"{model}.every_position needs the features of the group '{item}' to be those of the group '{history}', in "
            f"the same order; their widths are {list(one)} and {list(elements)}"
        )


def row_keys(rows: jax.Array) -> jax.Array:
    """(n,) int32: a hash of the bits of each row, by which items are told apart wherever their rows came from.

    >>> keys = row_keys(jnp.array([[1.0, 2.0], [2.0, 1.0], [1.0, 2.0]]))
    >>> bool(keys[0] == keys[2]), bool(keys[0] == keys[1])
    (True, False)
    """
    bits = jax.lax.bitcast_convert_type(jax.lax.stop_gradient(rows).astype(jnp.float32), jnp.uint32)
    factors = np.random.default_rng(0).integers(0, 2**32, rows.shape[1], np.uint32) | np.uint32(1)
    mixed = ((bits ^ (bits >> 15)) * factors).sum(axis=1, dtype=jnp.uint32)
    return jax.lax.bitcast_convert_type((mixed ^ (mixed >> 16)) * np.uint32(0x9E3779B1), jnp.int32)
