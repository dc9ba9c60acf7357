"""`Shards`: one axis of a mesh (or several), and how arrays are placed on it, split and exchanged."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from sparrow import fields
from sparrow.embedding.sharding.layout import MAX_SHARDS
from sparrow.registry import nearest

DTYPES: Final = ("float32", "bfloat16")
GATHERED: Final = 1 << 16
"""Bytes of all devices' parts up to which every device gets all of them, in one collective instead of two."""
EVERYWHERE = PartitionSpec()  # type: ignore[no-untyped-call]


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Shards:
    """The devices along ``axes`` of a mesh, in order; further axes of the mesh hold copies.

    Attributes:
      mesh: the mesh.
      axes: the names of its axes over which tables and batches are split, the slowest first.
      dtype: the dtype in which vectors travel: "float32", or "bfloat16".
    """

    mesh: Mesh
    axes: tuple[str, ...]
    dtype: str = "float32"

    @staticmethod
    def of(mesh: Mesh, axis: str | Sequence[str], dtype: str = "float32") -> Shards:
        """Return the shards along ``axis`` of ``mesh``, after checking both."""
        if not isinstance(mesh, Mesh):
            raise TypeError(f"mesh must be a jax.sharding.Mesh, such as jax.make_mesh((8,), ('data',)), got {mesh!r}")
        axes = (axis,) if isinstance(axis, str) else tuple(axis)
        for name in axes:
            if name not in mesh.axis_names:
                raise ValueError(f"the mesh has no axis '{name}': {nearest(str(name), mesh.axis_names)}")
        if not axes or len(set(axes)) < len(axes):
            raise ValueError(f"axis must name one axis of the mesh, or several different ones, got {axis!r}")
        if any(mesh.axis_types[mesh.axis_names.index(name)] == jax.sharding.AxisType.Manual for name in axes):
            raise ValueError(
                f"axis {axis!r} of the mesh is manual; an Embedder splits its own arrays: give the outer mesh"
            )
        fields.choice("exchange_dtype", dtype, DTYPES)
        shards = Shards(mesh, axes, dtype)
        if shards.count > MAX_SHARDS:
            raise ValueError(f"tables are split over at most {MAX_SHARDS} devices, got {shards.count}")
        return shards

    @functools.cached_property
    def count(self) -> int:
        return math.prod(self.mesh.shape[name] for name in self.axes)

    @functools.cached_property
    def local(self) -> tuple[int, ...]:
        """The shards that this process holds, and whose part of a batch it feeds."""
        at = [self.mesh.axis_names.index(name) for name in self.axes]
        others = [i for i in range(self.mesh.devices.ndim) if i not in at]
        devices = self.mesh.devices.transpose(*at, *others).reshape(self.count, -1)
        mine = jax.process_index()
        return tuple(i for i, copies in enumerate(devices) if any(d.process_index == mine for d in copies))

    @property
    def processes(self) -> int:
        """The number of processes with devices of the mesh."""
        return len({device.process_index for device in self.mesh.devices.flat})

    @property
    def split(self) -> PartitionSpec:
        """The first axis of an array over the shards."""
        return PartitionSpec(self.axes)  # type: ignore[no-untyped-call]

    @functools.cached_property
    def split_sharding(self) -> NamedSharding:
        """Arrays whose first axis is split over the shards."""
        return NamedSharding(self.mesh, self.split)

    @functools.cached_property
    def everywhere(self) -> NamedSharding:
        """The sharding of arrays that every device holds completely."""
        return NamedSharding(self.mesh, EVERYWHERE)

    @property
    def index(self) -> jax.Array:
        """The number of this shard, inside of `each`."""
        return jax.lax.axis_index(self.axes)

    def each(self, f: Callable[..., Any], in_specs: Any, out_specs: Any) -> Callable[..., Any]:
        """``f`` on every shard with its own parts of the arguments, which axes of explicit type are resharded for."""
        mapped = jax.shard_map(f, mesh=self.mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)
        if jax.sharding.AxisType.Explicit not in self.mesh.axis_types:
            return mapped

        def placed(spec: PartitionSpec, tree: Any) -> Any:
            reshard: Any = jax.sharding.reshard
            return jax.tree.map(lambda leaf: reshard(leaf, NamedSharding(self.mesh, spec)), tree)

        def call(*arguments: Any) -> Any:
            specs = (in_specs,) * len(arguments) if isinstance(in_specs, PartitionSpec) else in_specs
            return mapped(*jax.tree.map(placed, specs, arguments, is_leaf=lambda x: isinstance(x, PartitionSpec)))

        return call

    def swap(self, array: jax.Array) -> jax.Array:
        """Inside of `each`: send ``array[i]`` to shard i; return the parts that came, in the order of the shards.

        The only exchange between devices, but for sums of numbers. A ragged form would replace it here.
        """
        swapped: jax.Array = jax.lax.all_to_all(array, self.axes, 0, 0, tiled=True)  # type: ignore[no-untyped-call]
        return swapped

    def send(self, vectors: jax.Array) -> jax.Array:
        """`swap` of activations or gradients, in `dtype`; numbers of 16 bits stay as they are."""
        return self.swap(vectors.astype(self.dtype) if vectors.dtype == jnp.float32 else vectors)

    def total(self, numbers: jax.Array) -> jax.Array:
        """Inside of `each`: the sum of all shards' numbers, (any,), in the order of the shards; the same on each."""
        gather: Any = jax.lax.all_gather
        dtype = jnp.promote_types(numbers.dtype, jnp.float32)
        if numbers.nbytes * self.count <= GATHERED:
            parts: jax.Array = gather(numbers, self.axes)
            return parts.sum(axis=0, dtype=dtype)
        padded = jnp.pad(numbers, (0, -numbers.size % self.count)).reshape(self.count, -1)
        own = self.swap(padded).sum(axis=0, dtype=dtype)
        total: jax.Array = gather(own, self.axes, tiled=True)
        return total[: numbers.size]

    def put_parts(self, arrays: Any) -> Any:
        """Return a tree of arrays on the mesh from host arrays with the concatenated parts of this process's shards."""
        if self.processes == 1:
            return jax.device_put(arrays, self.split_sharding)
        put: Any = jax.make_array_from_process_local_data
        return jax.tree.map(lambda array: put(self.split_sharding, array), arrays)

    def put_everywhere(self, tree: Any) -> Any:
        """Return a tree of arrays, the same in every process, on every device of the mesh."""
        if self.processes == 1:
            return jax.device_put(tree, self.everywhere)
        return jax.tree.map(lambda leaf: _everywhere(leaf, self.everywhere), tree)

    def put_missing(self, tree: Any) -> Any:
        """Return a tree of arrays on every device of this mesh; arrays on the mesh, and tracers, stay."""
        devices = set(self.mesh.devices.flat)

        def there(leaf: Any) -> bool:
            return isinstance(leaf, jax.Array) and (
                isinstance(leaf, jax.core.Tracer) or leaf.sharding.device_set == devices
            )

        return jax.tree.map(lambda leaf: leaf if there(leaf) else self.put_everywhere(leaf), tree)


def from_host(array: Any, sharding: NamedSharding) -> jax.Array:
    """Return a host array that every process holds completely, as its devices need it."""
    return jax.make_array_from_callback(np.shape(array), sharding, lambda index: array[index])


def _everywhere(leaf: Any, sharding: NamedSharding) -> jax.Array:
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        numbers = from_host(np.asarray(jax.random.key_data(leaf)), sharding)
        key: jax.Array = jax.random.wrap_key_data(numbers, impl=jax.random.key_impl(leaf))
        return key
    return from_host(np.asarray(leaf), sharding)
