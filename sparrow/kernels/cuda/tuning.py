"""The numbers that decide speed and nothing else, found by measurement on an H200 (benchmarks/NOTES.md).

Each field is a macro of the kernels, in capitals.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from sparrow.kernels.cuda.emit import by_element
from sparrow.kernels.types import RowStep

HALVES = ("bfloat16", "float16")
LONG = 512
"""Longer rows are updated by slices where the rule allows it: with its slots, such a row would not fit in registers."""


@dataclasses.dataclass(frozen=True)
class SortTuning:
    """How entries are sorted (``src/sort.cu``)."""

    sort_bits: int = 9
    sort_threads: int = 512
    sort_items: int = 16
    sort_blocks: int = 2
    lookback: int = 8


@dataclasses.dataclass(frozen=True)
class LookupTuning:
    """How bags are pooled (``src/lookup.cu``)."""

    vector: int
    lanes: int = 0
    warps: int = 4
    min_blocks: int = 1
    at_once: int = 8
    bags: int = 1
    slices: int = 1


@dataclasses.dataclass(frozen=True)
class UpdateTuning:
    """How rows are updated (``src/update.cu``)."""

    vector: int
    lanes: int = 0
    task: int = 1
    warps: int = 4
    min_blocks: int = 8
    ones: int = 2
    row_hint: int = 1
    slices: int = 1


@dataclasses.dataclass(frozen=True)
class IdsTuning:
    """How unknown ids are put in order (``src/ids_ask.cu``)."""

    ask_warps: int
    held_counters: int


@dataclasses.dataclass(frozen=True)
class PairsTuning:
    """How pairs of vectors are multiplied (``src/pairs.cu``)."""

    warps: int = 4
    min_blocks: int = 5
    ahead: int = 4
    ahead_gradient: int = 2


@dataclasses.dataclass(frozen=True)
class MmaTuning:
    """How attention is computed by warps (``src/attention_mma.cu``)."""

    warps: int
    mt: int
    bn: int
    nc: int
    minb: int = 2

    @property
    def rows(self) -> int:
        """Rows that a thread block keeps."""
        return 16 * self.mt * self.warps

    @property
    def threads(self) -> int:
        return 32 * self.warps

    def shared(self, dim: int, kept: int) -> int:
        """Bytes of shared memory, with ``kept`` arrays of kept rows."""
        return (kept * self.rows + 4 * self.bn) * dim * 2


@dataclasses.dataclass(frozen=True)
class WgmmaTuning:
    """How attention is computed by warpgroups (``src/attention_wgmma.cu``)."""

    wg: int
    bn: int
    stages: int
    minb: int
    keeps: int
    regc: int
    regp: int

    @property
    def rows(self) -> int:
        return 64 * self.wg

    @property
    def threads(self) -> int:
        """Threads of a block: one warpgroup loads."""
        return 128 * self.wg + 128

    def shared(self, dim: int, kept: int) -> int:
        return (kept * self.rows * self.keeps + self.stages * 2 * self.bn) * dim * 2 + 1024 + 512


@dataclasses.dataclass(frozen=True)
class FloatTuning:
    """How attention is computed in float32 (``src/attention_float.cu``)."""

    rows: int
    bn: int
    threads: int

    def shared(self, dim: int, kept: int) -> int:
        return 4 * ((kept * self.rows + 2 * self.bn) * (dim + 4) + self.rows * (self.bn + 4))


@dataclasses.dataclass(frozen=True)
class NormTuning:
    """How rows are normalized (``src/norms.cu``): ``group`` warps take a row, ``warps`` are in a block."""

    group: int
    warps: int
    norm_blocks: int
    gradient_blocks: int

    def blocks(self, rows: int, cores: int, gradient: bool) -> int:
        """Return the blocks of a launch, all of which are resident."""
        each = self.gradient_blocks if gradient else self.norm_blocks
        return max(1, min(each * cores, -(-rows * self.group // self.warps)))


def macros(tuning: Any) -> dict[str, int]:
    """Return a tuning, one of the classes above, as macros of the kernels."""
    return {name.upper(): value for name, value in dataclasses.asdict(tuning).items()}


def vector(dim: int, widest: int) -> int:
    """Return the elements that a lane reads at once: a power of two that divides ``dim``, ``widest`` at most.

    >>> vector(128, 4), vector(6, 4), vector(7, 8)
    (4, 2, 1)
    """
    return min(widest, dim & -dim)


def lanes(dim: int, vector: int, given: int = 0) -> int:
    """Return the lanes that share a row, as in ``src/group.cuh``."""
    return given or min(32, 1 << (dim // vector - 1).bit_length())


SORT_ITEMS = (4, 8, 13, 16)


def for_sort(count: int, cores: int) -> SortTuning:
    """Return the tuning of a sort of ``count`` entries on ``cores`` multiprocessors.

    Tiles as small as they can be while all of them run at once: a few large tiles leave multiprocessors idle.

    >>> [for_sort(26 * batch, 132).sort_items for batch in (8192, 65536, 262144)]
    [4, 13, 16]
    """
    tuned = SortTuning()
    at_once = tuned.sort_blocks * cores * tuned.sort_threads
    items = next((items for items in SORT_ITEMS if count <= items * at_once), SORT_ITEMS[-1])
    return dataclasses.replace(tuned, sort_items=items)


def for_norm(dim: int, gated: bool) -> NormTuning:
    """Return the tuning of rows of ``dim`` numbers, a multiple of 32: 8 numbers a lane at most, where that divides.

    >>> [for_norm(dim, gated=False).group for dim in (96, 256, 512, 768, 1024)]
    [1, 1, 2, 3, 4]
    """
    numbers = dim // 32
    group = next((group for group in (1, 2, 3, 4) if numbers % group == 0 and numbers <= 8 * group), 1)
    return NormTuning(group, 8 // group * group, 4, 2 if gated else 3)


def for_ids(num_segments: int) -> IdsTuning:
    """Return the tuning of a map with ``num_segments`` segments: the counters of a block's warps fit in 32 KB.

    >>> for_ids(26), for_ids(2048)
    (IdsTuning(ask_warps=8, held_counters=128), IdsTuning(ask_warps=1, held_counters=8192))
    """
    held = 1 << max(5, (4 * num_segments - 1).bit_length())
    return IdsTuning(min(8, 8192 // held), held)


def ids_chunk(count: int, num_segments: int) -> int:
    """Return the entries of a warp: few, as long as the counters of all warps are at most 4 million.

    >>> ids_chunk(425_984, 26), ids_chunk(425_984, 2048)
    (128, 896)
    """
    return 128 * max(1, -(-count * num_segments // (128 << 20)))


def ids_listed(count: int) -> int:
    """Return the most ids that are listed when the last ones to leave are chosen; of more, bits are kept."""
    return max(4 * count, 1 << 16)


def for_lookup(dim: int, dtype: str, bagged: bool) -> LookupTuning:
    """Return the tuning of a lookup of rows of ``dim`` elements of ``dtype``; ``bagged``: bags of any length."""
    width = vector(dim, 8 if dtype in HALVES else 4)
    slices = _slices(dim // width)
    vectors = dim // width // slices
    if vectors > 64:  # a row fills the registers, and has no parts of equal size
        return LookupTuning(width, at_once=2)
    if bagged and vectors > 32:
        return LookupTuning(width, lanes=16, warps=1, min_blocks=16, at_once=2, slices=slices)
    if bagged and vectors >= 16:
        few = vectors > 16 or dtype in HALVES
        return LookupTuning(width, lanes=8, warps=1, min_blocks=32, at_once=2 if few else 4, slices=slices)
    if vectors >= 32:
        return LookupTuning(width, lanes=16, warps=1, at_once=16 if vectors == 32 else 8, slices=slices)
    if bagged:
        return LookupTuning(width, warps=1, bags=2, at_once=4, slices=slices)
    return LookupTuning(width, warps=1, slices=slices)


def _slices(vectors: int) -> int:
    """Return the fewest equal parts of at most 32 vectors each that a row is cut into; 1 where it cannot be.

    >>> _slices(32), _slices(512), _slices(250), _slices(251)
    (1, 16, 10, 1)
    """
    if vectors <= 64:
        return 1
    return next((parts for parts in range(2, vectors // 16 + 1) if vectors % parts == 0 and vectors // parts <= 32), 1)


def for_update(step: RowStep, grad_dtype: str) -> UpdateTuning:
    """Return the tuning of an update with ``step`` and gradients of ``grad_dtype``."""
    if step.dim > LONG and by_element(step) and (parts := _slices(step.dim // vector(step.dim, 4))) > 1:
        return UpdateTuning(vector(step.dim, 4), min_blocks=6, slices=parts)
    both_halves = step.dtype in HALVES and grad_dtype in HALVES
    per_element = sum(bool(shape) for shape in step.slot_shapes)
    width = vector(step.dim, 8 if both_halves and not per_element else 4)
    groups = 32 // lanes(step.dim, width)
    per_lane = -(-step.dim * groups // 32)  # elements of a lane
    wide = both_halves and not per_element
    blocks = 6 if per_element else 8
    if per_lane > (8 if wide else 4):
        blocks = 4 if per_lane <= 8 else 3 if per_lane <= 16 else 2
    if per_lane > 32 or per_element > 2:
        blocks = 1
    task = 1 if groups == 1 else 2 if wide else 1 if groups == 2 else 4
    ones = 2 if per_lane <= (8 if wide else 4) else 1
    return UpdateTuning(width, task=task, ones=ones, min_blocks=blocks, row_hint=0 if wide else 1)


PROJECTING = 4
"""Warpgroups that compute in ``src/project.cu``."""
FORWARD, QUERIES, KEYS = range(3)
"""The modes of the attention kernels: the result, the gradient of q, the gradients of k and v."""

_MMA = {
    (64, FORWARD): MmaTuning(4, 2, 64, 64),
    (64, QUERIES): MmaTuning(4, 2, 64, 64),
    (64, KEYS): MmaTuning(4, 2, 64, 32),
    (128, FORWARD): MmaTuning(4, 2, 64, 64),
    (128, QUERIES): MmaTuning(4, 2, 32, 32),
    (128, KEYS): MmaTuning(4, 1, 64, 32),
}


def _wgmma(wg: int, stages: int, minb: int = 1, loading: int = 40) -> WgmmaTuning:
    """Return a tuning whose computing threads have all registers that the loading ones leave."""
    threads = 128 * wg + 128
    launched = min(255, 65536 // (minb * threads)) // 8 * 8
    loading = 32 if wg == 3 else loading
    return WgmmaTuning(
        wg, 64, stages, minb, 2, min(240, (launched * threads - 128 * loading) // (128 * wg) // 8 * 8), loading
    )


_WGMMA = {
    (64, FORWARD): _wgmma(1, 3, 3),
    (64, QUERIES): _wgmma(3, 4),
    (64, KEYS): _wgmma(1, 3, 2),
    (128, FORWARD): _wgmma(3, 3),
    (128, QUERIES): _wgmma(2, 3),
    (128, KEYS): _wgmma(2, 3, 1, 24),
}


def for_attention(dim: int, mode: int, hopper: bool, biased: bool) -> MmaTuning | WgmmaTuning:
    """Return the tuning of an attention of heads of ``dim`` numbers, by Hopper's own instructions or by older ones."""
    return _WGMMA[dim, mode] if hopper else MmaTuning(4, 1, 64, 32) if biased else _MMA[dim, mode]


def held_buckets(mode: int, buckets: int) -> int:
    """Return the buckets of a bias whose gradients a thread block sums up in shared memory."""
    return buckets if mode == QUERIES and buckets <= 1024 else 0


def for_float_attention(dim: int) -> FloatTuning:
    """Return the tuning of an attention of heads of ``dim`` numbers in float32."""
    return FloatTuning(64, 32, 256) if dim <= 64 else FloatTuning(32, 32, 128)
