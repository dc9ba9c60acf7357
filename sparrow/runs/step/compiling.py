"""`Compiled`: a jitted function of batches that keeps a few programs, and logs each one it compiles."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

import jax
import numpy as np

from sparrow.feed import Feed
from sparrow.serving import KeptPrograms

CUBLAS: Final = {"xla_gpu_enable_triton_gemm": False}
"""All matrix products go to cuBLAS, which adds the bias and takes the maximum, too."""
KEPT: Final = 8
"""Programs that stay in memory, one per combination of sizes: sizes only grow, and older ones are not needed again."""


class Compiled:
    """A function of a batch, compiled once for each combination of sizes.

    Attributes:
      programs: the number of compiled programs.
      log: receives a line for each program after the first; None: nothing is logged.
      compiling: returns a context for the call that compiles another program.
    """

    def __init__(self, name: str, function: Callable[..., Any], batch: int, donate: Sequence[int] = ()) -> None:
        """Compile nothing yet.

        ``batch`` is the number of the argument with the batch, or the batches; ``donate`` has the donated arguments.
        """
        options = compiler_options()
        self._function: Any = jax.jit(function, donate_argnums=tuple(donate), compiler_options=options)
        self._name, self._batch = name, batch
        self._kept = KeptPrograms(self._function, KEPT)
        self.programs = 0
        self.log: Callable[[str], None] | None = None
        self.compiling: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext

    def __call__(self, *arguments: Any) -> Any:
        leaves, structure = jax.tree.flatten(arguments[self._batch])
        if self._kept.is_new((structure, *map(np.shape, leaves))):
            self._note(arguments[self._batch])
            with self.compiling():
                return self._function(*arguments)
        return self._function(*arguments)

    def lower(self, *arguments: Any) -> Any:
        """Return the function for these arguments, which may be shapes, as `jax.jit` lowers it; nothing is kept."""
        return self._function.lower(*arguments)

    def _note(self, batch: Feed | tuple[Feed, ...]) -> None:
        self.programs += 1
        if self.log is None or self.programs == 1:
            return
        feeds = batch if isinstance(batch, tuple) else (batch,)
        sizes = " + ".join(f"{feed.size:,}" for feed in feeds)
        held = {name: jax.tree.leaves(lookups)[0].size for name, lookups in feeds[0].shapes.packed.lookups.items()}
        ids = ", ".join(f"{name} {count:,}" for name, count in held.items())
        self.log(f"compile {self._name} program {self.programs}: batches of {sizes} examples; capacity for ids: {ids}")


def compiler_options() -> dict[str, Any] | None:
    """Return the options for the devices of this process; None: XLA's own choices, as on a CPU."""
    version = str(jax.devices()[0].client.platform_version)
    return options_for(version)


def options_for(platform_version: str) -> dict[str, Any] | None:
    """Return the options for a platform with that name; only CUDA has some, and only where XLA knows them.

    >>> options_for("cpu") is None
    True
    """
    return dict(CUBLAS) if "cuda" in platform_version.lower() and is_known(tuple(CUBLAS.items())) else None


@functools.cache
def is_known(options: tuple[tuple[str, Any], ...]) -> bool:
    """Return whether the XLA in use takes the options: names come and go with its versions."""
    try:
        jax.jit(lambda: 0, compiler_options=dict(options)).lower().compile()
    except (ValueError, TypeError, jax.errors.JaxRuntimeError):
        return False
    return True
