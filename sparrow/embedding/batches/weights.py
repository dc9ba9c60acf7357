"""Weights of ids that a model computes: the gains of a packed batch, made on the device and differentiable."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp

from sparrow.embedding.packed_batch import Group
from sparrow.embedding.specs import FeatureSpec
from sparrow.kernels import Lookups


def weighted(
    lookups: Lookups,
    groups: Sequence[Group],
    features: Mapping[str, FeatureSpec],
    num_rows: int,
    weights: Mapping[str, jax.Array],
) -> Lookups:
    """Return the lookups of a stack with the gains of the features in ``weights`` computed anew.

    The gain of an entry is its weight, times its combiner's factor: 1, 1 / Σw or 1 / √Σw² over the bag. Ids without a
    row weigh nothing.
    """
    count = lookups.ids.shape[0]
    bags = jnp.arange(count) if lookups.bags is None else jnp.asarray(lookups.bags)
    ends = jnp.arange(lookups.num_bags + 1) if lookups.offsets is None else jnp.asarray(lookups.offsets)
    gains = jnp.ones(count, jnp.float32) if lookups.gains is None else jnp.asarray(lookups.gains)
    valid = (lookups.ids >= 0) & (lookups.ids < num_rows)
    first = 0
    for group in groups:
        width = len(group.features)
        for number, name in enumerate(group.features):
            if name not in weights:
                continue
            mine = (bags >= first) & (bags < first + width * group.num_bags) & ((bags - first) % width == number)
            of_feature = first + number + width * jnp.arange(group.num_bags)
            sizes = ends[of_feature + 1] - ends[of_feature]
            starts = jnp.cumsum(sizes) - sizes  # where each bag begins among the ids of the feature
            example = jnp.where(mine, (bags - first) // width, 0)
            place = jnp.where(mine, starts[example] + jnp.arange(count) - ends[bags], count)
            given = jnp.asarray(weights[name], jnp.float32)
            weight = jnp.where(valid, given.at[place].get(mode="fill", fill_value=0.0), 0.0)
            combiner = "sum" if features[name].is_ordered or lookups.bags is None else features[name].pooling
            if combiner != "sum":
                weight = weight * _factor(combiner, weight, jnp.where(mine, bags, lookups.num_bags), lookups.num_bags)
            gains = jnp.where(mine, weight, gains)
        first += width * group.num_bags
    return dataclasses.replace(lookups, gains=gains)


def _factor(combiner: str, weight: jax.Array, bags: jax.Array, num_bags: int) -> jax.Array:
    """(N,) 1 / Σw, or 1 / √Σw², of each entry's bag; 0 where the sum is 0."""
    summand = weight if combiner == "mean" else weight * weight
    total = jax.ops.segment_sum(summand, bags, num_bags)
    usable = total != 0
    total = jnp.where(usable, total, 1.0)  # inside of the root too: its derivative at 0 is infinite
    factor = jnp.where(usable, 1 / (total if combiner == "mean" else jnp.sqrt(total)), 0.0)
    return factor.at[bags].get(mode="fill", fill_value=0.0)
