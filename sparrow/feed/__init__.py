"""From rows to batches on the device: one plan, one filler, for training, evaluation and prediction."""

from sparrow.feed.candidates import ITEMS, candidate_notes
from sparrow.feed.feed import Feed, Parts, alike
from sparrow.feed.mesh import Split, filled, placed
from sparrow.feed.padding import Use, may_pad
from sparrow.feed.preparer import Prepared, Preparer, Routed
from sparrow.feed.unvarying import Unvarying

__all__ = [
    "ITEMS",
    "Feed",
    "Parts",
    "Prepared",
    "Preparer",
    "Routed",
    "Split",
    "Unvarying",
    "Use",
    "alike",
    "candidate_notes",
    "filled",
    "may_pad",
    "placed",
]
