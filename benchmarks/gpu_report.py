"""The report of benchmarks/gpu.py in Markdown."""

from __future__ import annotations

from typing import Any

from gpu_workloads import WORKLOADS

MODELS = {
    "dcn": (
        "## DLRM-DCNv2 training step",
        "",
        "MLPerf's model, 84M rows of dim 128, 214 ids an example; ms per step.",
    ),
    "dlrm": (
        "## DLRM training step",
        "",
        "26 × 1M rows, dim 128, row-wise Adagrad, bfloat16 matrix work; ms per step, as a training loop sees them.",
        "“Own backward”: the interaction's backward pass written out in PyTorch. “sparrow” compiles with all matrix",
        'products by cuBLAS: `jax.jit(..., compiler_options={"xla_gpu_enable_triton_gemm": False})`.',
    ),
}


def markdown(report: dict[str, Any]) -> str:
    """Return the report for people."""
    e = report["environment"]
    lines = [
        f"# GPU: {e['gpu']}, {e['date']}",
        "",
        ", ".join(f"{k} {v}" for k, v in e.items() if k not in ("gpu", "date")),
    ]
    if "note" in report:
        lines += ["", report["note"]]
    if "tests" in report:
        tests = report["tests"]
        what = f"The kernels' tests and the contract suite on this GPU, {e['date']} (`{tests['command']}`)"
        lines += ["", f"{what}: {tests['outcome']}."]
    if "memory" in report:
        m = report["memory"]
        sizes = f"{m['table and slots, GB']:.1f} GB of table and slots"
        change = f"relative error of the change {m['error of the change']:.1e}"
        lines += ["", f"Peak device memory of a donated update of {sizes}: {m['peak, GB']:.1f} GB ({change})."]
    if "checks" in report:
        lines += [
            "",
            "## Numbers",
            "",
            "Relative errors ‖found − expected‖ / ‖expected‖ of the change, fresh random inputs.",
            "",
        ]
        lines += table(list(report["checks"][0]), [[_short(v) for v in row.values()] for row in report["checks"]])
    if "kernels" in report:
        bandwidth = report["bandwidth"]
        lines += ["", "## Lookup and update", "", f"ms, float32, medians; copy bandwidth {bandwidth / 1e12:.2f} TB/s."]
        lines += [
            "",
            "In brackets: multiples of the byte floor. “Step” is lookup and update under one jit, Python included.",
            "FBGEMM's times are device times with its queue kept full; “as called” includes its Python.",
            "The ratios: FBGEMM's lookup + update over ours, over our step, and FBGEMM as called over our step.",
            "",
        ]
        head = [
            "",
            "rule",
            "lookup",
            "update",
            "step",
            "FBGEMM lookup",
            "update",
            "as called",
            "ratio",
            "of steps",
            "as called",
        ]
        rows = []
        for r in report["kernels"]:
            floor = {k: 1e3 * v / bandwidth for k, v in r["floor bytes"].items()}
            ours, theirs = r["ms"], r["fbgemm"]
            row = [r["workload"], r["rule"]]
            row += [f"{ours[k]:.3f} ({ours[k] / floor[k]:.1f}×)" for k in ("lookup", "update")]
            row += [f"{ours['step']:.3f}"]
            if theirs:
                row += [f"{theirs[k]:.3f}" for k in ("lookup", "update", "called")]
                both = theirs["lookup"] + theirs["update"]
                row += [f"{both / (ours['lookup'] + ours['update']):.2f}", f"{both / ours['step']:.2f}"]
                row += [f"{theirs['called'] / ours['step']:.2f}"]
            else:
                row += ["–"] * 6
            rows.append(row)
        lines += table(head, rows)
        lines += [""] + [f"* {name}: {w}" for name, w in WORKLOADS.items()]
    if "halves" in report:
        lines += ["", "## bfloat16 tables and gradients", "", "ms; tables are rounded stochastically.", ""]
        rows = []
        for r in report["halves"]:
            for name, ms in r["ms"].items():
                ratio = ms["bfloat16"] / ms["float32"]
                rows.append(
                    [r["workload"], r["rule"], name, f"{ms['float32']:.3f}", f"{ms['bfloat16']:.3f}", f"{ratio:.2f}"]
                )
        lines += table(["", "rule", "", "float32", "bfloat16", "ratio"], rows)
    if "compile" in report:
        lines += [
            "",
            "## First use",
            "",
            "Seconds until a lookup and an update of dim 128 are compiled and loaded.",
            "",
        ]
        names = list(report["compile"][0])
        lines += table(
            names, [[_short(v) if isinstance(v, str) else f"{v:.3f}" for v in r.values()] for r in report["compile"]]
        )
    for name, about in MODELS.items():
        if name in report:
            lines += ["", *about, "", *steps(report[name])]
    if "mesh" in report:
        lines += mesh(report["mesh"])
    return "\n".join(lines) + "\n"


def steps(results: list[dict[str, Any]]) -> list[str]:
    """Return the table of training steps; the last columns are the matrix products of a step by themselves."""
    names = [name for name in results[-1]["ms"] if all(name in r["ms"] for r in results)]
    rows = []
    for r in results:
        row = [str(r["batch"])] + [f"{r['ms'][n]:.2f} ({r['ms'][n] / r['ms']['sparrow']:.2f}×)" for n in names]
        if products := r.get("products"):
            row.append(f"{products['ms']:.2f} ({products['TFLOP']:.2f} TFLOP at {products['TFLOP/s']:.0f} TFLOP/s)")
        rows.append(row)
    return table(["batch", *names, *(["its matrix products alone"] if "products" in results[0] else [])], rows)


def mesh(found: dict[str, Any]) -> list[str]:
    """Return the section about meshes."""
    lines = [
        "",
        "## On a mesh",
        "",
        "DLRM's step compiled for a described topology of GPUs in one host; its collectives.",
    ]
    names = list(found["programs"][0])
    lines += ["", *table(names, [[str(r[name]) for name in names] for r in found["programs"]])]
    rows = []
    for r in found.get("mesh of one", []):
        without, on_mesh = r["ms"]["no mesh"], r["ms"]["mesh of one"]
        rows.append([str(r["batch"]), f"{without:.3f}", f"{on_mesh:.3f}", f"{100 * (on_mesh / without - 1):+.1f} %"])
    if rows:
        lines += ["", "The step on a mesh of one GPU against none, ms.", ""]
        lines += table(["batch", "no mesh", "mesh of one", ""], rows)
    return lines


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    return ["| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows)]


def _short(value: Any) -> str:
    return f"{value:.1e}" if isinstance(value, float) else str(value)
