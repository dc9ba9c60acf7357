"""The ways of a batch through the filler, for tests that compare them."""

from sparrow.feed import plan
from sparrow.kernels.feed import filling


def by_columns(patch, plain=True):
    """Let batches come as columns, as without compiled code; ``plain``: and be filled by NumPy."""
    patch.setattr(plan, "_compiled", lambda block: None)
    if plain:
        patch.setattr(filling, "library", lambda: None)
