"""The matrix instructions of Hopper as functions, one for each width: their operands are too many to write by hand."""

from __future__ import annotations

WIDTHS = (64, 128)


def instructions() -> str:
    """Return ``wgmma_ss<N>(c, a, b, more)``, c (64, N) = or += a b', and ``wgmma_rs<N>(c, a, b)``, c += a b.

    >>> instructions().count("wgmma.mma_async")
    4
    """
    declared = (
        "template <int N>\n__device__ __forceinline__ void wgmma_ss(float* c, u64 a, u64 b, int more);\n"
        "template <int N>\n__device__ __forceinline__ void wgmma_rs(float* c, const u32* a, u64 b);\n"
    )
    return declared + "".join(_functions(width) for width in WIDTHS)


def _functions(width: int) -> str:
    count = width // 2
    sums = ", ".join(f"%{i}" for i in range(count))
    held = ", ".join(f'"+f"(c[{i}])' for i in range(count))
    name = f"wgmma.mma_async.sync.aligned.m64n{width}k16.f32.bf16.bf16 {{{sums}}}"
    left = ", ".join(f"%{count + i}" for i in range(4))
    return f"""template <> __device__ __forceinline__ void wgmma_ss<{width}>(float* c, u64 a, u64 b, int more) {{
  asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{count + 2}, 0;\\n"
               "{name}, %{count}, %{count + 1}, p, 1, 1, 0, 0;\\n}}\\n"
               : {held} : "l"(a), "l"(b), "r"(more));
}}
template <> __device__ __forceinline__ void wgmma_rs<{width}>(float* c, const u32* a, u64 b) {{
  asm volatile("{name}, {{{left}}}, %{count + 4}, 1, 1, 1, 1;\\n"
               : {held} : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}}
"""
