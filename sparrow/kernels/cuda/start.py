"""First values of rows on GPUs, without a loop whose end the host waits for."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from sparrow.kernels import cuda
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
) -> list[jax.Array]:
    """Return the arrays with the rows of ``fresh`` at their start: values between two limits, slots at one number.

    Args:
      arrays: a table and its slots; in place where they are donated.
      seed: () uint32.
      fresh: the rows, a segment for each table.
      hashes: (tables,), of their names.
      limits: (tables, 2), the lowest and the highest value.
      slots: (tables, slots), their first numbers.
    """
    from sparrow.kernels.cuda import programs, source
    from sparrow.kernels.cuda.machine import TARGET
    from sparrow.kernels.cuda.plan import NOTHING, Call, number, together

    machine = cuda.machine_if_any()
    if machine is None:
        raise RuntimeError(f"backend 'cuda' cannot run: {cuda.unavailable()}")
    vectors = [i for i, array in enumerate(arrays) if array.ndim == 2 and i > 0]
    numbers = [i for i, array in enumerate(arrays) if array.ndim == 1]
    order = [i - 1 for i in (*vectors, *numbers)]
    words = np.concatenate([limits.view(np.uint32), np.ascontiguousarray(slots[:, order]).view(np.uint32)], axis=1)
    call = Call()
    held = [call.in_place(array) for array in arrays]
    to = [held[0], *([held[i] for i in vectors] or [NOTHING]), *([held[i] for i in numbers] or [NOTHING])]
    tables = jnp.asarray(np.concatenate([hashes[:, None], words], axis=1))
    given = [call.input(array) for array in (fresh.rows, fresh.ids, fresh.ends, tables, seed)]
    sizes = [number(len(hashes)), number(arrays[0].shape[0])]
    call.launch(0, source.START, _BLOCKS * machine.cores, _THREADS, [*together(to), *given, *sizes])
    module = source.start_module(arrays[0].shape[1], str(arrays[0].dtype), len(vectors), len(numbers))
    return call.bind(TARGET, programs.load(machine, [module]))
