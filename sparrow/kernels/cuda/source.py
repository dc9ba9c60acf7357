"""The modules that NVRTC compiles: which files, which macros, which kernels."""

from __future__ import annotations

import dataclasses
import functools
import pathlib

from sparrow.kernels.cuda import tuning
from sparrow.kernels.cuda.emit import row_step
from sparrow.kernels.native import compiler
from sparrow.kernels.types import RowStep

FOLDER = pathlib.Path(__file__).parent / "src"
TYPES = {"float32": 0, "bfloat16": 1, "float16": 2}
SHIM = ("shim.cc",)


@dataclasses.dataclass(frozen=True)
class Module:
    """One unit of compilation.

    Attributes:
      name: for the names of files.
      source: CUDA C++.
      macros: their names and values.
      kernels: the kernels in it, in the order by which a plan names them.
      shared: dynamic shared memory of each kernel, in bytes, where it is above 48 KB; else 0.
      only_here: whether it uses instructions of one architecture that later ones do not have.
    """

    name: str
    source: str
    macros: tuple[tuple[str, int], ...]
    kernels: tuple[str, ...]
    shared: tuple[int, ...]
    only_here: bool = False


def text(*names: str) -> str:
    """Return the content of files of the source folder, one after the other."""
    return "".join(_read(name) for name in names)


@functools.cache
def _read(name: str) -> str:
    return (FOLDER / name).read_text()


SORT_COUNT, SORT_FIRST, SORT_NEXT = range(3)
LOOKUP = UPDATE = 0
PAIRS, PAIRS_GRADIENT = range(2)
NORM, NORM_GRADIENT, ACTIVATE = range(3)
SWAP_LEAVE, SWAP_MOVE, SWAP_READ = range(3)
START, PUT_BACK = range(2)
IDS = (
    *("ids_find", "ids_clear", "ids_index", "ids_mark", "ids_ask", "ids_count"),
    *("ids_weigh", "ids_choose", "ids_select", "ids_apply", "ids_give_back", "ids_undo"),
)
IDS_FIND, IDS_CLEAR, IDS_INDEX, IDS_MARK, IDS_ASK, IDS_COUNT = range(6)
IDS_WEIGH, IDS_CHOOSE, IDS_SELECT, IDS_APPLY, IDS_GIVE_BACK, IDS_UNDO = range(6, 12)


def sort_shared(tuned: tuning.SortTuning) -> int:
    """Bytes of dynamic shared memory of a pass: the tile's entries, or a counter per warp and digit."""
    return max(8 * tuned.sort_threads * tuned.sort_items, 8 * (tuned.sort_threads // 32) << tuned.sort_bits)


def sort_module(passes: int, tuned: tuning.SortTuning) -> Module:
    """Return the kernels that sort entries by row numbers of ``passes`` digits."""
    shared = sort_shared(tuned)
    over = shared if shared > 48 * 1024 else 0
    macros = tuning.macros(tuned) | {"SORT_PASSES": passes}
    source = text("types.cuh", "memory.cuh", "segments.cuh", "sort.cu")
    return Module("sort", source, tuple(macros.items()), ("sort_count", "sort_first", "sort_next"), (0, over, over))


def lookup_module(dim: int, dtype: str, out: str, bagged: bool, tuned: tuning.LookupTuning) -> Module:
    """Return the kernel that pools rows of ``dim`` elements of ``dtype`` into bags of ``out``."""
    types = {"TABLE": TYPES[dtype], "OUT": TYPES[out]}
    macros = tuning.macros(tuned) | types | {"DIM": dim // tuned.slices, "BAGGED": int(bagged)}
    source = text("types.cuh", "memory.cuh", "group.cuh", "lookup.cu")
    return Module("lookup", source, tuple(macros.items()), ("lookup",), (0,))


def update_module(
    step: RowStep, grads: str, gains: bool, stacked: bool, logical: bool, tuned: tuning.UpdateTuning
) -> Module:
    """Return the kernel that updates rows by ``step``; raise `Inexpressible` where the rule has no translation."""
    per_element = sum(bool(shape) for shape in step.slot_shapes)
    macros = tuning.macros(tuned) | {
        "DIM": step.dim // tuned.slices,
        "TABLE": TYPES[step.dtype],
        "GRADS": TYPES[grads],
        "NE": per_element,
        "NR": len(step.slots) - per_element,
        "NS": max(1, len(step.scalars)),
        "GAINS": int(gains),
        "STACKED": int(stacked),
        "LOGICAL": int(logical),
    }
    before = text("types.cuh", "memory.cuh", "group.cuh", "segments.cuh") + compiler.code("operations.h")
    source = before + text("row_step.cuh", "rows.cuh") + row_step(step) + text("fold.cuh", "update.cu")
    return Module("update", source, tuple(macros.items()), ("update",), (0,))


def pairs_module(first: int, vectors: int, dim: int, dtype: str, tuned: tuning.PairsTuning) -> Module:
    """Return the kernels for pairs of ``vectors`` vectors, ``first`` of them in the first array."""
    shape = {"NUMBERS": TYPES[dtype], "DIM": dim, "FIRST": first, "VECTORS": vectors}
    source = text("types.cuh", "memory.cuh", "pairs.cu")
    return Module("pairs", source, tuple((tuning.macros(tuned) | shape).items()), ("pairs", "pairs_gradient"), (0, 0))


def norm_module(dim: int, dtype: str, gated: bool) -> Module:
    """Return the kernels of a layer normalization of ``dim`` numbers, alone or of `gated` values."""
    macros = tuning.macros(tuning.for_norm(dim, gated)) | {"NUMBERS": TYPES[dtype], "DIM": dim, "GATED": int(gated)}
    source = text("types.cuh", "memory.cuh", "norms.cu")
    return Module("norms", source, tuple(macros.items()), ("norm_rows", "norm_gradient", "activate"), (0, 0, 0))


def ids_module(tuned: tuning.IdsTuning) -> Module:
    """Return the kernels of the map from ids to rows."""
    files = ("ids.cuh", "ids_find.cu", "ids_ask.cu", "ids_evict.cu", "ids_apply.cu")
    source = text("types.cuh", "memory.cuh", *files)
    return Module("ids", source, tuple(tuning.macros(tuned).items()), IDS, (0,) * len(IDS))


def swap_module(vector: int, table: int, slot: int, vectors: int, numbers: int, record: int) -> Module:
    """Return the kernels that move rows of ``table`` chunks of ``vector`` words, and slots, to and from records."""
    macros = {"VECTOR": vector, "TABLE_CHUNKS": table, "SLOT_CHUNKS": slot, "NE": vectors, "NR": numbers}
    source = text("types.cuh", "memory.cuh", "segments.cuh", "swap.cu")
    kernels = ("swap_leave", "swap_move", "swap_read")
    return Module("swap", source, (*macros.items(), ("RECORD", record)), kernels, (0,) * len(kernels))


def start_module(dim: int, dtype: str, vectors: int, numbers: int) -> Module:
    """Return the kernels that draw first values of rows and undo it, for ``vectors`` and ``numbers`` slots."""
    macros = {"DIM": dim, "TABLE": TYPES[dtype], "NE": vectors, "NR": numbers}
    return Module("start", text("types.cuh", "start.cu"), tuple(macros.items()), ("start", "put_back"), (0, 0))


ATTENTION = ATTENTION_WORK = 0
CAUSAL, PLACES, SEMI_LOCAL = range(3)
"""The masks of the attention kernels."""


def attention_work_module() -> Module:
    """Return the kernel that lists the blocks of an attention."""
    return Module("attention_work", text("types.cuh", "attention_work.cu"), (), ("attention_work",), (0,))


def attention_module(
    dim: int,
    mode: int,
    masks: int,
    softmax: bool = False,
    hopper: bool = False,
    inner: bool = False,
    buckets: tuple[int, int] = (0, 0),
) -> Module:
    """Return the kernel of one mode of an attention; ``hopper``: by instructions of compute capability 9.0 alone.

    ``inner``: the results are gradients of what q, k and v are the silu of. ``buckets``: of biases by place and time.
    """
    tuned = tuning.for_attention(dim, mode, hopper, any(buckets))
    kernel = _wgmma() + text("attention_wgmma.cu")
    if not hopper:
        kernel = text("attention_bias.cuh", "attention_tiles.cuh", "attention_mma.cu")
    return _attention(kernel, tuned, dim, mode, masks, softmax, inner, buckets, hopper)


def attention_float_module(
    dim: int, mode: int, masks: int, softmax: bool, inner: bool = False, buckets: tuple[int, int] = (0, 0)
) -> Module:
    """Return the kernel of one mode of an attention in float32."""
    kernel = text("attention_bias.cuh", "attention_float.cu")
    return _attention(kernel, tuning.for_float_attention(dim), dim, mode, masks, softmax, inner, buckets, False)


def _attention(
    kernel: str,
    tuned: tuning.MmaTuning | tuning.WgmmaTuning | tuning.FloatTuning,
    dim: int,
    mode: int,
    masks: int,
    softmax: bool,
    inner: bool,
    buckets: tuple[int, int],
    hopper: bool,
) -> Module:
    held = tuning.held_buckets(mode, sum(buckets))
    shape = {"D": dim, "MODE": mode, "MASKS": masks, "BM": tuned.rows, "INNER": int(inner)}
    bias = {"SOFTMAX": int(softmax), "POSITION": int(buckets[0] > 0), "TIME": int(buckets[1] > 0), "HELD": held}
    macros = tuning.macros(tuned) | shape | ({} if hopper else bias)
    shared = tuned.shared(dim, 1 if mode == tuning.FORWARD else 2) + 8 * held
    source = text("types.cuh", "attention_mask.cuh") + kernel
    return Module("attention", source, tuple(macros.items()), ("attention",), (shared,), hopper)


def _wgmma() -> str:
    return text("wgmma.cuh").replace("// WGMMA_INSTRUCTIONS\n", wgmma_instructions())


def project_module(dim: int, width: int) -> Module:
    """Return the kernel that projects rows of ``dim`` numbers to four times ``width``, and activates them."""
    macros = {"K": dim, "WIDTH": width, "STAGES": 2, "WG": tuning.PROJECTING}
    source = text("types.cuh", "memory.cuh") + _wgmma() + text("project.cu")
    shared = 4 * dim * 128 + 2 * dim * 128 + 8 * 4096 + 1024 + 256
    return Module("project", source, tuple(macros.items()), ("project",), (shared,), only_here=True)


def wgmma_instructions() -> str:
    """Return ``wgmma_ss<N>(c, a, b, more)``, c (64, N) = or += a b', and ``wgmma_rs<N>(c, a, b)``, c += a b.

    ``wgmma_st<N>`` is `wgmma_ss` with b itself.

    The matrix instructions of Hopper as functions: their operands are too many to write by hand.

    >>> wgmma_instructions().count("wgmma.mma_async")
    6
    """
    declared = (
        "template <int N>\n__device__ __forceinline__ void wgmma_ss(float* c, u64 a, u64 b, int more);\n"
        "template <int N>\n__device__ __forceinline__ void wgmma_st(float* c, u64 a, u64 b, int more);\n"
        "template <int N>\n__device__ __forceinline__ void wgmma_rs(float* c, const u32* a, u64 b);\n"
    )
    return declared + "".join(_wgmma_functions(width) for width in (64, 128))


def _wgmma_functions(width: int) -> str:
    count = width // 2
    sums = ", ".join(f"%{i}" for i in range(count))
    held = ", ".join(f'"+f"(c[{i}])' for i in range(count))
    name = f"wgmma.mma_async.sync.aligned.m64n{width}k16.f32.bf16.bf16 {{{sums}}}"
    left = ", ".join(f"%{count + i}" for i in range(4))
    both = "".join(
        f"""template <> __device__ __forceinline__ void wgmma_s{kind}<{width}>(float* c, u64 a, u64 b, int more) {{
  asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{count + 2}, 0;\\n"
               "{name}, %{count}, %{count + 1}, p, 1, 1, 0, {int(kind == "t")};\\n}}\\n"
               : {held} : "l"(a), "l"(b), "r"(more));
}}
"""
        for kind in "st"
    )
    return (
        both
        + f"""template <> __device__ __forceinline__ void wgmma_rs<{width}>(float* c, const u32* a, u64 b) {{
  asm volatile("{name}, {{{left}}}, %{count + 4}, 1, 1, 1, 1;\\n"
               : {held} : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}}
"""
    )
