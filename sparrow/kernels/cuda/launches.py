"""The launches of a sort, and the sums that an update needs memory for."""

from __future__ import annotations

import jax.numpy as jnp

from sparrow.kernels.cuda import source, tuning
from sparrow.kernels.cuda.plan import Argument, Call, number

CHUNK = 32  # positions, as in src/update.cu
MOST_ENTRIES = 2**30 - 1  # the sort counts with 30 bits
COUNT_THREADS, COUNT_AHEAD = 512, 8  # as in src/sort.cu


def sort_passes(num_rows: int, tuned: tuning.SortTuning) -> int:
    """Return the number of digits of the row numbers, including ``num_rows`` itself, which marks entries to ignore."""
    return -(-num_rows.bit_length() // tuned.sort_bits)


def add_sort(
    call: Call,
    program: int,
    tuned: tuning.SortTuning,
    cores: int,
    count: int,
    num_rows: int,
    ids: Argument,
    sources: Argument,
    entries: Argument,
) -> None:
    """Sort ``count`` entries by row into ``entries``, 8 bytes each; ids that are no rows come last.

    ``program`` is the number of the sort's program, ``sources`` the source of each entry; null: its own number.
    """
    passes, radix, tile = sort_passes(num_rows, tuned), 1 << tuned.sort_bits, tuned.sort_threads * tuned.sort_items
    tiles = -(-count // tile)
    other = call.scratch(8 * count) if passes > 1 else entries
    tickets, states = passes * radix, passes * radix + 64  # after the digits' counts
    size = 4 * (states + passes * tiles * radix)
    zeros = call.scratch(size)
    call.zero(zeros, size)
    blocks = min(2 * cores, -(-count // (COUNT_THREADS * COUNT_AHEAD)))
    arguments = [ids, number(count), number(num_rows), zeros]
    call.launch(program, source.SORT_COUNT, blocks, COUNT_THREADS, arguments)
    shared = source.sort_shared(tuned)
    buffers = [entries, other] if passes % 2 == 1 else [other, entries]
    for digit in range(passes):
        own = [zeros.at(4 * place) for place in (digit * radix, states + digit * tiles * radix, tickets + digit)]
        to = buffers[digit % 2]
        if digit == 0:
            kernel, arguments = source.SORT_FIRST, [ids, sources, to, number(count), number(num_rows), *own]
        else:
            shift = number(digit * tuned.sort_bits)
            kernel = source.SORT_NEXT
            arguments = [buffers[1 - digit % 2], to, number(count), number(num_rows), shift, *own]
        call.launch(program, kernel, tiles, tuned.sort_threads, arguments, shared)


def partial_sums(count: int) -> int:
    """Return the most sums of pieces and nodes of cut segments that ``count`` entries can leave.

    >>> partial_sums(32), partial_sums(33), partial_sums(32 * 32 + 1)
    (0, 4, 70)
    """
    places, size = 0, CHUNK
    while size < count:
        places += 2 * -(-count // size)
        size *= 32
    return places


ENTRY = jnp.uint32
"""Sorted entries are kept as pairs of 32-bit words: JAX has no 64-bit integers by default."""
