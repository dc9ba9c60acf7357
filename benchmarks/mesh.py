"""Tables over many devices: 1, 2, 4 and 8 in one process; 2 processes of one core each beside TorchRec.

    python benchmarks/mesh.py                                  # everything; writes benchmarks/results/mesh.md
    python benchmarks/mesh.py --rounds 1 --steps 20 --no-write

A step is a whole one: ids travel, rows are looked up, gradients come back, rows are updated. Packing is timed beside
it, and counted, as if nothing overlapped. TorchRec (1.8, gloo, fused optimizers) gets its inputs ready-made. Both sides
run with their planner's choice, and with given placements; TorchRec's planner offers row-wise sharding on CUDA only:
there the choice is overridden. Contenders take turns, round by round. TorchRec runs in its own environment, made by
``make bench-mesh-peers``; without it, it is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
from typing import Any

HERE = pathlib.Path(__file__).parent
PEERS_PYTHON = HERE.parent / ".venv-peers" / "bin" / "python"
ALLOCATOR = {  # for both sides: large blocks are kept, not given back to the system after every step
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(4_000_000_000),
}
TARGET = 2.0
OURS, THEIRS = ("planned", "pooled", "rows"), ("planned", "table_wise", "row_wise")


def run(python: str, program: str, world: int, arguments: list[str], cores: list[int] | None) -> dict[str, Any] | None:
    """Start one process per rank, each on its own core if given; return what rank 0 printed, or None."""
    port = str(random.randint(20000, 50000))
    path = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, **ALLOCATOR, "PYTHONPATH": path}
    started = []
    for rank in range(world):
        command = [python, str(HERE / program), str(rank), str(world), port, *arguments]
        if cores is not None:
            command = ["taskset", "-c", str(cores[rank % len(cores)]), *command]
        started.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    found = None
    for rank, process in enumerate(started):
        try:
            out, err = process.communicate(timeout=240)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
        if rank == 0 and process.returncode == 0:
            found = json.loads(out.decode().splitlines()[-1])
        elif process.returncode:
            print(f"{program} {' '.join(arguments)} rank {rank}: {err.decode()[-500:]}", file=sys.stderr)
    return found


def scaling(options: argparse.Namespace) -> list[str]:
    """1, 2, 4 and 8 virtual devices in one process, which share its cores."""
    lines = [
        "| workload | exchange | devices | step, ms | pack, ms | sent by a device, MB |",
        "|---|---|---|---|---|---|",
    ]
    for workload in options.workloads:
        for exchange in ("pooled", "rows"):
            for devices in (1, 2, 4, 8):
                if devices == 1 and exchange == "rows":
                    continue
                given = [str(devices), workload, options.rule, exchange, str(options.steps)]
                one = run(sys.executable, "mesh_ours.py", 1, given, None)
                if one is None:
                    continue
                name = exchange if devices > 1 else "none"
                times = f"{one['step']:.1f} | {one['pack']:.1f} | {one['bytes'] / 1e6:.2f}"
                lines.append(f"| {workload} | {name} | {devices} | {times} |")
                print(lines[-1], flush=True)
    return lines


def beside_torchrec(options: argparse.Namespace) -> list[str]:
    """Two processes of one core each, in turns; medians over the rounds, and the least step of all rounds."""
    found: dict[tuple[str, str], list[float]] = {}
    least: dict[tuple[str, str], list[float]] = {}
    packs: dict[tuple[str, str], list[float]] = {}
    cores = [0, 1]
    for _ in range(options.rounds):
        for workload in options.workloads:
            for exchange, sharding in zip(OURS, THEIRS, strict=True):
                given = ["1", workload, options.rule, exchange, str(options.steps)]
                if one := run(sys.executable, "mesh_ours.py", 2, given, cores):
                    found.setdefault((workload, f"Sparrow {exchange}"), []).append(one["step"] + one["pack"])
                    least.setdefault((workload, f"Sparrow {exchange}"), []).append(one["least"])
                    packs.setdefault((workload, f"Sparrow {exchange}"), []).append(one["pack"])
                given = [workload, options.rule, sharding, str(options.steps)]
                if PEERS_PYTHON.exists() and (one := run(str(PEERS_PYTHON), "mesh_torchrec.py", 2, given, cores)):
                    name = f"TorchRec {sharding}" + (f" ({', '.join(one['chosen'])})" if sharding == "planned" else "")
                    found.setdefault((workload, name), []).append(one["step"])
                    least.setdefault((workload, name), []).append(one["least"])
            for key, values in found.items():
                if key[0] == workload:
                    print(key, [round(value, 1) for value in values], flush=True)
    lines = ["| workload | contender | ms a step, pack counted | all rounds | least |", "|---|---|---|---|---|"]
    for (workload, name), values in found.items():
        mine = "" if (workload, name) not in packs else f" (pack {statistics.median(packs[workload, name]):.1f})"
        rounds = ", ".join(f"{value:.1f}" for value in values)
        smallest = f"{min(least[workload, name]):.1f}"
        lines.append(f"| {workload} | {name} | {statistics.median(values):.1f}{mine} | {rounds} | {smallest} |")
    for workload, name in found:
        ours = found.get((workload, "Sparrow planned"))
        if ours and name.startswith("TorchRec"):
            ratio = statistics.median(found[workload, name]) / statistics.median(ours)
            smallest = min(least[workload, name]) / min(least[workload, "Sparrow planned"])
            target = f"; the target is {TARGET}" if "planned" in name else ""
            text = f"{ratio:.2f} times as fast, by the least steps {smallest:.2f}{target}"
            lines.append(f"\n{workload}, Sparrow planned beside {name}: {text}.")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workloads", nargs="+", default=["W1", "W2"])
    parser.add_argument("--rule", default="SGD", choices=["SGD", "Adagrad"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--only", choices=["devices", "processes"])
    parser.add_argument("--no-write", action="store_true")
    options = parser.parse_args()
    load = pathlib.Path("/proc/loadavg").read_text().split()[0]
    lines = ["# Tables over many devices", "", f"`benchmarks/mesh.py`, {options.rule}, load of the machine {load}.", ""]
    if options.only != "processes":
        lines += ["## Virtual devices of one process", "", *scaling(options), ""]
    if options.only != "devices":
        lines += ["## Two processes of one core, gloo over loopback", "", *beside_torchrec(options), ""]
    text = "\n".join(lines)
    print(text)
    if not options.no_write:
        (HERE / "results" / "mesh.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
