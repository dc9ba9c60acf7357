"""Samplers: items that are drawn for a batch, beside the examples or in their place."""

from sparrow.data.samplers.base import ID, Sampler
from sparrow.data.samplers.items import Edges, EdgeTable, Items
from sparrow.data.samplers.masks import Masks
from sparrow.data.samplers.negatives import NegativeSampler
from sparrow.data.samplers.tree import Ancestors, Parents, TreeForm, TreeSampler
