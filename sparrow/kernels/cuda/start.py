"""First values of rows on GPUs, without a loop whose end the host waits for."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from sparrow.kernels.cuda import machine, source
from sparrow.kernels.cuda.plan import Argument, Call, number, table_and_slots
from sparrow.kernels.ids.types import Changed

_THREADS = 256  # as in src/start.cu
_BLOCKS = 8  # a multiprocessor


def is_known() -> bool:
    """Return whether JAX draws random bits as the kernel does."""
    return bool(jax.config.jax_threefry_partitionable) and jax.config.jax_default_prng_impl == "threefry2x32"  # type: ignore[attr-defined]


def start(
    arrays: Sequence[jax.Array],
    seed: jax.Array,
    fresh: Changed,
    hashes: npt.NDArray[np.uint32],
    limits: npt.NDArray[np.float32],
    slots: npt.NDArray[np.float32],
) -> tuple[list[jax.Array], list[jax.Array]]:
    """Return the arrays with the rows of ``fresh`` at their start, and these rows as they were before.

    Values are between two limits, slots at one number.

    Args:
      arrays: a table and its slots; in place where they are donated.
      seed: () uint32.
      fresh: the rows, a segment for each table.
      hashes: (tables,), of their names.
      limits: (tables, 2), the lowest and the highest value.
      slots: (tables, slots), their first numbers.
    """
    order = sorted(range(len(arrays) - 1), key=lambda i: -arrays[i + 1].ndim)  # vectors come first
    words = np.concatenate([limits.view(np.uint32), np.ascontiguousarray(slots[:, order]).view(np.uint32)], axis=1)
    call = Call()
    held = [call.in_place(array) for array in arrays]
    before = [call.output((len(fresh.rows), *array.shape[1:]), array.dtype) for array in arrays]
    tables = jnp.asarray(np.concatenate([hashes[:, None], words], axis=1))
    given = [call.input(array) for array in (fresh.rows, fresh.ids, fresh.ends, tables, seed)]
    sizes = [number(len(hashes)), number(arrays[0].shape[0])]
    made = _launched(call, source.START, arrays, [held, before], [*given, *sizes])
    return made[: len(arrays)], made[len(arrays) :]


def put_back(
    arrays: Sequence[jax.Array], before: Sequence[jax.Array], fresh: Changed, when: jax.Array
) -> list[jax.Array]:
    """Return the arrays as they were before `start`, where ``when`` is true."""
    call = Call()
    both = [[call.in_place(array) for array in arrays], [call.input(array) for array in before]]
    given = [call.input(array) for array in (fresh.rows, fresh.ends, when.astype(jnp.uint32))]
    sizes = [number(len(fresh.ends)), number(arrays[0].shape[0])]
    return _launched(call, source.PUT_BACK, arrays, both, [*given, *sizes])


def _launched(
    call: Call, kernel: int, arrays: Sequence[jax.Array], structs: list[list[Argument]], others: list[Argument]
) -> list[jax.Array]:
    are_vectors = [array.ndim == 2 for array in arrays]
    for held in reversed(structs):
        others = [*table_and_slots(held, are_vectors), *others]
    gpu = machine.here()
    call.launch(0, kernel, _BLOCKS * gpu.cores, _THREADS, others)
    module = source.start_module(
        arrays[0].shape[1], str(arrays[0].dtype), sum(are_vectors[1:]), are_vectors.count(False)
    )
    return call.bind(machine.load(gpu, [module]))
