"""`PackedBatch`: a batch as the jitted methods take it; from the bags of a stack to its features, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from sparrow.embedding.dynamic.assigning import Before
from sparrow.embedding.sequences import Jagged
from sparrow.embedding.sharding.shards import Shards
from sparrow.embedding.specs import FeatureSpec
from sparrow.embedding.stacking import Stack
from sparrow.kernels import Lookups
from sparrow.registry import nearest


class Group(NamedTuple):
    """Features of one stack with one batch size: bag ``b * len(features) + i`` is feature i of example b.

    Features of single ids have a group, and features of bags another one.
    """

    features: tuple[str, ...]
    num_bags: int


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PackedBatch:
    """A batch as `Embedder.pack` makes it: a pytree of arrays whose shapes depend on the batch's sizes only.

    Attributes:
      lookups: by stack.
      groups: by stack.
      raw: (entries, 2) uint32, the raw ids of dynamic tables, lower and upper halves, by stack; `Embedder.assign` takes
        them. Until then, the stack's ``lookups.ids`` are the number of each entry's table in the stack, -1 for none.
      cached: the stacks in host memory whose ``lookups.ids`` are slots of the cache, as `Embedder.assign` gives them.
      undo: by stack of dynamic tables, what it was before `Embedder.assign`.
      offsets: by ordered feature, (batch + 1,) int32: where each sequence begins and ends among the rows.
      shards: the devices that the sequences of ordered features are split over; None: one device.
    """

    lookups: dict[str, Lookups]
    groups: tuple[tuple[str, tuple[Group, ...]], ...] = dataclasses.field(metadata={"static": True})
    raw: dict[str, Any] = dataclasses.field(default_factory=dict)
    offsets: dict[str, Any] = dataclasses.field(default_factory=dict)
    shards: Shards | None = dataclasses.field(metadata={"static": True}, default=None)
    cached: tuple[str, ...] = dataclasses.field(metadata={"static": True}, default=())
    undo: dict[str, Before] = dataclasses.field(default_factory=dict)

    def jagged(self, acts: Mapping[str, jax.Array]) -> dict[str, Jagged]:
        """Return the activations of the ordered features as sequences; `Jagged.pad` pads them."""
        return {name: Jagged(acts[name], offsets, self.shards) for name, offsets in self.offsets.items()}


class Fetched(NamedTuple):
    """A batch on a mesh, exchanged, and by stack the vectors that the owners of its rows sent, as they were then."""

    batch: PackedBatch
    vectors: dict[str, jax.Array]


def activations(groups: Sequence[Group], rows: jax.Array) -> dict[str, jax.Array]:
    """Activations by feature, (batch, dim) each, from the pooled rows of a stack's bags, (num_bags, dim)."""
    made: dict[str, jax.Array] = {}
    start, dim = 0, rows.shape[1]
    for group in groups:
        size = len(group.features) * group.num_bags
        # Slices of columns: a model that concatenates its features again gets this very array, because XLA
        # joins neighboring slices to one. It does not see through slices of a middle axis.
        block = rows[start : start + size].reshape(group.num_bags, len(group.features) * dim)
        made |= {name: block[:, i * dim : (i + 1) * dim] for i, name in enumerate(group.features)}
        start += size
    return made


def bag_grads(
    groups: Sequence[Group], act_grads: Mapping[str, jax.Array], limits: Mapping[str, float | None], dim: int
) -> jax.Array:
    """Return the gradient of each bag of a stack, (num_bags, dim), each within its feature's limit."""
    blocks = [
        jnp.concatenate([_clamped(act_grads[name], limits[name]) for name in group.features], axis=1).reshape(-1, dim)
        for group in groups
    ]
    return blocks[0] if len(blocks) == 1 else jnp.concatenate(blocks)


def _clamped(grad: jax.Array, limit: float | None) -> jax.Array:
    """Return the gradient within its table's limits. One in 16 bits stays so: the update reads half as much."""
    grad = jnp.asarray(grad)
    if limit is None and grad.dtype in (jnp.bfloat16, jnp.float16):
        return grad
    grad = grad.astype(jnp.float32)
    return grad if limit is None else jnp.clip(grad, -limit, limit)


def check_batch(batch: Any, stacks: Sequence[Stack], *, is_on_mesh: bool) -> None:
    """Raise an error unless the batch is packed for these stacks and ready for the device."""
    if not isinstance(batch, PackedBatch):
        raise TypeError(f"pack the batch first: emb.pack(inputs); got {type(batch).__name__}")
    if [name for name, _ in batch.groups] != [stack.name for stack in stacks]:
        raise ValueError("this batch was packed by another Embedder; use this one's pack")
    if any(isinstance(lookups, Lookups) == is_on_mesh for lookups in batch.lookups.values()):
        raise ValueError("this batch was packed by an Embedder on other devices; use this one's pack")


def check_assigned(batch: PackedBatch, stacks: Iterable[Stack]) -> None:
    """Raise ValueError where ids of dynamic tables have no rows, or rows in host memory are not on the device."""
    if batch.raw or any(stack.apart and stack.name not in batch.cached for stack in stacks):
        raise ValueError(
            "the batch has ids of dynamic tables, or of tables in host memory, without rows on the device: call "
            "state, batch = emb.assign(state, batch) at the head of the step"
        )


def check_act_grads(expected: Mapping[str, tuple[int, int]], act_grads: Mapping[str, Any]) -> None:
    """Raise ValueError unless every feature has a gradient of the shape ``expected``."""
    for name in act_grads:
        if name not in expected:
            raise ValueError(f"act_grads has an unknown feature '{name}': {nearest(str(name), expected)}")
    for name, shape in expected.items():
        if name not in act_grads:
            raise ValueError(f"act_grads lacks the feature '{name}'")
        if jnp.shape(act_grads[name]) != shape:
            raise ValueError(f"act_grads['{name}'] must have the shape {shape}, got {jnp.shape(act_grads[name])}")


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
