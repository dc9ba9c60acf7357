"""Tables of Criteo's real sizes on many devices: bytes, padding and balance of the planner's placement and of others.

    python benchmarks/placement.py            # all tables
    python benchmarks/placement.py --measure  # only bytes of compiled steps on 8 virtual devices beside the plan's

The 26 tables have the rows of MLPerf's DLRM (3 to 40,000,000) and dim 128; features have one id, or MLPerf's number of
ids (1 to 100), by a power law with the exponent 1. Nothing of a table's size is allocated for the plan. The compiled
steps have tables of at most CAP rows. Beside it: 26 tables of 40,000,000 rows on 256 and 1,024 devices.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
from typing import Any

import numpy as np

IDS = (3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1)
ROWS = (
    *(40_000_000, 39_060, 17_295, 7_424, 20_265, 3, 7_122, 1_543, 63, 40_000_000, 3_067_956, 405_282, 10, 2_209),
    *(11_938, 155, 4, 976, 14, 40_000_000, 40_000_000, 40_000_000, 590_152, 12_973, 108, 36),
)
DIM, CAP = 128, 20_000
BYTES = {"s32": 4, "f32": 4, "u32": 4, "bf16": 2}


def powers(rng: np.random.Generator, rows: int, shape: Any) -> Any:
    """Ids by a power law with the exponent 1."""
    return np.minimum(np.exp(rng.random(shape) * np.log(rows + 1)).astype(np.int64) - 1, rows - 1).clip(0)


def case(rows: tuple[int, ...], many_ids: bool, batch: int, rule: str, dim: int = DIM) -> tuple[Any, dict[str, Any]]:
    """Return an embedder of one device, and a batch."""
    import sparrow as sp

    optimizer = {"adagrad": sp.rules.Adagrad(0.1), "rowwise_adagrad": sp.rules.RowwiseAdagrad(0.1)}[rule]
    rng = np.random.default_rng(0)
    specs, inputs = [], {}
    for i, (count, ids) in enumerate(zip(rows, IDS, strict=True)):
        table = sp.TableSpec(name=f"t{i}", vocabulary_size=count, embedding_dim=dim, optimizer=optimizer)
        specs.append(sp.FeatureSpec(name=f"t{i}", table_spec=table))
        inputs[f"t{i}"] = powers(rng, count, (batch, ids) if many_ids else batch)
    return sp.Embedder(specs), inputs


def routed(embedder: Any, inputs: Any, devices: int, placement: Any, exchange: str = "auto") -> tuple[int, float, Any]:
    """Bytes that a device sends in a step, the share of padding among them, and the mesh."""
    import sparrow as sp
    from sparrow.embedding import imagined_mesh

    mesh = imagined_mesh(embedder, devices, exchange, placement)
    batch = mesh.measure(inputs)
    stacks = mesh.traffic(batch, sp.Sizes().fit(mesh.settle(batch.needs))).values()
    sent = sum(stack.sent for stack in stacks)
    return sent, sum(stack.padding * stack.sent for stack in stacks) / sent, mesh


def planned() -> None:
    """Print the plans."""
    from collections import Counter

    from sparrow.embedding import Links, choose_placement, kind_of

    fast = Links(link=300e9, network=50e9, latency=20e-6, memory=3000e9)
    print("| tables | ids | rule | devices | auto: MB | rows: MB, pooled | auto / rows, pooled | padding: auto, rows |")
    print("|" + "---|" * 8 + " fullest device: memory, lookups | places |")
    cases = [
        ("Criteo", ROWS, True, rule, devices, 65_536) for rule in ("adagrad", "rowwise_adagrad") for devices in (8,)
    ]
    cases += [("Criteo", ROWS, False, "adagrad", 8, 65_536)]
    cases += [
        ("26 x 40M", (40_000_000,) * 26, False, rule, devices, 65_536)
        for rule in ("adagrad", "rowwise_adagrad")
        for devices in (256, 1024)
    ]
    for name, rows, many_ids, rule, devices, batch in cases:
        embedder, inputs = case(rows, many_ids, batch, rule)
        links, processes = (fast, devices // 8) if devices > 8 else (Links(), 1)
        choice = choose_placement(embedder, inputs, devices, processes, links)
        auto, padding, _ = routed(embedder, inputs, devices, choice.placements)
        by_rows, padding_of_rows, _ = routed(embedder, inputs, devices, "rows")
        pooled, _, _ = routed(embedder, inputs, devices, "rows", "pooled")
        kinds = Counter(kind_of(place, devices) for place in choice.places.values())
        cells = [
            name,
            "1 to 100" if many_ids else "1",
            rule,
            devices,
            f"{auto / 1e6:.1f}",
            f"{by_rows / 1e6:.1f}, {pooled / 1e6:.1f}",
            f"{auto / by_rows:.2f}, {auto / pooled:.2f}",
            f"{padding:.0%}, {padding_of_rows:.0%}",
            f"{choice.cost.fullest:.2f}, {choice.cost.lookups:.2f}",
            ", ".join(f"{count} {kind}" for kind, count in kinds.items()),
        ]
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)
    print(f"\nload of the machine: {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")


def collective_bytes(program: str, devices: int) -> float:
    """Bytes that a device sends in the collectives of a compiled program."""
    total = 0.0
    for line in program.splitlines():
        found = re.search(r"= (.*?) (all-to-all|all-gather)(?:-start)?\(", line)
        if not found:
            continue
        groups = re.search(r"replica_groups=\{\{([\d,]+)\}|replica_groups=\[(\d+),(\d+)\]", line)
        size = devices
        if groups:
            size = len(groups[1].split(",")) if groups[1] else int(groups[3])
        shapes = re.findall(r"\b(\w+)\[([\d,]*)\]", found[1])
        held = sum(BYTES[kind] * math.prod(int(n) for n in shape.split(",") if n) for kind, shape in shapes)
        total += held * (size - 1) / size
    return total


def measured(devices: int, rule: str) -> dict[str, list[float]]:
    """Planned bytes, and those of the compiled program of lookup and update, by placement, on these devices."""
    import jax

    import sparrow as sp
    from sparrow.embedding import choose_placement

    embedder, inputs = case(tuple(min(rows, CAP) for rows in ROWS), many_ids=True, batch=2048, rule=rule, dim=32)
    found = {}
    mesh = jax.make_mesh((devices,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    choice = choose_placement(embedder, inputs, devices)
    for name, placement in {"auto": choice.placements, "rows": "rows", "columns": "columns"}.items():
        emb = sp.Embedder(embedder.features, mesh=mesh, placement=placement)
        batch = emb.measure(inputs)
        room = sp.Sizes().fit(batch.loose)
        packed, state = batch.pack(room), emb.init(jax.random.key(0))

        def step(state: Any, packed: Any, emb: Any = emb) -> Any:
            packed = emb.exchange(packed)
            acts, packed = emb.lookup_for_update(state, packed)
            return emb.update(state, packed, acts)

        program = jax.jit(step, donate_argnums=0).lower(state, packed).compile().as_text()
        sent = sum(one.sent for one in emb.sharded.traffic(batch, room).values())
        found[name] = [sent, collective_bytes(program, devices)]
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--inside", nargs=2)
    options = parser.parse_args()
    if options.inside:
        print(json.dumps(measured(int(options.inside[0]), options.inside[1])))
        return
    print("| devices | rule | placement | planned bytes | bytes of the compiled step |\n|---|---|---|---|---|")
    for devices in (2, 4, 8):
        for rule in ("adagrad", "rowwise_adagrad"):
            flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
            environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
            command = [sys.executable, __file__, "--inside", str(devices), rule]
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
            for name, (sent, counted) in json.loads(done.stdout.splitlines()[-1]).items():
                print(f"| {devices} | {rule} | {name} | {sent:,.0f} | {counted:,.0f} |", flush=True)
    if not options.measure:
        planned()


if __name__ == "__main__":
    main()
