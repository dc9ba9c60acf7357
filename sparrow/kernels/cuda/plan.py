"""The plan of one FFI call: launches and memsets over its buffers, as the integers that ``src/shim.cc`` reads.

Everything in it is known when JAX traces, because all shapes are static. An operation is one of

  LAUNCH program kernel grid block shared side count (kind value offset) * count
  ZERO kind value offset size side
  FORK          later work on the side stream waits for the main stream
  JOIN          later work on the main stream waits for the side stream
  MAP kind value offset dim heads tokens rows     a tensor map; an argument of kind MAPPED has its number
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sparrow.kernels.types import stand_in

TARGET = "sparrow_cuda"  # the handler of src/shim.cc
LAUNCH, ZERO, FORK, JOIN, MAP = range(1, 6)
MAIN, SIDE = range(2)  # streams
INPUT, OUTPUT, NUMBER, NULL, MAPPED = 0, 1, 2, 3, 4
CONTINUES = 16
ALIGNMENT = 256  # bytes, of the parts of the scratch buffer


@dataclasses.dataclass(frozen=True)
class Argument:
    """A kernel's argument: a buffer with an offset in bytes, a number, or null.

    ``CONTINUES`` added to ``kind`` makes it one more field of the parameter before it.
    """

    kind: int
    value: int = 0
    offset: int = 0

    def at(self, offset: int) -> Argument:
        """Return the place ``offset`` bytes after this one."""
        return dataclasses.replace(self, offset=self.offset + offset)


NOTHING = Argument(NULL)


def number(value: int) -> Argument:
    """Return an unsigned 32-bit number."""
    return Argument(NUMBER, value)


def real(value: float) -> Argument:
    """Return a float32."""
    return Argument(NUMBER, int(np.float32(value).view(np.uint32)))


def together(arguments: Sequence[Argument]) -> list[Argument]:
    """Several pointers as one parameter, a struct."""
    first, *others = arguments or [NOTHING]
    return [first, *(dataclasses.replace(one, kind=one.kind + CONTINUES) for one in others)]


def table_and_slots(held: Sequence[Argument], are_vectors: Sequence[bool]) -> list[Argument]:
    """Return arrays as one parameter: the table, the slots with vectors, those with a number per row; null for none."""
    kinds = ([held[i] for i in range(1, len(held)) if are_vectors[i] == kind] for kind in (True, False))
    return together([held[0], *(one for own in kinds for one in own or [NOTHING])])


class Call:
    """The buffers and the operations of one FFI call."""

    def __init__(self) -> None:
        self.inputs: list[jax.Array] = []
        self.outputs: list[jax.ShapeDtypeStruct] = []
        self.aliases: dict[int, int] = {}
        self.operations: list[list[int]] = []
        self.stream = MAIN
        self._scratch_size = 0
        self._maps = 0

    def input(self, array: jax.Array | None) -> Argument:
        """Return an array that is read."""
        if array is None:
            return NOTHING
        self.inputs.append(array)
        return Argument(INPUT, len(self.inputs) - 1)

    def output(self, shape: tuple[int, ...], dtype: Any) -> Argument:
        """Return an array that is written."""
        self.outputs.append(stand_in(shape, dtype))
        return Argument(OUTPUT, len(self.outputs) - 1)

    def in_place(self, array: jax.Array) -> Argument:
        """Return an array that is read and written."""
        self.input(array)
        result = self.output(array.shape, array.dtype)
        self.aliases[len(self.inputs) - 1] = result.value
        return result

    def scratch(self, size: int) -> Argument:
        """``size`` bytes of working memory. Its buffer is the last output, whose number is filled in at the end."""
        offset = self._scratch_size
        self._scratch_size += -(-size // ALIGNMENT) * ALIGNMENT
        return Argument(OUTPUT, -1, offset)

    def launch(
        self, program: int, kernel: int, grid: int, block: int, arguments: Sequence[Argument], shared: int = 0
    ) -> None:
        flat = [x for one in arguments for x in (one.kind, one.value, one.offset)]
        head = [LAUNCH, program, kernel, grid, block, shared, self.stream, len(arguments)]
        self.operations.append([*head, *flat])

    def map(self, array: Argument, dim: int, heads: int, tokens: int, rows: int) -> Argument:
        """Return a tensor map of ``(tokens, heads, dim)`` bfloat16: boxes of ``rows`` tokens, a head, 64 numbers."""
        self.operations.append([MAP, array.kind, array.value, array.offset, dim, heads, tokens, rows])
        self._maps += 1
        return Argument(MAPPED, self._maps - 1)

    def zero(self, at: Argument, size: int) -> None:
        self.operations.append([ZERO, at.kind, at.value, at.offset, size, self.stream])

    def fork(self) -> None:
        """Send the operations from here to `main` to the side stream, until `join`."""
        self._switch(FORK, SIDE)

    def main(self) -> None:
        """Send the operations from here on to the main stream, in parallel to the side stream."""
        self.stream = MAIN

    def join(self) -> None:
        """Wait for the side stream."""
        self._switch(JOIN, MAIN)

    def _switch(self, operation: int, stream: int) -> None:
        self.operations.append([operation])
        self.stream = stream

    def bind(self, keys: Sequence[int], vmap_method: str | None = None) -> list[jax.Array]:
        """Make the call, of the programs with ``keys``; the results are the outputs, without the scratch buffer.

        ``vmap_method``: as of ``jax.ffi.ffi_call``; None: the call cannot be mapped by ``jax.vmap``.
        """
        wanted = len(self.outputs)
        if self._scratch_size:
            self.output((self._scratch_size,), jnp.uint8)
        plan = [x for operation in self.operations for x in _with_scratch(operation, wanted)]
        call = jax.ffi.ffi_call(TARGET, self.outputs, input_output_aliases=self.aliases, vmap_method=vmap_method)
        results: Any = call(*self.inputs, keys=np.array(keys, np.int64), plan=np.array(plan, np.int64))
        return list(results)[:wanted]


def _with_scratch(operation: list[int], scratch: int) -> list[int]:
    """Return ``operation`` with the number of the scratch buffer instead of -1."""
    result = list(operation)
    places = range(8, len(result), 3) if result[0] == LAUNCH else (1,) if result[0] == ZERO else ()
    for at in places:
        if result[at] % CONTINUES == OUTPUT and result[at + 1] == -1:
            result[at + 1] = scratch
    return result
