"""The two device operations of jax-tpu-embedding's Adam in plain JAX, so that its programs run on a CPU.

Everything else stays its own: specs, preprocessing on the host (C++), stacking, hyper-parameters. Imported for its
effect, before the program. One device that poses as a TPU v5p with four SparseCores.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.interpreters import mlir
from jax_tpu_embedding.sparsecore.lib.core.primitives import (
    sparse_dense_matmul_csr,
    sparse_dense_matmul_grad_with_adam,
)
from jax_tpu_embedding.sparsecore.utils import utils

CORES = 4
utils.NUM_SC_PER_DEVICE_MAP["cpu"] = CORES


def entries(
    pointers: jax.Array, ids: jax.Array, samples: jax.Array, gains: jax.Array, rows: int, batch: int
) -> tuple[jax.Array, ...]:
    """Return row, example, gain and "in use" of each entry of the buffers; all are 0 where it only fills up.

    Each core has a buffer; in it, the entries for each core that holds rows, from a multiple of 8 on.
    """
    ends = pointers.reshape(CORES, -1)[:, :CORES]  # (core, holder)
    starts = jnp.pad((ends[:, :-1] + 7) // 8 * 8, ((0, 0), (1, 0)))
    at = jnp.arange(ids.size // CORES)
    inside = (at >= starts[:, :, None]) & (at < ends[:, :, None])  # (core, holder, entry)
    used, holder = inside.any(axis=1), inside.argmax(axis=1)
    row = holder * (rows // CORES) + ids.reshape(CORES, -1)
    example = jnp.arange(CORES)[:, None] * (batch // CORES) + samples.reshape(CORES, -1)
    parts = (row, example, gains.reshape(CORES, -1), used)
    return tuple(jnp.where(used, part, 0).reshape(-1) for part in parts)


def lookup(
    pointers: jax.Array,
    ids: jax.Array,
    samples: jax.Array,
    gains: jax.Array,
    minibatches: jax.Array,
    table: jax.Array,
    *,
    device_batch_size: int,
    **options: Any,
) -> jax.Array:
    """``out[example] = Σ gain * table[row]``."""
    row, example, gain, _ = entries(pointers, ids, samples, gains, table.shape[0], device_batch_size)
    return jnp.zeros((device_batch_size, table.shape[1])).at[example].add(gain[:, None] * table[row])


def adam(
    pointers: jax.Array,
    ids: jax.Array,
    samples: jax.Array,
    gains: jax.Array,
    minibatches: jax.Array,
    table: jax.Array,
    momentum: jax.Array,
    velocity: jax.Array,
    grads: jax.Array,
    alpha: jax.Array,
    beta1: jax.Array,
    beta2: jax.Array,
    eps: jax.Array,
    **options: Any,
) -> tuple[jax.Array, ...]:
    """Sum the gradients of each row, then update the rows that the batch touches."""
    row, example, gain, used = entries(pointers, ids, samples, gains, table.shape[0], grads.shape[0])
    grad = jnp.zeros_like(table).at[row].add(gain[:, None] * grads[example])
    touched = jnp.zeros(table.shape[0], used.dtype).at[row].max(used)[:, None] > 0
    new_momentum = momentum + (1 - beta1) * (grad - momentum)
    new_velocity = velocity + (1 - beta2) * (grad * grad - velocity)
    new_table = table - alpha * new_momentum / (jnp.sqrt(new_velocity) + eps)
    pairs = ((new_table, table), (new_momentum, momentum), (new_velocity, velocity))
    return tuple(jnp.where(touched, new, old) for new, old in pairs)


for primitive, function in (
    (sparse_dense_matmul_csr.tpu_sparse_dense_matmul_csr_primitive, lookup),
    (sparse_dense_matmul_grad_with_adam.tpu_sparse_dense_matmul_grad_with_adam_primitive, adam),
):
    mlir.register_lowering(
        primitive, mlir.lower_fun(function, multiple_results=primitive.multiple_results), platform="cpu"
    )
