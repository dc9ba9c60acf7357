"""python benchmarks/gpu.py [--fbgemm PATH] [--out DIR]: the GPU backend on an NVIDIA GPU, and FBGEMM where present.

Checks first (numbers against float64 and xla, same bits twice, peak memory, the contract suite), then times lookup and
update on the workloads of `gpu_workloads`, in turns with FBGEMM, then a DLRM training step. Writes gpu.md and gpu.json.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import importlib.util
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # the card is shared with torch
sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent.parent))

import gpu_checks
import gpu_dcn
import gpu_dlrm
import gpu_fbgemm
import gpu_mesh
import gpu_report
import jax
import jax.numpy as jnp
import numpy as np
from gpu_workloads import WORKLOADS, Batch, Workload, draw_ids, floor_bytes, make_batch, make_state, make_step

from sparrow import rules
from sparrow.kernels import cuda

RULES = (rules.SGD(), rules.RowwiseAdagrad(), rules.Adam(), rules.PartialRowwiseAdam())
PARTS = "checks,memory,bandwidth,compile,kernels,halves,dlrm,dcn,mesh,tests"
ROUNDS, CALLS = 5, 10  # turns, and calls within one


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fbgemm", help="the folder of fbgemm_gpu, if it is not installed")
    parser.add_argument("--out", default="benchmarks/results", help="the folder of gpu.md and gpu.json")
    parser.add_argument("--only", help=f"parts to run into the report that is there; without it, all of {PARTS}")
    parser.add_argument("--quick", action="store_true", help="leave XLA's defaults and PyTorch's eager mode out")
    parser.add_argument("--memory", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.memory:
        print(json.dumps(gpu_checks.memory()))
        return
    parts = (args.only or PARTS).split(",")
    missing = gpu_fbgemm.available(args.fbgemm)
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    held = out / "gpu.json"
    report: dict[str, Any] = json.loads(held.read_text()) if args.only and held.exists() else {}
    report["environment"] = environment(missing)

    def part(name: str, run: Callable[[], Any]) -> None:
        if name in parts:
            begin = time.time()
            report[name] = run()
            print(f"{name}: {time.time() - begin:.0f} s", flush=True)
            (out / "gpu.json").write_text(json.dumps(report, indent=1))
            (out / "gpu.md").write_text(gpu_report.markdown(report))

    part(
        "checks",
        lambda: [
            gpu_checks.check(rule, name, with_xla=i == j)
            for i, name in enumerate(WORKLOADS)
            for j, rule in enumerate(RULES)
        ],
    )
    part("memory", lambda: json.loads(subprocess.check_output([sys.executable, __file__, "--memory"])))
    part("bandwidth", copy_bandwidth)
    part("kernels", lambda: [row for w in WORKLOADS.values() for row in time_workload(w, not missing)])
    part("compile", gpu_checks.compile_times)
    part("halves", lambda: [time_halves(WORKLOADS[name], rule) for name in ("G1", "G3") for rule in RULES[:2]])
    part("dlrm", lambda: [gpu_dlrm.time_steps(batch, not missing, quick=args.quick) for batch in (8192, 65536)])
    part("dcn", lambda: [gpu_dcn.time_steps(batch, not missing) for batch in (8192, 65536)])
    part("mesh", gpu_mesh.report)
    part("tests", kernel_tests)
    print((out / "gpu.md").read_text())


def environment(fbgemm_missing: str | None) -> dict[str, str]:
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    gpu, driver = subprocess.check_output(query, text=True).strip().split("\n")[0].split(", ")
    versions = {"jax": jax.__version__, "python": platform.python_version()}
    versions |= {"fbgemm_gpu": f"not here ({fbgemm_missing})"} if fbgemm_missing else gpu_fbgemm.versions()
    return {"date": datetime.date.today().isoformat(), "gpu": gpu, "driver": driver} | versions


def kernel_tests() -> dict[str, str]:
    """Run the kernels' own tests, the contract suite with this backend and the golden numbers, on this GPU."""
    root = pathlib.Path(__file__).resolve().parent.parent
    arguments = ["tests/kernels/cuda", "tests/test_contract.py", "tests/rules/test_golden.py", "-k", "cuda or golden"]
    workers = ["-n", "12"] if importlib.util.find_spec("xdist") else []
    command = [sys.executable, "-m", "pytest", "--override-ini=addopts=", "-p", "no:cacheprovider", "-W", "ignore"]
    environment = {"XLA_FLAGS": "", **os.environ}  # optimized, unlike the tests on a CPU
    run = subprocess.run([*command, *workers, *arguments], capture_output=True, text=True, cwd=root, env=environment)
    print(run.stdout[-3000:], flush=True)
    outcome = run.stdout.strip().split("\n")[-1].strip("= ")
    return {"command": f"pytest {' '.join(arguments)}", "outcome": outcome, "exit": str(run.returncode)}


def copy_bandwidth() -> float:
    """Bytes read and written per second by x + 1 over 4 GB."""
    x = jnp.ones(2**30, jnp.float32)
    add = jax.jit(lambda x: x + 1.0)
    return 2 * x.nbytes / (1e-3 * statistics.median(time_turn(add, x) for _ in range(5)))


def time_turn(step: Callable[[Any], Any], state: Any) -> float:
    """Return the time of one call of ``step`` in ms, which takes its own result; the device's queue never runs dry."""
    state = step(state)
    jax.block_until_ready(state)
    begin = time.perf_counter()
    for _ in range(CALLS):
        state = step(state)
    jax.block_until_ready(state)
    return 1e3 * (time.perf_counter() - begin) / CALLS


def time_workload(workload: Workload, with_fbgemm: bool) -> list[dict[str, Any]]:
    """Lookup, update and whole step of every rule, medians over turns."""
    ids = draw_ids(workload, np.random.default_rng())
    batch = make_batch(workload, ids)
    return [time_rule(workload, rule, ids, batch, with_fbgemm) for rule in RULES]


def look_up_and_update(
    step: Any, dtype: str, table: Any, slots: Any, lookups: Any, grads: Any, scalars: Any
) -> tuple[Any, ...]:
    """Return the new table and slots, and the activations in ``dtype``."""
    pooled, lookups = cuda.lookup_and_sort(table, lookups, dtype)
    # The gradient waits for the activations, as in training.
    table, pooled, order = jax.lax.optimization_barrier((table, pooled, lookups.order))
    return *cuda.update(step, table, slots, grads._replace(order=order), scalars), pooled


def time_rule(workload: Workload, rule: rules.Rule, ids: np.ndarray, batch: Batch, with_fbgemm: bool) -> dict[str, Any]:
    """One row of the table."""
    bag_grads = jax.random.normal(jax.random.key(1), (batch.lookups.num_bags, workload.dim))
    grads = batch.row_gradients(bag_grads)
    step, scalars = make_step(rule, workload)
    state = make_state(step, workload.num_rows, 0)
    look = jax.jit(cuda.lookup)
    update = jax.jit(functools.partial(cuda.update, step), donate_argnums=(0, 1))

    both = jax.jit(functools.partial(look_up_and_update, step, "float32"), donate_argnums=(0, 1))
    times: dict[str, list[float]] = {"lookup": [], "update": [], "step": []}
    theirs: dict[str, list[float]] = {"lookup": [], "update": [], "called": []}
    peer = gpu_fbgemm.make_tables(workload, rule.name) if with_fbgemm else None
    peer_inputs = gpu_fbgemm.make_inputs(workload, ids) if with_fbgemm else None
    for _ in range(ROUNDS):
        times["lookup"].append(time_turn(lambda _, table=state[0]: look(table, batch.lookups), None))
        state, ms = _chain(lambda s: update(*s, grads, scalars), state)
        times["update"].append(ms)
        state, ms = _chain(lambda s: both(*s, batch.lookups, grads, scalars)[:2], state)
        times["step"].append(ms)
        if peer is not None:
            lookups, updates = gpu_fbgemm.time_steps(peer, peer_inputs, CALLS)
            theirs["lookup"] += lookups
            theirs["update"] += updates
            theirs["called"].append(gpu_fbgemm.time_calls(peer, peer_inputs, CALLS))
    result = {
        "workload": workload.name,
        "shape": str(workload),
        "rule": rule.name,
        "touched": batch.touched,
        "ms": {k: statistics.median(v) for k, v in times.items()},
        "fbgemm": {k: statistics.median(v) for k, v in theirs.items()} if peer is not None else None,
        "floor bytes": {
            "lookup": floor_bytes(workload, None, batch.touched),
            "update": floor_bytes(workload, step, batch.touched),
        },
    }
    print(result, flush=True)
    if peer is not None:
        import torch

        del peer
        torch.cuda.empty_cache()
    return result


def time_halves(workload: Workload, rule: rules.Rule) -> dict[str, Any]:
    """Time a bfloat16 table, rounded stochastically, with bfloat16 gradients and activations, beside float32."""
    batch = make_batch(workload, draw_ids(workload, np.random.default_rng()))
    ms: dict[str, dict[str, float]] = {}
    for dtype in ("float32", "bfloat16"):
        step, scalars = make_step(rule, workload, dtype)
        state = make_state(step, workload.num_rows, 0)
        bag_grads = jax.random.normal(jax.random.key(1), (batch.lookups.num_bags, workload.dim), dtype)
        grads = batch.row_gradients(bag_grads)
        order = jax.jit(lambda table, lookups: cuda.lookup_and_sort(table, lookups)[1].order)(state[0], batch.lookups)
        ordered = grads._replace(order=order)
        update = jax.jit(functools.partial(cuda.update, step), donate_argnums=(0, 1))
        both = jax.jit(functools.partial(look_up_and_update, step, dtype), donate_argnums=(0, 1))
        ways = {
            "update": lambda s, u=update, g=grads, c=scalars: u(*s, g, c),
            "update without its sort": lambda s, u=update, g=ordered, c=scalars: u(*s, g, c),
            "lookup and update": lambda s, f=both, g=grads, c=scalars: f(*s, batch.lookups, g, c)[:2],
        }
        for name, way in ways.items():
            times = []
            for _ in range(ROUNDS):
                state, one = _chain(way, state)
                times.append(one)
            ms.setdefault(name, {})[dtype] = statistics.median(times)
        del state
    return {"workload": workload.name, "rule": rule.name, "ms": ms}


def _chain(step: Callable[[Any], Any], state: Any) -> tuple[Any, float]:
    """Return the time as `time_turn` does, for state that is donated, and the last state."""
    state = jax.block_until_ready(step(state))
    begin = time.perf_counter()
    for _ in range(CALLS):
        state = step(state)
    jax.block_until_ready(state)
    return state, 1e3 * (time.perf_counter() - begin) / CALLS


if __name__ == "__main__":
    main()
