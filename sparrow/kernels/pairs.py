"""Dot products of all pairs of an example's vectors: by XLA, or on an NVIDIA GPU's tensor cores by kernels of one pass.

XLA writes all products of an example as a matrix and reads the pairs from it, and in the other direction writes the
matrix of the pairs' gradients; the kernels keep both matrices in registers. They take the vectors in two arrays, so
that the rows of a lookup need not be copied beside a vector of another origin.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType

from sparrow.kernels.cuda import machine, pairs
from sparrow.kernels.device_kind import platform

Gradients = tuple[jax.Array, jax.Array | None]


@jax.custom_vjp
def pairwise_dots(first: jax.Array, rest: jax.Array | None = None) -> jax.Array:
    """``out[b] = [<v_i, v_j> for i < j]``, the pairs in order of i, then j.

    Args:
      first: (batch, n, dim) the vectors of each example.
      rest: (batch, m, dim) more of them, after ``first``; None: there are none.

    Returns:
      (batch, pairs).
    """
    dots: jax.Array = _on_this_device(_dots, pairs.dots, first, rest)
    return dots


def _forward(first: jax.Array, rest: jax.Array | None) -> tuple[jax.Array, Gradients]:
    return pairwise_dots(first, rest), (first, rest)


def _backward(held: Gradients, grads: jax.Array) -> Gradients:
    first, rest = held
    gradients: Gradients = _on_this_device(_gradient, pairs.gradient, first, rest, grads)
    return gradients


pairwise_dots.defvjp(_forward, _backward)


def _on_this_device(by_xla: Any, by_kernel: Any, first: jax.Array, rest: jax.Array | None, *more: jax.Array) -> Any:
    """Call ``by_kernel`` where the kernels can run, else ``by_xla``."""
    gpu = _machine(first, rest)
    if gpu is None:
        return by_xla(first, rest, *more)
    by_kernel = functools.partial(by_kernel, gpu)
    if platform() == "cpu":  # the emulation of the tests
        return by_kernel(first, rest, *more)
    return jax.lax.platform_dependent(first, rest, *more, cuda=by_kernel, default=by_xla)


def _machine(first: jax.Array, rest: jax.Array | None) -> machine.Gpu | None:
    """Return the GPU, or None where the kernels cannot run.

    XLA does not split a kernel's work over devices: it would bring all vectors of a mesh to each of them.
    """
    batch, _, dim = first.shape
    parts = [first] if rest is None else [first, rest]
    count = sum(part.shape[1] for part in parts)
    if batch == 0 or len({part.dtype for part in parts}) > 1 or any(map(is_split, parts)):
        return None
    if pairs.unsupported(count, dim, first.dtype.name) is not None:
        return None
    return machine.if_any()


def is_split(array: jax.Array) -> bool:
    """Whether XLA may split ``array`` over several devices; inside ``jax.shard_map`` it does not."""
    mesh = jax.typeof(array).sharding.mesh
    return not mesh.empty and mesh.size > 1 and any(kind != AxisType.Manual for kind in mesh.axis_types)


def _joined(first: jax.Array, rest: jax.Array | None) -> jax.Array:
    return first if rest is None else jnp.concatenate([first, rest], axis=1)


def _dots(first: jax.Array, rest: jax.Array | None) -> jax.Array:
    vectors = _joined(first, rest)
    i, j = np.triu_indices(vectors.shape[1], k=1)
    return jnp.einsum("bid,bjd->bij", vectors, vectors)[:, i, j]


def _gradient(first: jax.Array, rest: jax.Array | None, grads: jax.Array) -> Gradients:
    """``grad v_i = Σ_j grad of the pair {i, j} * v_j``.

    JAX would scatter the pairs' gradients into a matrix, which a CPU does one number at a time; reading them from
    where they are is several times faster.
    """
    vectors = _joined(first, rest)
    count = vectors.shape[1]
    i, j = np.triu_indices(count, k=1)
    pair = np.full((count, count), len(i))  # the diagonal reads the zero that is put behind the pairs
    pair[i, j] = pair[j, i] = np.arange(len(i))
    of_pair = jnp.pad(grads, ((0, 0), (0, 1)))[:, pair]  # (batch, count, count)
    result = jnp.einsum("bij,bjd->bid", of_pair, vectors)
    own = first.shape[1]
    return result[:, :own].astype(first.dtype), None if rest is None else result[:, own:].astype(rest.dtype)
